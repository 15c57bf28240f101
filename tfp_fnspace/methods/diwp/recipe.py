"""The recipe of deep kernel processes for a table: the choice of kernel and number of steps."""

from typing import Any

import keras

from tfp_fnspace import likelihoods
from tfp_fnspace.methods.diwp.deep_kernel import DeepKernel
from tfp_fnspace.methods.diwp.model import DIWPModel
from tfp_fnspace.methods.diwp.options import Start
from tfp_fnspace.recipes import scale_learnt_noise
from tfp_fnspace.trials import Table

#: Rows in a batch. A small table is a single batch, whose bound has no noise.
_BATCH_SIZE = 1000

#: Steps of Adam, at a rate at which a few hundred steps fit scales and noise; held-out rows stop
#: it.
_STEPS, _LEARNING_RATE, _STEPS_BETWEEN_LOOKS = 1000, 0.02, 10

#: Number of inducing points. Twice as many did not help on two tables with hundreds of rows.
_INDUCING_POINTS = 100

#: `build` uses only the numbers of rows and columns.
BUILDS_FROM_ROWS = False

#: There is no limit to the number of rows.
MOST_ROWS = None


def candidates(table: Table) -> list[dict[str, Any]]:
    """Returns the settings to try, the most promising first."""
    batch_size = min(_BATCH_SIZE, table.num_rows)
    steps = -(-table.num_rows // batch_size)  # of an epoch
    common = {
        "inducing_points": min(_INDUCING_POINTS, table.num_rows // 2 + 1),
        "batch_size": batch_size,
        "epochs": -(-_STEPS // steps),
        "epochs_between_looks": -(-_STEPS_BETWEEN_LOOKS // steps),
    }
    # The kernels of wide networks come first. Random matrices between them cost four times as much
    # and did not help on a small table, so they come last.
    return [
        {"kernel": "relu", "depth": 2, "hidden": "none", **common},
        {"kernel": "squared_exponential", "depth": 0, "hidden": "none", **common},
        {"kernel": "relu", "depth": 2, "hidden": "inverse_wishart", **common},
    ]


def build(settings: dict[str, Any], table: Table, seed: int) -> DIWPModel:
    """Builds and compiles a process with these settings, without fitting it."""
    is_random = settings["hidden"] != "none"
    names = ("inducing_points", "kernel", "depth", "hidden")
    model = DIWPModel(
        DeepKernel(**{name: settings[name] for name in names}),
        start=Start(rows="greedy"),
        num_samples=5 if is_random else 1,
        num_eval_samples=50 if is_random else 1,
        likelihood=None if table.num_classes is None else likelihoods.Categorical(),
        num_outputs=table.num_outputs,
        seed=seed,
    )
    model.compile(keras.optimizers.Adam(_LEARNING_RATE))
    return model


scale_noise = scale_learnt_noise
