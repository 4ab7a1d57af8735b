"""How sure a mean is: intervals by resampling whole sequences."""

import numpy as np

DRAWS, LEVEL = 2000, 0.95
MOST = 4096  # units that are drawn; neighbours among more sequences are drawn together, which costs no sureness


def interval(sums, sizes=None, seed=0):
    """(low, high) of sum(sums) / sum(sizes), a percentile bootstrap at LEVEL that draws whole sequences anew.

    sums (n), one number a sequence; sizes (n), what each is the sum of (None: 1 each). Tokens of one sequence depend
    on each other, so they are drawn together. One sequence tells nothing: (nan, nan). Of two paired measurements,
    give the differences.
    """
    sums = np.asarray(sums, np.float64)
    sizes = np.ones(len(sums)) if sizes is None else np.asarray(sizes, np.float64)
    if len(sums) > MOST:
        unit = np.arange(len(sums)) * MOST // len(sums)
        sums, sizes = np.bincount(unit, sums), np.bincount(unit, sizes)
    n = len(sums)
    if n < 2:
        return float("nan"), float("nan")
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=DRAWS)  # (draws, n)
    totals, weights = counts @ sums, counts @ sizes
    means = totals[weights > 0] / weights[weights > 0]  # a draw of nothing but empty sequences has none
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)
