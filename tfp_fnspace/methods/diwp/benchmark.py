"""The model of `benchmark paper`, a deep inverse Wishart process or one of its limits."""

from typing import Any

import keras
import numpy as np

from tfp_fnspace.methods.diwp.deep_kernel import DeepKernel
from tfp_fnspace.methods.diwp.model import DIWPModel
from tfp_fnspace.methods.diwp.options import Start
from tfp_fnspace.typing import Array


def fit(
    x: Array,
    y: Array,
    *,
    steps: int,
    learning_rate: float,
    batch_size: int,
    seed: int,
    **options: Any,
) -> tuple[DIWPModel, dict[str, Any]]:
    """Builds and fits a model, in the form that `registry` expects.

    Args:
        x: Training inputs `[N, X]`.
        y: Training targets `[N, D]`.
        steps: Number of steps of Adam, rounded up to the end of an epoch.
        learning_rate: Learning rate in the first half of the steps; it is a tenth of this in the
            second half.
        batch_size: Rows in a batch; 0 for all rows.
        seed: Integer.
        **options: Other arguments of `DIWPModel`, and those of `DeepKernel` and `Start`.

    Returns:
        The model, and a dict of values that the training rows have determined.
    """
    network, start = (
        cls(**{k: options.pop(k) for k in cls.names() if k in options})
        for cls in (DeepKernel, Start)
    )
    model = DIWPModel(network, start=start, seed=seed, **options)
    batch_size = batch_size or len(x)
    steps_per_epoch = -(-len(x) // batch_size)
    epochs = -(-steps // steps_per_epoch)
    rates, half = [learning_rate, learning_rate / 10.0], epochs * steps_per_epoch // 2
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([half], rates)
    model.compile(keras.optimizers.Adam(schedule))
    history = model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0).history
    tenth = -(-epochs // 10)
    return model, {
        "noise_scale": float(keras.ops.convert_to_numpy(model.likelihood.scale)),
        "delta": [float(v.delta) for v in model.network.layers if hasattr(v, "delta")],
        "objective": -float(np.mean(history["loss"][-tenth:])),
        "jittered": float(np.sum(history["jittered"]) * steps_per_epoch),
    }
