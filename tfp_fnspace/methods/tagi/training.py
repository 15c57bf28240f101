"""Updates of the posterior from rows: one batch, or a whole epoch in one compiled loop."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import tensorflow as tf

from tfp_fnspace.math import replicas
from tfp_fnspace.methods.tagi import equations, propagation
from tfp_fnspace.tracing import traced, traced_for_all
from tfp_fnspace.typing import Array, GaussianMoments, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.methods.tagi.model import TAGIModel


#: Four scalars: log-likelihood, squared error, rows and entries, see `epoch`.
Scores: TypeAlias = Sequence[Tensor]


def observe(
    model: "TAGIModel",
    inputs: list[Tensor],
    targets: Tensor,
    valid: Tensor | None = None,
    row_weights: Tensor | None = None,
) -> Scores:
    """Updates the posterior from one batch.

    Args:
        model: `TAGIModel`.
        inputs: List of tensors `[B, ...]` in model units.
        targets: Tensor `[B, D]` in model units; NaN is missing.
        valid: Boolean tensor `[B]`, false for rows that pad the batch; `None` means no padding.
        row_weights: Tensor `[B]` of the dtype of the targets. A row of weight w counts as w copies,
            in the sums of innovations and for the cap. `None` stands for ones.

    Returns:
        Four scalars: log-likelihood, squared error, rows and entries, see `epoch`.
    """
    targets, observed = without_missing(model, targets)
    if valid is not None:
        observed = tf.logical_and(observed, valid[:, tf.newaxis])
    counts = tf.cast(observed, targets.dtype)
    if row_weights is not None:
        counts *= row_weights[:, tf.newaxis]
    parameters = [pair for layer in model.trainable_layers for pair in layer.parameters]
    if model.chain is None:
        moments, sums = _through_graph(model, parameters, inputs, targets, counts, valid)
    else:
        moments, sums = model.chain.learn(
            *(inputs[0], model.input_variance()),
            *(targets, observed, model.likelihood.noise_variance()),
            model.trainable_layers,
            row_weights,
        )
    scores = _score(model, moments, targets, counts)
    rows = tf.shape(targets)[0] if valid is None else tf.reduce_sum(tf.cast(valid, tf.int32))
    if row_weights is not None:
        kept = row_weights if valid is None else tf.where(valid, row_weights, 0.0)
        rows = tf.reduce_sum(kept)
    sums, scores = replicas.summed((sums, scores))
    rows = replicas.summed(rows)
    if sums:
        _assign(model, parameters, sums, rows)
    if model.learned_noise is not None:
        model.likelihood.assign_scale(model.learned_noise.scale())
    return scores


def without_missing(model: "TAGIModel", targets: Tensor) -> tuple[Tensor, Tensor]:
    """Replaces missing targets before the arithmetic, since 0 * NaN would be NaN.

    Args:
        model: `TAGIModel`.
        targets: Tensor `[N, D]` in model units, NaN is missing; `[N, 2 D]` of limits.

    Returns:
        Targets that the likelihood can take, and a boolean tensor `[N, D]`, which are observed.
    """
    observed = tf.logical_not(tf.math.is_nan(targets))
    fill = tf.ones_like(targets) if model.likelihood.has_link else tf.zeros_like(targets)
    targets = tf.where(observed, targets, fill)
    if model.likelihood.targets_are_limits:
        observed, _ = tf.split(observed, 2, axis=-1)
    return targets, observed


def _through_graph(model, parameters, inputs, targets, counts, valid):
    """Returns the moments of the outputs, and the sums of the innovations of each parameter."""
    variables = [part.value for pair in parameters for part in pair]
    with (
        propagation.innovation_scope(valid),
        tf.GradientTape(watch_accessed_variables=False) as tape,
    ):
        tape.watch(variables)
        moments = model.with_learned_noise(model.network_moments(inputs))
    sums = tape.gradient(
        list(moments),
        variables,
        output_gradients=output_innovations(model, moments, targets, counts),
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return moments, sums


def output_innovations(
    model: "TAGIModel", moments: GaussianMoments, targets: Tensor, counts: Tensor
) -> list[Tensor]:
    """Returns a list of the two innovations of the outputs, times how often a target counts.

    Args:
        model: `TAGIModel`.
        moments: Moments of the outputs, tensors `[N, A]`.
        targets: Tensor `[N, D]`; `[N, 2 D]` of limits.
        counts: Tensor `[N, D]`, 0 where a target is missing, else the weight of the row.
    """
    weight = tf.cast(counts, moments.mean.dtype)
    # Several outputs may belong to one target: a value and its noise, or the outputs of all
    # classes.
    weight = tf.tile(weight, [1, moments.mean.shape[-1] // counts.shape[-1]])
    return [weight * part for part in model.observation_model.innovation(moments, targets)]


def _assign(model, parameters, sums, rows):
    rule, options = equations.exact_update, ()
    if model.update == "capped":
        cap = equations.cap_factor(rows, parameters[0].mean.dtype)
        rule, options = equations.capped_update, (cap,)
    if model.epochs.fuses_updates:
        rule = traced_for_all(rule, jit_compile=True)
    for i, (mean, variance) in enumerate(parameters):
        arguments = (mean.value, variance.value, sums[2 * i], sums[2 * i + 1])
        new_mean, new_variance = rule(*arguments, *options)
        mean.assign(new_mean)
        variance.assign(new_variance)


def _score(model, moments, targets, weight):
    """Returns sums of log predictive density, squared error or wrong labels, rows and entries."""
    if model.likelihood.is_classifier:
        density, error = _class_score(model, moments, targets)
    elif model.likelihood.has_link:
        density, error = _linked_score(model, moments, targets)
    else:
        unit = model.units.target_unit
        mean, variance = model.observation_model.observation_moments(moments)
        error = tf.square(targets - mean)
        density = -0.5 * (error / variance + tf.math.log(2.0 * math.pi * variance))
        error = tf.cast(error, unit.dtype) * tf.square(unit)
        # This is done per target, since some may be missing, and not by `Units.logs`.
        density = tf.cast(density, unit.dtype) - model.units.log_target_units
    weight, density, error = (tf.cast(v, tf.float64) for v in (weight, density, error))
    return (
        tf.reduce_sum(weight * density),
        tf.reduce_sum(weight * error),
        tf.reduce_sum(tf.reduce_max(weight, axis=1)),
        tf.reduce_sum(weight),
    )


def _linked_score(model, moments, targets):
    """Returns what `_score` needs, in the user's units; limits have no squared error."""
    moments = model.units.moments(moments)
    density = model.likelihood.log_predictive(moments, targets)
    if model.likelihood.targets_are_limits:
        return density, tf.zeros_like(density)
    mean = model.likelihood.predictive(moments).mean()
    return density, tf.square(tf.cast(targets, mean.dtype) - mean)


def _class_score(model, moments, targets):
    probabilities = model.likelihood.closed_form_probabilities(moments)
    labels = tf.cast(targets[:, 0], tf.int32)
    chosen = tf.one_hot(labels, probabilities.shape[-1], dtype=probabilities.dtype)
    tiny = np.finfo(probabilities.dtype.as_numpy_dtype).tiny
    density = tf.math.log(tf.maximum(tf.reduce_sum(chosen * probabilities, axis=-1), tiny))
    wrong = tf.not_equal(tf.argmax(probabilities, axis=-1, output_type=tf.int32), labels)
    return density[:, tf.newaxis], tf.cast(wrong, density.dtype)[:, tf.newaxis]


def epoch(
    model: "TAGIModel",
    inputs: list[Tensor],
    targets: Tensor,
    index: Tensor,
    counts: Tensor,
    num_batches: Tensor,
    row_weights: Tensor | None = None,
) -> Scores:
    """Updates the posterior from batch after batch, in one loop on the device.

    Args:
        model: `TAGIModel`.
        inputs: List of tensors `[N, ...]` in model units.
        targets: Tensor `[N, D]` in model units; NaN is missing.
        index: int32 tensor `[T, B]`, the row numbers of each batch.
        counts: int32 tensor `[T]`, how many entries of a row of `index` count.
        num_batches: Scalar, how many rows of `index` count.
        row_weights: Tensor `[N]`, see `observe`.

    Returns:
        Tuple of four float64 scalars over the rows learnt from. These are the sum of the log
        predictive densities before each update and the sum of the squared errors of the predictive
        mean, both in the user's units, the number of rows with an observed target, and the number
        of observed targets.
    """

    def body(step, sums):
        scores = observe_rows(model, inputs, targets, index[step], counts[step], row_weights)
        return step + 1, [a + b for a, b in zip(sums, scores, strict=True)]

    start = (tf.constant(0), [tf.zeros([], tf.float64) for _ in range(4)])
    _, sums = tf.while_loop(lambda step, _: step < num_batches, body, start)
    return tuple(sums)


def observe_rows(
    model: "TAGIModel",
    inputs: list[Tensor],
    targets: Tensor,
    rows: Tensor,
    count: Tensor,
    row_weights: Tensor | None = None,
) -> Scores:
    """Updates the posterior from a batch of given rows.

    Args:
        model: `TAGIModel`.
        inputs: List of tensors `[N, ...]` in model units.
        targets: Tensor `[N, D]` in model units; NaN is missing.
        rows: int32 tensor `[B]`.
        count: Scalar, how many entries of `rows` count; a batch of one row counts always.
        row_weights: Tensor `[N]`, see `observe`.

    Returns:
        Four scalars: log-likelihood, squared error, rows and entries, see `epoch`.
    """
    batch = [tf.gather(x, rows) for x in inputs]
    valid = None if rows.shape[0] == 1 else tf.range(rows.shape[0]) < count
    weights = None if row_weights is None else tf.gather(row_weights, rows)
    return observe(model, batch, tf.gather(targets, rows), valid, weights)


def batch_index(
    order: Array, batch_size: int, num_batches: int | None = None
) -> tuple[Array, Array, int]:
    """Returns the row numbers of each batch of an epoch.

    Args:
        order: NumPy int32 array, the rows in the order of the epoch.
        batch_size: Rows in a batch; the last batch may be shorter.
        num_batches: Number of rows of the result, at least `ceil(len(order) / batch_size)`.

    Returns:
        Index `[T, B]`, counts `[T]`, both int32, and the number of batches that count.
    """
    needed = -(-len(order) // batch_size)
    total = needed if num_batches is None else num_batches
    index = np.zeros(total * batch_size, np.int32)
    index[: len(order)] = order
    counts = np.clip(len(order) - batch_size * np.arange(total), 0, batch_size).astype(np.int32)
    return index.reshape(total, batch_size), counts, needed


class CompiledEpochs:
    """The compiled epochs of a model, which are compiled anew when its trainable layers change.

    Args:
        model: `TAGIModel`.

    Attributes:
        is_one_xla_program: Whether XLA compiles the whole epoch.
        fuses_updates: Whether the update of each parameter is one compiled function. Without XLA
            around the whole epoch, it would make many passes over the weights, and as many copies.
    """

    def __init__(self, model: "TAGIModel"):
        self._model = model
        self.configure("auto")

    def configure(self, jit_compile: bool | str) -> None:
        """Sets whether XLA compiles, see `TAGIModel.compile`, and drops what is compiled."""
        self._wanted = jit_compile
        self._trained: list[str] | None = None
        self.is_one_xla_program = False
        self.fuses_updates = False

    def learner(
        self,
        inputs: list[Array],
        targets: Array,
        batch_size: int,
        row_weights: Array | None = None,
    ) -> "EpochLearner":
        """Returns a function that learns from rows of given arrays."""
        trained = [layer.name for layer in self._model.trainable_layers]
        if self._trained != trained:
            self._compile()
            self._trained = trained
        functions = self._function, self._counted_function
        return EpochLearner(self._model, *functions, inputs, targets, batch_size, row_weights)

    def _compile(self):
        slow = any(layer.slow_in_xla_loops for layer in self._model.tagi_layers)
        slow = slow and not tf.config.list_physical_devices("GPU")
        is_auto = self._wanted == "auto"
        jit_compile = not slow if is_auto else bool(self._wanted)
        self.is_one_xla_program = jit_compile
        self.fuses_updates = is_auto and not jit_compile
        one_epoch = functools.partial(epoch, self._model)
        self._function = traced(one_epoch, jit_compile=jit_compile)
        self._counted_function = traced(self._counted)

    def _counted(self, num_steps, *arguments):
        """Runs an epoch and counts its steps, without a chance of an interrupt in between."""
        sums = self._function(*arguments)
        self._model.counters.steps.assign_add(num_steps)
        return sums


class EpochLearner:
    """Learns from rows of arrays that stay on the device.

    Args:
        model: `TAGIModel`.
        function: `epoch` of that model, compiled.
        counted: The same, which also counts the steps.
        inputs: List of arrays `[N, ...]` in the user's units.
        targets: Array `[N, D]` in the user's units; NaN is missing.
        batch_size: Rows in a batch; the exact update takes rows one by one.
        row_weights: Array `[N]`, or `None`. The exact update learns the w copies of a row of weight
            w one after the other.

    Call arguments:
        order: int32 array of at most N row numbers. All calls share one compiled program whatever
            the number, since the index is padded to that of N rows.

    Returns:
        The results of `epoch`.
    """

    def __init__(
        self,
        model: "TAGIModel",
        function: Callable[..., Scores],
        counted: Callable[..., Scores],
        inputs: list[Array],
        targets: Array,
        batch_size: int,
        row_weights: Array | None = None,
    ):
        self.function, self.counted = function, counted
        self.steps_of = lambda num_rows: -(-num_rows // batch_size)
        self.batch_size = 1 if model.update == "exact" else batch_size
        self.num_batches = -(-len(targets) // self.batch_size)
        self.inputs = model.units.scaled([tf.constant(x) for x in inputs])
        self.targets = model.units.target_scaler(tf.constant(targets))
        self.copies, self.weights = None, []
        if row_weights is not None and model.update == "exact":
            self.copies = row_weights.astype(np.int64)
            self.num_batches = int(np.sum(self.copies))
        elif row_weights is not None:
            self.weights = [tf.constant(row_weights, self.targets.dtype)]

    def __call__(self, order: Array, count_steps: bool = False) -> Scores:
        num_steps = tf.constant(self.steps_of(len(order)), tf.int64)
        index = map(tf.constant, self.index_of(order))
        arguments = self.inputs, self.targets, *index, *self.weights
        return self.counted(num_steps, *arguments) if count_steps else self.function(*arguments)

    def index_of(self, order: Array) -> tuple[Array, Array, int]:
        """Returns `batch_index` of rows, for the number of batches that all rows have."""
        if self.copies is not None:
            order = np.repeat(order, self.copies[order])
        return batch_index(order, self.batch_size, self.num_batches)
