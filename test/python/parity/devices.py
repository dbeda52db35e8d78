"""Devices, initialisation and random numbers."""

import torch

from parity import probe

DEVICE, RANDOM = "Devices", "Random numbers"


@probe(DEVICE, "torch.cuda.is_available()")
def is_available(d, m):
    assert m.is_available()


@probe(DEVICE, "torch.cuda.device_count()")
def device_count(d, m):
    assert m.device_count() >= 1


@probe(DEVICE, "torch.cuda.current_device()")
def current_device(d, m):
    assert m.current_device() == 0


@probe(DEVICE, "torch.cuda.set_device(0)")
def set_device(d, m):
    m.set_device(0)
    m.set_device(f"{d}:0")
    m.set_device(torch.device(d, 0))


@probe(DEVICE, "with torch.cuda.device(0):")
def device_context(d, m):
    with m.device(0):
        assert torch.empty(1, device=d).device.index == 0


@probe(DEVICE, "with torch.cuda.device_of(tensor):", openreg=False)
def device_of(d, m):
    with m.device_of(torch.empty(1, device=d)), m.device_of(torch.empty(1)):
        pass


@probe(DEVICE, "torch.cuda.init(); torch.cuda.is_initialized()")
def initialization(d, m):
    m.init()
    assert m.is_initialized()


@probe(DEVICE, "torch.cuda.synchronize()", openreg=False)
def synchronize(d, m):
    m.synchronize()
    m.synchronize(0)
    m.synchronize(torch.device(d))


@probe(DEVICE, "torch.cuda.get_device_name()", openreg=False)
def device_name(d, m):
    assert m.get_device_name() == m.get_device_name(0) == m.get_device_name(torch.device(d, 0)) != ""


@probe(DEVICE, "torch.cuda.get_device_properties(0).total_memory", openreg=False)
def device_properties(d, m):
    properties = m.get_device_properties(0)
    assert properties.total_memory > 0 and properties.multi_processor_count > 0 and properties.name


@probe(DEVICE, "torch.cuda.get_device_capability()", openreg=False)
def device_capability(d, m):
    major, minor = m.get_device_capability()
    assert major >= 0 and minor >= 0


@probe(DEVICE, "torch.cuda.is_bf16_supported()", openreg=False)
def is_bf16_supported(d, m):
    assert m.is_bf16_supported()


@probe(DEVICE, "torch.cuda.can_device_access_peer(0, 0)", openreg=False)
def can_device_access_peer(d, m):
    assert m.can_device_access_peer(0, 0) is False


@probe(DEVICE, "torch.cuda.set_sync_debug_mode('warn')", openreg=False)
def sync_debug_mode(d, m):
    assert m.get_sync_debug_mode() == 0
    m.set_sync_debug_mode("error")
    try:
        torch.ones(1, device=d).item()
    except RuntimeError:
        return
    finally:
        m.set_sync_debug_mode("default")
    raise AssertionError("reading did not raise")


@probe(DEVICE, "torch.cuda.ipc_collect()", openreg=False)
def ipc_collect(d, m):
    m.ipc_collect()


@probe(DEVICE, "torch.accelerator.current_accelerator()")
def current_accelerator(d, m):
    assert torch.accelerator.current_accelerator().type == d


@probe(DEVICE, "torch.accelerator.device_count()")
def accelerator_count(d, m):
    assert torch.accelerator.device_count() >= 1


@probe(DEVICE, "torch.accelerator.set_device_index(0)")
def accelerator_index(d, m):
    torch.accelerator.set_device_index(0)
    assert torch.accelerator.current_device_index() == 0


@probe(DEVICE, "with torch.accelerator.device_index(0):")
def accelerator_context(d, m):
    with torch.accelerator.device_index(0):
        assert torch.empty(1, device=d).device.index == 0


@probe(DEVICE, "torch.accelerator.synchronize()")
def accelerator_synchronize(d, m):
    torch.ones(2, device=d).add_(1)
    torch.accelerator.synchronize()


@probe(DEVICE, "torch.accelerator.get_device_capability()")
def accelerator_capability(d, m):
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]


@probe(DEVICE, "torch.get_device_module('cuda')")
def device_module(d, m):
    assert torch.get_device_module(d) is m
    assert torch.get_device_module() is m


@probe(DEVICE, "torch.device('cuda:99') raises when it is used")
def unknown_device(d, m):
    try:
        torch.empty(1, device=f"{d}:99")
    except RuntimeError:
        assert torch.ones(1, device=d).item() == 1
        return
    raise AssertionError("device 99 was accepted")


@probe(DEVICE, "torch.set_default_device('cuda')")
def default_device(d, m):
    torch.set_default_device(d)
    try:
        assert torch.ones(2).device.type == torch.nn.Linear(2, 2).weight.device.type == d
        assert torch.get_default_device().type == d
    finally:
        torch.set_default_device(None)


@probe(DEVICE, "with torch.device('cuda'):")
def device_as_context(d, m):
    with torch.device(d):
        assert torch.arange(3).device.type == d
    assert torch.arange(3).device.type == "cpu"


@probe(DEVICE, "torch.use_deterministic_algorithms(True)")
def deterministic(d, m):
    torch.use_deterministic_algorithms(True)
    try:
        index = torch.tensor([0, 0, 1], device=d)
        assert torch.zeros(2, device=d).index_add_(0, index, torch.ones(3, device=d)).tolist() == [2, 1]
    finally:
        torch.use_deterministic_algorithms(False)


# Random numbers ------------------------------------------------------------------------------------------------------


def assert_repeats(draw, restart):
    """The same numbers come after each restart, and others without one."""
    restart()
    first = draw().cpu()
    restart()
    assert torch.equal(draw().cpu(), first)
    assert not torch.equal(draw().cpu(), first)


@probe(RANDOM, "torch.manual_seed(0)")
def manual_seed(d, m):
    assert_repeats(lambda: torch.rand(4, device=d), lambda: torch.manual_seed(0))


@probe(RANDOM, "torch.cuda.manual_seed(0)")
def device_seed(d, m):
    for seed in (m.manual_seed, m.manual_seed_all):
        assert_repeats(lambda: torch.randn(4, device=d), lambda: seed(5))  # noqa: B023


@probe(RANDOM, "torch.cuda.seed(); torch.cuda.initial_seed()")
def random_seed(d, m):
    m.seed()
    first = m.initial_seed()
    m.seed_all()
    assert m.initial_seed() != first


@probe(RANDOM, "torch.cuda.get_rng_state()")
def rng_state(d, m):
    state = m.get_rng_state()
    assert_repeats(lambda: torch.rand(4, device=d), lambda: m.set_rng_state(state))


@probe(RANDOM, "torch.cuda.get_rng_state_all()")
def rng_state_all(d, m):
    states = m.get_rng_state_all()
    assert_repeats(lambda: torch.rand(4, device=d), lambda: m.set_rng_state_all(states))


@probe(RANDOM, "torch.cuda.default_generators", openreg=False)
def default_generators(d, m):
    assert m.default_generators[0].device.type == d


@probe(RANDOM, "torch.Generator('cuda')")
def generator(d, m):
    draws = [torch.rand(3, device=d, generator=torch.Generator(d).manual_seed(1)).cpu() for _ in range(2)]
    assert torch.equal(*draws)


@probe(RANDOM, "generator.get_state(), generator.set_state(state)")
def generator_state(d, m):
    g = torch.Generator(d).manual_seed(1)
    state = g.get_state()
    assert_repeats(lambda: torch.rand(3, device=d, generator=g), lambda: g.set_state(state))


@probe(RANDOM, "generator.graphsafe_get_state(), generator.clone_state()", openreg=False)
def shared_state(d, m):
    g = torch.Generator(d).manual_seed(1)
    shared, copy = g.graphsafe_get_state(), g.clone_state()
    first = torch.rand(3, device=d, generator=g).cpu()
    assert torch.equal(torch.rand(3, device=d, generator=copy).cpu(), first)
    assert not torch.equal(torch.rand(3, device=d, generator=shared).cpu(), first)


@probe(RANDOM, "with torch.random.fork_rng(device_type='cuda'):")
def fork_rng(d, m):
    torch.manual_seed(0)
    state = m.get_rng_state()
    with torch.random.fork_rng(device_type=d):
        torch.rand(4, device=d)
    assert torch.equal(m.get_rng_state(), state)


@probe(RANDOM, "torch.randperm(10, device='cuda')")
def randperm(d, m):
    assert sorted(torch.randperm(10, device=d).tolist()) == list(range(10))


@probe(RANDOM, "torch.normal(mean, std), x.bernoulli_(), torch.multinomial(p, 3)")
def distributions(d, m):
    x = torch.ones(100, device=d)
    assert torch.normal(x, x).std().item() > 0
    assert 0 < torch.empty(100, device=d).bernoulli_(0.5).sum().item() < 100
    assert len(set(torch.multinomial(x, 3).tolist())) == 3


@probe(RANDOM, "torch.distributions.Normal(mean, std).rsample()")
def distribution_objects(d, m):
    mean = torch.zeros(3, device=d, requires_grad=True)
    distribution = torch.distributions.Normal(mean, torch.ones(3, device=d))
    distribution.log_prob(distribution.rsample()).sum().backward()
    assert mean.grad.device.type == d
