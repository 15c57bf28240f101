"""What the verbs of a model that predict do with rows: checks, batches, and words about NaN."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import notices
from tfp_fnspace.boundary import arguments, arrays, memory, streams
from tfp_fnspace.callbacks import checked_callbacks
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.model import checks, summary
from tfp_fnspace.typing import Array, ArrayLike, Distribution, GaussianMoments, Rows, Seed

if TYPE_CHECKING:
    from tfp_fnspace.model.base import FunctionSpaceModel

#: How many numbers the widest tensor of one chunk of functions or of a mixture may hold.
CHUNK_NUMBERS = 2**22

#: Matrices over the points that are in memory while functions are drawn jointly, at least.
_MATRICES_OF_JOINT_DRAWS = 4


def predict(
    model: "FunctionSpaceModel",
    x: Rows,
    batch_size: int | None,
    verbose: int | str,
    steps: int | None,
    callbacks: Any,
) -> dict[str, Array]:
    """Predicts moments or probabilities, see `FunctionSpaceModel.predict`."""
    arguments.check_verbose(verbose)
    checked_callbacks(callbacks)
    if steps is not None:
        arguments.check_count("steps", steps)
    model.check_ready()
    stream = None
    if streams.is_stream(x):
        checks.check_passes(x, "steps", steps)
        stream = model.checked_stream(x, with_targets=False)
        x = stream.for_keras()
    else:
        inputs = model.checks.inputs(x)
        rows = checks.batch_rows(batch_size, len(inputs[0]), model.predict_batch_size)
        replicated = model.distribute_strategy.num_replicas_in_sync > 1
        if not (callbacks or verbose or steps or replicated):
            return _predict_arrays(model, inputs, rows)
        x, batch_size = model.checks.feed(inputs, None, rows), None
    with streams.own_errors(stream):
        options: dict[str, Any] = {"verbose": verbose, "steps": steps, "callbacks": callbacks}
        outputs: Any = keras.Model.predict(model, x, batch_size=batch_size, **options)
    _warn_of_nan("predictions", outputs.values())
    return outputs


def _predict_arrays(
    model: "FunctionSpaceModel", inputs: list[Array], rows: int
) -> dict[str, Array]:
    """Predicts as Keras does, without its pipeline and its callbacks, which take longer."""
    model.checks.batch_size(rows)
    model.make_predict_function()
    parts = model.in_batches(lambda part: model.predict_function([(part,)]), inputs, rows)
    outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    _warn_of_nan("predictions", outputs.values())
    return outputs


def distribution(
    model: "FunctionSpaceModel", x: Rows, batch_size: int | None, joint: bool
) -> Distribution:
    """Returns a distribution, see `FunctionSpaceModel.predict_distribution`."""
    likelihood, num_samples = model.likelihood, model.num_eval_samples
    if likelihood.is_classifier or (num_samples is None and not likelihood.has_link):
        _refuse_joint(model, joint)
        return _distribution_of(model, model.predict(x, batch_size=batch_size))
    if batch_size is not None:
        arguments.check_count("batch_size", batch_size)
    if joint and num_samples is not None and not likelihood.has_noise_outputs:
        count = model.num_joint_functions or num_samples
        draws = model.sample_functions(x, count, model.counters.seeds.stream("predict"))
        return likelihood.joint(tf.constant(draws), model.units.target_unit)
    inputs = model.checked_inputs(x)
    rows = checks.batch_rows(batch_size, len(inputs[0]), model.predict_batch_size)
    means, variances = zip(
        *model.in_batches(model.traced(model.posterior_moments), inputs, rows), strict=True
    )
    mean = tf.concat(means, axis=-2)
    variance = None if variances[0] is None else tf.concat(variances, axis=-2)
    if not joint:
        parts = likelihood, model.units, model.counters.seeds.stream("likelihood")
        return summary.distribution(GaussianMoments(mean, variance), *parts)
    _refuse_joint(model, variance is not None)
    # These are draws of functions, whose outputs include the noise.
    return likelihood.joint(mean, model.units.target_unit)


def _refuse_joint(model: "FunctionSpaceModel", joint: bool) -> None:
    if joint:
        raise ValueError(
            f"`joint` must be False for {type(model).__name__} with this likelihood, which "
            "knows the distribution of each point only (`sample_functions` draws functions). "
            f"Received: joint={joint!r}"
        )


def _distribution_of(model: "FunctionSpaceModel", outputs: dict[str, Array]) -> Distribution:
    """Returns the distribution for the arrays of `predict`."""
    if model.likelihood.is_classifier:
        return model.likelihood.from_probabilities(outputs["probabilities"])
    mean, stddev, of_functions = (
        tf.convert_to_tensor(outputs[key]) for key in ("mean", "stddev", "epistemic_stddev")
    )
    if model.likelihood.has_noise_outputs:
        return model.likelihood.predictive_from(mean, stddev)
    moments = GaussianMoments(mean, tf.square(of_functions))
    return model.likelihood.predictive(moments, model.units.target_unit)


def quantiles(
    model: "FunctionSpaceModel", x: Rows, levels: ArrayLike, batch_size: int | None
) -> Array:
    """Predicts quantiles, see `FunctionSpaceModel.predict_quantiles`."""
    values = tf.constant(arrays.checked_levels(levels), tf.float64)
    if model.likelihood.is_classifier:
        raise ValueError(
            "Quantiles are for regressions; `predict` has the probabilities of classes. "
            f"Received: a model with the likelihood {type(model.likelihood).__name__}"
        )
    inputs = model.checked_inputs(x)
    rows = checks.batch_rows(batch_size, len(inputs[0]), model.predict_batch_size)
    found = model.traced(model.quantiles_at)
    parts = model.in_batches(lambda part: found(part, values).numpy(), inputs, rows)
    return np.concatenate(parts)


def functions(model: "FunctionSpaceModel", x: Rows, num_samples: int, seed: Seed) -> Array:
    """Draws functions, see `FunctionSpaceModel.sample_functions`."""
    num_samples, seed = arguments.checked_count("num_samples", num_samples), as_seed(seed)
    inputs = model.checked_inputs(x)
    rows = len(inputs[0])
    _check_room_for(model, rows, num_samples)
    if not model.draws_jointly:
        rows = max(1, CHUNK_NUMBERS // model.numbers_per_row(num_samples))
    draw = model.traced(model.draw_functions)
    chunks = model.in_batches(lambda part: draw(part, num_samples, seed).numpy(), inputs, rows)
    drawn = np.concatenate(chunks, axis=1)
    _warn_of_nan("function samples", [np.swapaxes(drawn, 0, 1)])
    return drawn


def _check_room_for(model: "FunctionSpaceModel", rows: int, num_samples: int) -> None:
    """Refuses functions that do not fit into memory, and joint draws whose matrices do not."""
    num_bytes = 8.0 * num_samples * rows * model.units.num_functions
    if model.draws_jointly:
        size = np.dtype(model.variable_dtype).itemsize
        num_bytes = max(num_bytes, float(size) * _MATRICES_OF_JOINT_DRAWS * rows**2)
    what = "joint draws" if model.draws_jointly else "functions"
    memory.check_room(
        f"{num_samples:,} {what} at {rows:,} rows",
        num_bytes,
        "draw fewer at a time, or at fewer rows",
    )


def _warn_of_nan(what: str, arrays: Iterable[Array]) -> None:
    """Warns of rows of arrays `[N, ...]` with NaN, which checks of the data cannot foresee."""
    bad = np.any([np.isnan(a).reshape(len(a), -1).any(axis=1) for a in arrays], axis=0)
    rows = np.flatnonzero(bad)
    if rows.size:
        notices.warn(
            f"The {what} are NaN at {rows.size} of {len(bad)} rows, the first is {rows[0]}: the "
            "inputs there may be too large for the model's dtype, or its weights are NaN.",
            RuntimeWarning,
        )
