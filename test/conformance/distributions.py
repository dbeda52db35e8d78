"""Whether two samples come from the same distribution: for results that are random, and differ therefore."""

import torch

SMALLEST = 1000  # numbers, of which the tests can say something


def p_value(first: torch.Tensor, second: torch.Tensor) -> float:
    """How probable a difference like this one is between samples of one distribution."""
    from scipy import stats

    first, second = (_numbers(sample) for sample in (first, second))
    values = torch.cat([first, second]).unique()
    if len(values) == 1:
        return 1.0
    if len(values) > len(first) // 20:
        return float(stats.ks_2samp(first.numpy(), second.numpy(), method="asymp").pvalue)
    counts = [torch.bincount(torch.searchsorted(values, s), minlength=len(values)) for s in (first, second)]
    return float(stats.chi2_contingency(_without_rare(torch.stack(counts)).numpy(), correction=False).pvalue)


def _numbers(sample):
    sample = torch.view_as_real(sample.resolve_conj()) if sample.is_complex() else sample
    return sample.detach().flatten().to(torch.float64)


def _without_rare(counts):
    """What is too rare to be counted on, taken together."""
    rare = counts.sum(0) < 10
    table = torch.cat([counts[:, ~rare], counts[:, rare].sum(1, keepdim=True)], 1)
    return table[:, table.sum(0) > 0]


def moments_differ(first: torch.Tensor, second: torch.Tensor) -> list[str]:
    """Which of mean and variance differ by more than five standard errors."""
    first, second = (_numbers(sample) for sample in (first, second))
    squares = [(sample - sample.mean()).square() for sample in (first, second)]
    samples = {"mean": (first, second), "variance": squares}
    return [name for name, pair in samples.items() if _means_differ(*pair)]


def _means_differ(first, second):
    error = (first.var() / len(first) + second.var() / len(second)).sqrt()
    return bool((first.mean() - second.mean()).abs() > 5 * error)
