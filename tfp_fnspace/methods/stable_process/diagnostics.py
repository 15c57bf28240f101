"""Diagnostics of the convergence of a model's chains."""

from typing import NamedTuple

import numpy as np

from tfp_fnspace import notices
from tfp_fnspace.metrics import ess_bulk, ess_tail, rhat
from tfp_fnspace.typing import Array

#: `fit` warns beyond these values.
LARGEST_RHAT = 1.05
LEAST_ESS = 100.0

#: Diagnostics need this many draws of each chain.
_LEAST_DRAWS = 4


class Convergence(NamedTuple):
    """Diagnostics of the stored draws of some quantities.

    If no chain has moved in a quantity, its R-hat is infinite and its effective sample sizes are 0.

    Attributes:
        rhat: Rank-normalised split R-hat; converged chains are below 1.01.
        ess_bulk: Effective sample size of the bulk of the draws, over all chains.
        ess_tail: Effective sample size of a 90 % interval.
    """

    rhat: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray


def convergence(draws: Array) -> Convergence:
    """Returns `Convergence` of draws `[chains, draws, ...]`, NaN for fewer than 4 draws."""
    if draws.shape[1] < _LEAST_DRAWS:
        return Convergence(*[np.full(draws.shape[2:], np.nan)] * 3)
    is_stuck = np.all(np.ptp(draws, axis=1) == 0.0, axis=0)
    values = Convergence(rhat(draws), ess_bulk(draws), ess_tail(draws))
    return Convergence(
        *(np.where(is_stuck, b, a) for a, b in zip(values, (np.inf, 0.0, 0.0), strict=True))
    )


def warn_of_bad_chains(found: dict[str, Convergence]) -> None:
    """Warns once if R-hat or an effective sample size is bad.

    Args:
        found: Dict name -> `Convergence`.
    """
    worst = {}
    for name, values in found.items():
        known = ~np.any(np.isnan(values), axis=0)
        if np.any(known):
            sizes = (np.min(part[known]) for part in (values.ess_bulk, values.ess_tail))
            worst[name] = np.max(values.rhat[known]), *sizes
    bad = {k: v for k, v in worst.items() if v[0] > LARGEST_RHAT or min(v[1:]) < LEAST_ESS}
    if bad:
        listed = ", ".join(
            f"{name}: R-hat {largest:.3f}, bulk ESS {bulk:.0f}, tail ESS {tail:.0f}"
            for name, (largest, bulk, tail) in bad.items()
        )
        notices.warn(
            f"The chains have not converged (worst of {listed}; wanted: R-hat at most "
            f"{LARGEST_RHAT}, ESS at least {LEAST_ESS:.0f}). Call `fit` again with the same data "
            "for more epochs; `diagnostics` has these numbers for every point.",
        )


def warn_of_burn_in(epochs: int, burn_in: int) -> None:
    """Warns that all draws are those of the burn-in."""
    notices.warn(
        f"The chains are still burning in ({epochs} of {burn_in} epochs): predictions are those "
        "of the last epoch's draws. Call `fit` again with the same data for more epochs.",
    )
