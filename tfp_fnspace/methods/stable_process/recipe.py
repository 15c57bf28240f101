"""Stable processes for the rows of a table; chains are as long as the time allows."""

from typing import Any

from tfp_fnspace.methods.stable_process.model import StableProcessModel
from tfp_fnspace.methods.stable_process.options import Chains, Sampled
from tfp_fnspace.trials import Table

#: The chains' state has the size of the rows.
BUILDS_FROM_ROWS = True

#: A sweep costs the cube of the rows: 1,000 rows leave time for some hundred sweeps, too few.
MOST_ROWS = 400


def candidates(table: Table) -> list[dict[str, Any]]:
    """Returns settings to try: one set only, because the index and the scale are sampled."""
    common = {"batch_size": None, "epochs": 75, "epochs_between_looks": 3}
    return [{"num_atoms": 1000, "num_chains": 2, "sweeps_per_epoch": 20, "burn_in": 10, **common}]


def build(settings: dict[str, Any], table: Table, seed: int) -> StableProcessModel:
    """Returns a process of sampled hyperplanes, not fitted."""
    names = ("num_chains", "sweeps_per_epoch", "burn_in")
    return StableProcessModel(
        alpha="infer",
        nu="infer",
        partition=Sampled(settings["num_atoms"]),
        chains=Chains(**{name: settings[name] for name in names}, max_draws=400),
        seed=seed,
    )


def scale_noise(model: StableProcessModel, factor: float) -> None:
    """Multiplies the standard deviation of the noise of all stored draws."""
    scales = model.store.noise_scale_drawn
    scales.assign(factor * scales.value)
