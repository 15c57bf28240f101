"""Whether the chains of a model have converged."""

import warnings
from typing import NamedTuple

import numpy as np

from tfp_fnspace.metrics import ess_bulk, ess_tail, rhat

#: Beyond these `fit` warns.
LARGEST_RHAT = 1.05
LEAST_ESS = 100.0

#: Draws of a chain without which there are no diagnostics.
_LEAST_DRAWS = 4


class Convergence(NamedTuple):
    """Diagnostics of the stored draws of some quantities.

    Attributes:
        rhat: Rank-normalised split R-hat; converged chains are below 1.01.
        ess_bulk: Effective sample size of the bulk of the draws, over all chains.
        ess_tail: Effective sample size of a 90 % interval.
    """

    rhat: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray


def convergence(draws):
    """`Convergence` of draws `[chains, draws, ...]`, NaN for fewer than 4 draws."""
    if draws.shape[1] < _LEAST_DRAWS:
        return Convergence(*[np.full(draws.shape[2:], np.nan)] * 3)
    return Convergence(rhat(draws), ess_bulk(draws), ess_tail(draws))


def warn_of_bad_chains(found):
    """Warns once if R-hat or the bulk's effective sample size is bad.

    Args:
        found: Dict name -> `Convergence`.
    """
    worst = {}
    for name, values in found.items():
        finite = np.isfinite(values.ess_bulk) & ~np.isnan(values.rhat)
        if np.any(finite):
            worst[name] = np.max(values.rhat[finite]), np.min(values.ess_bulk[finite])
    bad = {k: v for k, v in worst.items() if v[0] > LARGEST_RHAT or v[1] < LEAST_ESS}
    if bad:
        listed = ", ".join(f"{k}: R-hat {r:.3f}, bulk ESS {n:.0f}" for k, (r, n) in bad.items())
        warnings.warn(
            f"The chains have not converged (worst of {listed}; wanted: R-hat at most "
            f"{LARGEST_RHAT}, ESS at least {LEAST_ESS:.0f}). Call `fit` again with the same data "
            "for more epochs; `diagnostics` names the points.",
            stacklevel=4,
        )


def warn_of_burn_in(epochs, burn_in):
    """Warns that there are no draws but those of the burn-in."""
    warnings.warn(
        f"The chains are still burning in ({epochs} of {burn_in} epochs): predictions are those "
        "of the last epoch's draws. Call `fit` again with the same data for more epochs.",
        stacklevel=4,
    )
