"""Whether two samples come from the same distribution: for results that are random, and differ therefore."""

import torch

SMALLEST = 100  # numbers, of which something can be said
IMPROBABLE = 1e-6


def p_value(first: torch.Tensor, second: torch.Tensor) -> float:
    """How probable a difference like this one is between samples of one distribution."""
    from scipy import stats

    first, second = (numbers(sample) for sample in (first, second))
    values = torch.cat([first, second]).unique()
    if len(values) == 1:
        return 1.0
    if len(values) > len(first) // 20:
        return float(stats.ks_2samp(first.numpy(), second.numpy(), method="asymp").pvalue)
    counts = [torch.bincount(torch.searchsorted(values, s), minlength=len(values)) for s in (first, second)]
    return float(stats.chi2_contingency(_without_rare(torch.stack(counts)).numpy(), correction=False).pvalue)


def numbers(sample: torch.Tensor) -> torch.Tensor:
    """The elements as a vector of float64; complex ones are two."""
    sample = torch.view_as_real(sample.resolve_conj()) if sample.is_complex() else sample
    return sample.detach().flatten().to(torch.float64)


def _without_rare(counts):
    """What is too rare to be counted on, taken together."""
    rare = counts.sum(0) < 10
    table = torch.cat([counts[:, ~rare], counts[:, rare].sum(1, keepdim=True)], 1)
    return table[:, table.sum(0) > 0]


def moments_differ(first: torch.Tensor, second: torch.Tensor) -> list[str]:
    """Which of mean and variance differ by more than five standard errors."""
    first, second = (numbers(sample) for sample in (first, second))
    squares = [(sample - sample.mean()).square() for sample in (first, second)]
    samples = {"mean": (first, second), "variance": squares}
    return [name for name, pair in samples.items() if _means_differ(*pair)]


def _means_differ(first, second):
    error = (first.var() / len(first) + second.var() / len(second)).sqrt()
    return bool((first.mean() - second.mean()).abs() > 5 * error)


# Samples whose elements may depend on each other ---------------------------------------------------------------------


def problems(actual: torch.Tensor, expected: torch.Tensor) -> list[str]:
    """What speaks against one distribution. Each row is a run; elements of a run need not be independent."""
    if actual.shape[1:] != expected.shape[1:]:
        return [f"{actual.shape[1]} numbers, on the CPU {expected.shape[1]}"]
    found = []
    if _lies_outside(actual, expected):
        found.append(f"range {_range(actual)}, on the CPU {_range(expected)}")
    if expected.numel() < SMALLEST:
        return found
    rates = _new_numbers(actual, expected), _new_numbers(expected, expected)
    if abs(rates[0] - rates[1]) > 0.3:
        found.append(f"{rates[0]:.0%} of the numbers do not occur on the CPU, of the CPU's own {rates[1]:.0%}")
    if p_value(actual, expected) < IMPROBABLE and p_value(expected[::2], expected[1::2]) > 0.01:
        found.append(f"another distribution: mean {actual.mean():.4g}, on the CPU {expected.mean():.4g}")
    return found


def _range(sample):
    return f"{sample.min():.4g} to {sample.max():.4g}"


def _lies_outside(actual, expected):
    """By more than many times the range, as what has no bounds may be outside by a little."""
    if not expected.isfinite().all() or _has_heavy_tails(expected):
        return bool(actual.isnan().any()) and not bool(expected.isnan().any())
    low, high = expected.min(), expected.max()
    margin = (high - low) * (1 if expected.numel() >= SMALLEST else 10)
    return not bool(((low - margin <= actual) & (actual <= high + margin)).all())


def _has_heavy_tails(sample):
    quarter, three_quarters = sample.flatten().quantile(torch.tensor([0.25, 0.75], dtype=sample.dtype))
    return bool(sample.max() - sample.min() > 10 * (three_quarters - quarter))


def _new_numbers(rows, known):
    """The fraction of numbers that no known row but the one of that seed has in that place. Where there are only a few
    that can be, they are new by chance only."""
    is_new = (rows[:, None] - known).abs() > 1e-5 * known.abs()
    is_new |= torch.eye(len(rows), len(known), dtype=torch.bool)[:, :, None]
    return is_new.all(1).double().mean().item()
