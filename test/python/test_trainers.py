"""Hugging Face's training loops, which train on the CPU unless an environment variable names the device."""

import pytest
from helpers import run_fresh

pytest.importorskip("accelerate", reason="part of the extra `test`")

pytestmark = pytest.mark.lazy_only

ACCELERATE = """
from accelerate import Accelerator

def train(**options):
    accelerator = Accelerator(**options)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    batches = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    for batch in batches:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert model.weight.device == batch.device == loss.device == torch.zeros(0, device=accelerator.device).device
    print(accelerator.device, accelerator.gather(loss).item())

train(mixed_precision=PRECISION)
print(torch_lazyplug.metrics.executed_fallback_ops())
"""

TRAINER = """
import tempfile
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2))
samples = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 50, (8, 6))]
with tempfile.TemporaryDirectory() as directory:
    arguments = TrainingArguments(
        directory, per_device_train_batch_size=4, max_steps=3, report_to=[], disable_tqdm=True, save_strategy="no",
        bf16=BF16)
    trainer = Trainer(model, arguments, train_dataset=samples, eval_dataset=samples)
    loss = trainer.train().training_loss
    print(model.device, loss)
    print(trainer.evaluate()["eval_loss"])
print(torch_lazyplug.metrics.executed_fallback_ops())
"""


def run_on(device, program):
    """Where the program trained, the losses it printed, and the ops that fell back."""
    lines = run_fresh(program, ACCELERATE_TORCH_DEVICE=device, HF_HUB_OFFLINE="1").splitlines()
    place, loss = next(line for line in lines if line.startswith(device)).split()
    later = [float(line) for line in lines if line.replace(".", "").isdigit()]
    return place, [float(loss), *later], lines[-1]


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate(precision):
    program = ACCELERATE.replace("PRECISION", repr(precision))
    place, losses, fallbacks = run_on("lazy", program)
    assert place == "lazy"
    assert fallbacks == "[]"
    assert losses == pytest.approx(run_on("cpu", program)[1])


@pytest.mark.parametrize("bf16", [False, True])
def test_trainer(bf16):
    program = TRAINER.replace("BF16", str(bf16))
    place, losses, fallbacks = run_on("lazy", program)
    assert place == "lazy:0"
    assert fallbacks == "[]"
    assert len(losses) == 2
    assert losses == pytest.approx(run_on("cpu", program)[1])
