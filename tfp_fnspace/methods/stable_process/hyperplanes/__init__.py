r"""Hyperplanes that stand for the distribution of a random one, exactly or by sampling.

A unit of the network is the sign of a random hyperplane, `tau(x) = sign(b + w.x)` with (b, w)
standard normal in R^(I+1). The finite-dimensional distributions of the process need the sign
patterns of the points (tau and -tau count as one) and their probabilities q. A `Partition` holds
one or several hyperplanes (atoms) for each pattern, so that it also describes points that it has
not seen.

| kind | distribution at the points it was made of | elsewhere |
|---|---|---|
| `"exact"` | exact, one atom a pattern | one of the hyperplanes with that pattern |
| `"refined"` | exact, some atoms a pattern | random or evenly spread inside each pattern |
| `"sampled"` | Monte Carlo, error of order R^(-1/2) | the same |

References:
    Loria & Bhadra, "Posterior Inference on Infinitely Wide Bayesian Neural Networks under Weights
    with Unbounded Variance", sections 2.1, S.1 and S.2.
"""

from tfp_fnspace.methods.stable_process.hyperplanes.atoms import Groups, Partition
from tfp_fnspace.methods.stable_process.hyperplanes.choose import (
    exact,
    partition,
    refine,
    sampled,
)
from tfp_fnspace.methods.stable_process.hyperplanes.line import exact_1d
from tfp_fnspace.methods.stable_process.hyperplanes.plane import exact_2d

__all__ = [
    "Groups",
    "Partition",
    "exact",
    "exact_1d",
    "exact_2d",
    "partition",
    "refine",
    "sampled",
]
