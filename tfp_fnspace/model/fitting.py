"""What `fit` and `adapt` do before and after the loop: checks, units, callbacks, interruptions."""

import functools
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import interrupts, notices
from tfp_fnspace.boundary import arguments, data, streams
from tfp_fnspace.callbacks import (
    EpochCounter,
    EpochStart,
    checked_callbacks,
    resolve_modes,
    with_safe_backups,
)
from tfp_fnspace.layers.scaler import RunningMoments, Standardizer
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.math import replicas
from tfp_fnspace.model import checks
from tfp_fnspace.model.counters import description
from tfp_fnspace.typing import Array, ArrayLike, Rows

if TYPE_CHECKING:
    from tfp_fnspace.model.base import FunctionSpaceModel

_Model = TypeVar("_Model")
_P = ParamSpec("_P")
_R = TypeVar("_R")

#: A noise scale above this many standard deviations of the targets is a mistake in the units.
_LARGEST_NOISE = 2.0


def keeping_whole(
    fit: Callable[Concatenate[_Model, _P], _R],
) -> Callable[Concatenate[_Model, _P], _R]:
    """Wraps `fit` so that the weights are those of a whole step, however it ends."""

    @functools.wraps(fit)
    def whole_fit(model, *args, **kwargs):
        counters = model.counters
        with interrupts.deferred():
            is_first = not counters.has_steps
            before = [(weight, weight.numpy()) for weight in model.weights] if is_first else []
            try:
                history = fit(model, *args, **kwargs)
                counters.forget_epoch()
            except BaseException:
                with interrupts.held():
                    counters.settle(before)
                raise
            return history

    return whole_fit


# Shapes -----------------------------------------------------------------------------------------


def learn_shapes(
    model: "FunctionSpaceModel", x: Rows, y: ArrayLike | None, held_out: float = 0.0
) -> Rows:
    """Lets a model make its parts for the shapes of the first data, unless it has them.

    Args:
        model: `FunctionSpaceModel`.
        x: Inputs, or a stream.
        y: Targets, for arrays.
        held_out: Fraction of the rows of arrays that is held out from training.

    Returns:
        x. For a stream, one that still yields the batches that were read.
    """
    if model.has_shapes:
        return x
    parts = [(x, y)]
    is_stream = streams.is_stream(x)
    if is_stream:
        with streams.own_errors():
            parts, x = streams.first_batches(x, model.rows_for_shapes)
    dtype = model.input_tensor_dtype or model.variable_dtype
    parts = [checks.first_data(*part[:2], model.likelihood, dtype) for part in parts]
    inputs, targets = parts[0]
    num_rows = sum(len(part[0]) for part in parts)
    if held_out and not is_stream:
        num_rows = len(data.split_rows([inputs], held_out)[0][0])
    # Weights made here belong to the strategy that the model was made in.
    with model.distribute_strategy.scope(), interrupts.held():
        model.create(inputs.shape[1:], targets.shape[1], num_rows)
    return x


# Units ------------------------------------------------------------------------------------------


def adapt(
    model: "FunctionSpaceModel",
    x: Rows,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> None:
    """Sets the standardisation of a model that knows its shapes, see `FunctionSpaceModel.adapt`."""
    is_stream = streams.is_stream(x)
    if is_stream:
        checks.check_no_targets(y, sample_weight=sample_weight)
    has_steps = model.counters.has_steps
    if not model.standardize:
        if is_stream:
            model.checked_stream(x)
        elif not has_steps:
            model.checks.data(x, y, first=True)
        return
    if has_steps:
        raise ValueError(
            "`adapt` would change the units of what the model has learnt: call it before "
            f"the first `fit`. Received: a model after {model.counters.steps.numpy()} batches"
        )
    if is_stream:
        stream = model.checked_stream(x, first=True)
        with streams.own_errors(stream):
            adapt_to_stream(model, stream)
    else:
        inputs, targets = model.checks.data(x, y, first=True)
        row_weights = model.checks.weights(sample_weight, len(targets), learnt=True)
        adapt_to_batches(model, [batch_of(inputs, targets, row_weights)])


def adapt_to_stream(model: "FunctionSpaceModel", stream: streams.CheckedStream) -> None:
    """Sets the standardisation by all batches of a `CheckedStream`."""
    if stream.count_batches() is None:
        raise ValueError(
            "Standardisation needs data of known finite length: call `model.adapt(x, y)` "
            "with arrays first, or build the model with `standardize=False`. "
            f"Received: x={stream.given!r}"
        )
    adapt_to_batches(model, stream.batches())


def batch_of(inputs: list[Array], targets: Array, row_weights: Array | None) -> streams.Batch:
    """Returns a `Batch`, with weights if there are any."""
    return (inputs, targets) if row_weights is None else (inputs, targets, row_weights)


def adapt_to_batches(model: "FunctionSpaceModel", batches: Iterable[streams.Batch]) -> None:
    """Sets the standardisation in one pass over batches; a row of weight w counts as w copies."""
    scalers = model.units.scalers
    moments = [RunningMoments(scaler.mean.shape[0]) for scaler in scalers]
    names = ["x"] * (len(scalers) - 1) + ["y"]
    likelihood, of_targets = model.likelihood, RunningMoments(model.num_outputs)
    for inputs, targets, *row_weights in batches:
        for scaler, running, values in zip(scalers, moments, [*inputs, targets], strict=True):
            if scaler.enabled:
                running.update(values, *row_weights)
        if likelihood.has_link:
            of_targets.update(likelihood.statistic(targets), *row_weights)
    for scaler, running, name in zip(scalers, moments, names, strict=True):
        if scaler.enabled:
            scaler.adapt(running, name)
    if likelihood.has_link:
        likelihood.adapt_to(of_targets)
    scaler = model.units.target_scaler
    if scaler.enabled:
        model.adapt_noise(scaler.stddev.numpy())
        _warn_of_large_noise(model.likelihood, scaler)


def _warn_of_large_noise(likelihood: Likelihood, scaler: Standardizer) -> None:
    """Warns of a noise scale that was probably meant in the user's units."""
    scale = getattr(likelihood, "scale", None)
    if scale is None:
        return
    scale, unit = float(np.max(scale)), float(np.max(scaler.stddev))
    if scale > _LARGEST_NOISE:
        notices.warn(
            f"The noise of the likelihood, scale={scale:g}, is in standard deviations of the "
            f"targets, {unit:g} here: if it was meant in units of the targets, pass "
            f"scale={scale / unit:.3g} or units='user'.",
        )


# Fit --------------------------------------------------------------------------------------------


def check_counts(
    epochs: int, initial_epoch: int, validation_freq: int | Collection[int], **others: int | None
) -> tuple[int, int]:
    """Checks the numbers among the arguments of `fit`.

    Returns:
        `epochs` and `initial_epoch`.
    """
    epochs = arguments.checked_count("epochs", epochs)
    initial_epoch = arguments.checked_count("initial_epoch", initial_epoch, 0)
    if not isinstance(validation_freq, list | tuple | set):
        arguments.check_count("validation_freq", validation_freq)
    for name, value in others.items():
        if value is not None:
            arguments.check_count(name, value)
    return epochs, initial_epoch


def callbacks_of(model: "FunctionSpaceModel", given: Any) -> list[keras.callbacks.Callback]:
    """Returns the callbacks of a `fit`: the user's, those of the method and those of counters."""
    given = checked_callbacks(given)
    own = model.callbacks_of_fit(given)
    with_safe_backups(given)
    resolve_modes(given, model.scores)
    return [*model.first_callbacks(), EpochCounter(), *own, *given, EpochStart()]


def fit(
    model: "FunctionSpaceModel",
    x: Rows,
    y: ArrayLike | None,
    *,
    sample_weight: ArrayLike | None,
    class_weight: Any,
    batch_size: int | None,
    shuffle: bool,
    validation_split: float,
    steps_per_epoch: int | None,
    validation_freq: int | Collection[int],
    **options: Any,
) -> keras.callbacks.History:
    """Fits a model; arguments and result are those of `FunctionSpaceModel.fit`."""
    checks.refuse_weights(model, class_weight=class_weight, sample_weight=sample_weight)
    arguments.check_verbose(options["verbose"])
    options["epochs"], options["initial_epoch"] = check_counts(
        options["epochs"],
        options["initial_epoch"],
        validation_freq,
        batch_size=batch_size,
        steps_per_epoch=steps_per_epoch,
        validation_steps=options["validation_steps"],
        validation_batch_size=options["validation_batch_size"],
    )
    held_out = validation_split if options["validation_data"] is None else 0.0
    x = learn_shapes(model, x, y, held_out)
    options["callbacks"] = callbacks_of(model, options["callbacks"])
    model.ensure_compiled()
    return run(
        model,
        x,
        y,
        sample_weight=sample_weight,
        class_weight=class_weight,
        batch_size=batch_size,
        shuffle=shuffle,
        validation_split=validation_split,
        steps_per_epoch=steps_per_epoch,
        options={**options, "validation_freq": validation_freq},
    )


@keeping_whole
def run(
    model: "FunctionSpaceModel",
    x: Rows,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None,
    class_weight: Any,
    batch_size: int | None,
    shuffle: bool,
    validation_split: float,
    steps_per_epoch: int | None,
    options: dict[str, Any],
) -> keras.callbacks.History:
    """Checks the data of a `fit`, sets the units and runs the loop of the method.

    The model knows its shapes. The options are those of `keras.Model.fit`; of them only
    `validation_data` is still to be checked.
    """
    is_stream, num_epochs = streams.is_stream(x), options["epochs"] - options["initial_epoch"]
    first, row_weights = not model.has_units, None
    if is_stream:
        if model.needs_arrays:
            raise ValueError(f"{model.needs_arrays} Received: x={x!r}")
        checks.check_no_targets(y, validation_split, sample_weight)
        checks.check_passes(x, "steps_per_epoch", steps_per_epoch, num_epochs)
        x = model.checked_stream(x, first=first, learnt=True, class_weight=class_weight)
        with streams.own_errors(x):
            if not model.is_ready:
                adapt_to_stream(model, x)
    else:
        checks.refuse_steps(steps_per_epoch)
        inputs, targets = model.checks.data(x, y, first=first, learnt=True)
        row_weights = model.checks.weights(sample_weight, len(targets), learnt=True)
        if validation_split and options["validation_data"] is None:
            batch = batch_of(inputs, targets, row_weights)
            parts = data.split_rows(tf.nest.flatten(batch), validation_split)
            (inputs, targets, *rest), (held_out, *others) = (
                tf.nest.pack_sequence_as(batch, part) for part in parts
            )
            row_weights = rest[0] if rest else None
            options["validation_data"] = (model.checks.pack(held_out), *others)
        row_weights = model.checks.with_class_weight(row_weights, class_weight, targets)
        if not model.is_ready:
            adapt_to_batches(model, [batch_of(inputs, targets, row_weights)])
        x, y = inputs, targets
    held_out = _feed_validation(model, options, num_epochs)
    try:
        with streams.own_errors(x, held_out), replicas.in_words(model.distribute_strategy):
            if is_stream:
                model.counters.epoch_of = steps_per_epoch or x.count_batches() or 0, 0
                return model.run_stream(x, steps_per_epoch, options)
            rows = checks.batch_rows(batch_size, len(y), model.fit_batch_size)
            weighted = {} if row_weights is None else {"row_weights": row_weights}
            described = description([*x, y, *weighted.values()], rows, shuffle)
            model.counters.epoch_of = -(-len(y) // rows), described
            return model.run_arrays(x, y, rows, shuffle, options, **weighted)
    finally:
        # Keras keeps the epoch of a restored run; a later `fit` must start at its own.
        model._initial_epoch = None


def _feed_validation(model: "FunctionSpaceModel", options: dict[str, Any], num_epochs: int) -> Any:
    """Checks the validation data among the options and replaces them by what Keras takes.

    Returns:
        The validation data, a `CheckedStream` if they are a stream.
    """
    given = options["validation_data"]
    if streams.is_stream(given):
        steps = options["validation_steps"]
        checks.check_passes(given, "validation_steps", steps, num_epochs)
        given = model.checked_stream(given)
        options["validation_data"] = given.for_keras()
    elif given is not None:
        rows = options["validation_batch_size"] or model.predict_batch_size
        inputs, targets, row_weights = model.checks.validation(given)
        options["validation_data"] = model.checks.feed(inputs, targets, rows, row_weights)
        options["validation_batch_size"] = None
    elif model.user_metrics:
        names = [metric.name for metric in model.user_metrics]
        notices.warn(
            f"The metrics of `compile`, {names}, are for `evaluate` and for validation: "
            "`History` has them with `validation_data` or `validation_split`."
        )
    return given


def train_on_batch(
    model: "FunctionSpaceModel",
    x: Rows,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    class_weight: Any,
    return_dict: bool,
) -> Any:
    """Runs one update on one batch, see `FunctionSpaceModel.train_on_batch`."""
    checks.refuse_weights(model, class_weight=class_weight, sample_weight=sample_weight)
    model.ensure_compiled()
    first = model.is_ready and not model.has_units
    if not model.has_shapes:
        model.check_ready()
    inputs, targets = model.checks.data(x, y, first=first, learnt=True)
    row_weights = model.checks.weights(sample_weight, len(targets), learnt=True)
    row_weights = model.checks.with_class_weight(row_weights, class_weight, targets)
    model.check_ready()
    batch = batch_of(inputs, targets, row_weights)
    inputs, *others = shared_out(model.distribute_strategy, batch)
    with interrupts.held():
        batch = model.checks.pack(inputs), *others
        model.reset_metrics()  # as in `test_on_batch`
        logs = keras.Model.train_on_batch(model, *batch, return_dict=return_dict)
        model.counters.forget_epoch()
    return logs


def shared_out(strategy: tf.distribute.Strategy, batch: streams.Batch) -> Any:
    """Splits the rows of one batch among the replicas of a strategy."""
    count = strategy.num_replicas_in_sync
    if count == 1:
        return batch

    def shared(array):
        shares = [tf.constant(part) for part in np.array_split(array, count)]
        return strategy.experimental_distribute_values_from_function(
            lambda context: shares[context.replica_id_in_sync_group]
        )

    return tf.nest.map_structure(shared, batch)
