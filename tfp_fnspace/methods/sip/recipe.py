"""The recipe of sparse implicit processes for a table: number of steps, and noise."""

from typing import Any

import keras

from tfp_fnspace.methods.sip.model import SIPModel
from tfp_fnspace.recipes import scale_learnt_noise
from tfp_fnspace.trials import Table

_STEPS, _STEPS_BETWEEN_LOOKS = 2000, 100

#: `build` uses only the numbers of rows and columns.
BUILDS_FROM_ROWS = False

#: There is no limit to the number of rows.
MOST_ROWS = None


def candidates(table: Table) -> list[dict[str, Any]]:
    """Returns the settings to try, the most promising first."""
    batch_size = min(100, table.num_rows)
    steps = -(-table.num_rows // batch_size)  # of an epoch
    common = {
        "batch_size": batch_size,
        "epochs": -(-_STEPS // steps),
        "epochs_between_looks": -(-_STEPS_BETWEEN_LOOKS // steps),
    }
    return [{"inducing_points": 20, "num_samples": 50, **common}]


def build(settings: dict[str, Any], table: Table, seed: int) -> SIPModel:
    """Builds and compiles a process with a Bayesian network as its prior, without fitting it."""
    model = SIPModel(
        "bnn",
        inducing_points=min(settings["inducing_points"], table.num_rows // 2 + 1),
        num_samples=settings["num_samples"],
        num_eval_samples=100,
        seed=seed,
    )
    model.compile(keras.optimizers.Adam(3e-3))
    return model


scale_noise = scale_learnt_noise
