"""Runs that differ in rows and noise as one computation: the folds and candidates of `noise`."""

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.cores import num_cores
from tfp_fnspace.methods.tagi import training
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Array, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.methods.tagi.model import TAGIModel

#: Scales that are learnt with at once, of which a search may not need the last ones.
_MOST_AT_ONCE = 4

#: Least number of steps with one scale for which a further program is worth its compilation.
_LEAST_STEPS = 20_000

#: Most numbers that the parameters of all runs may hold.
_MOST_NUMBERS = 2**25


class Runs:
    """Learns from the rows of each fold with given scales of the noise, from the same start.

    A run has its own values of the parameters. Short runs, those whose epochs XLA does not compile,
    and those of recurrent networks are made one by one by the program of `fit`. Otherwise a second
    program makes a step of all folds and of several scales together, in which small networks cost
    much less, and parts of the scales run beside each other on the cores of a CPU.

    Args:
        model: `TAGIModel`. Its parameters are the start; runs change them.
        learner: `training.EpochLearner` of all rows.
        folds: List of arrays of row numbers, those that each fold learns from.
        epochs: Epochs of a run.
        shuffle: Whether each epoch permutes the rows.

    Attributes:
        at_once: Number of scales that are best given together.
    """

    def __init__(
        self,
        model: "TAGIModel",
        learner: training.EpochLearner,
        folds: Sequence[Array],
        epochs: int,
        shuffle: bool,
    ):
        self._model, self._learner, self._folds = model, learner, folds
        self._epochs, self._shuffle = epochs, shuffle
        self._start = [variable.numpy() for variable in model.parameter_variables]
        self.at_once = self._wanted_at_once()
        if self.at_once > 1:
            has_gpu = tf.config.list_physical_devices("GPU")
            threads = tf.config.threading.get_intra_op_parallelism_threads() or num_cores()
            self._num_threads = 1 if has_gpu else threads
            self._program = traced(functools.partial(_epoch, model), jit_compile=True)

    def _wanted_at_once(self):
        num_steps = self._epochs * sum(map(self._learner.steps_of, map(len, self._folds)))
        if (
            not self._model.epochs.is_one_xla_program
            or self._model.distribute_strategy.num_replicas_in_sync > 1
            or num_steps < _LEAST_STEPS
            or _has_loop(self._model, self._learner.inputs)
        ):
            return 1
        numbers = len(self._folds) * sum(value.size for value in self._start)
        return int(np.clip(_MOST_NUMBERS // max(numbers, 1), 1, _MOST_AT_ONCE))

    def learnt(self, scales: Sequence[Array]) -> list[list[list[Array]]]:
        """Learns with each of some scales of the noise.

        Args:
            scales: At most `at_once` arrays with the shape of the likelihood's scale.

        Returns:
            The values of `parameter_variables` of the model, for each scale and each fold.
        """
        if self.at_once == 1:
            return [[self._one_by_one(scale, fold) for fold in self._folds] for scale in scales]
        # The last scale fills places without a scale, so that one program serves all calls.
        filled = [*scales, *[scales[-1]] * (self.at_once - len(scales))]
        num_parts = min(self._num_threads, self.at_once)
        while self.at_once % num_parts:
            num_parts -= 1
        parts = [self._started(part) for part in np.array_split(np.stack(filled), num_parts)]
        with ThreadPoolExecutor(num_parts) as threads:
            for epoch in range(self._epochs):
                index = self._index(epoch, self.at_once // num_parts)
                parts = list(threads.map(lambda part, index=index: self._next(part, index), parts))
        found = [
            np.concatenate(values) for values in zip(*(part[1] for part in parts), strict=True)
        ]
        places = np.arange(len(scales) * len(self._folds)).reshape(len(scales), -1)
        return [[[values[place] for values in found] for place in row] for row in places]

    def _one_by_one(self, scale, fold):
        self._model.likelihood.set_scale(scale)
        assign(self._model, self._start)
        for epoch in range(self._epochs):
            self._learner(self._order(epoch, fold))
        return [variable.numpy() for variable in self._model.parameter_variables]

    def _order(self, epoch, fold):
        seeds = self._model.counters.seeds
        return fold[seeds.epoch_order(epoch, len(fold), self._shuffle)].astype(np.int32)

    def _started(self, scales):
        """Returns the weight of the scale and the first values of each run, scale by scale."""
        times = len(scales) * len(self._folds)
        scale = np.repeat([self._stored(one) for one in scales], len(self._folds), axis=0)
        return tf.constant(scale), [tf.constant(np.repeat(v[None], times, 0)) for v in self._start]

    def _stored(self, scale):
        """Returns the value of the weight that stands for a scale."""
        self._model.likelihood.set_scale(scale)
        return self._model.likelihood.scale_variable.numpy()

    def _index(self, epoch, num_scales):
        """Returns the rows of the batches of each run, as of `batch_index`, and their number."""
        found = [self._learner.index_of(self._order(epoch, fold)) for fold in self._folds]
        parts = zip(*found, strict=True)
        return [tf.constant(np.stack([*part] * num_scales), tf.int32) for part in parts]

    def _next(self, part, index):
        learner = self._learner
        values = self._program(*part, *index, learner.inputs, learner.targets, *learner.weights)
        return part[0], values


def assign(model: "TAGIModel", values: Sequence[Array]) -> None:
    """Assigns values to the `parameter_variables` of a model."""
    for variable, value in zip(model.parameter_variables, values, strict=True):
        variable.assign(value)


def _has_loop(model, inputs):
    """Returns whether a network loops, over the steps of a series for example."""
    specs = [tf.TensorSpec((None, *x.shape[1:]), x.dtype) for x in inputs]
    program = traced(model.network_moments).get_concrete_function(specs).graph.as_graph_def()
    parts = [program.node, *(function.node_def for function in program.library.function)]
    return any(node.op in ("While", "StatelessWhile") for part in parts for node in part)


def _epoch(
    model: "TAGIModel",
    scales: Tensor,
    values: list[Tensor],
    index: Tensor,
    counts: Tensor,
    num_batches: Tensor,
    inputs: list[Tensor],
    targets: Tensor,
    row_weights: Tensor | None = None,
) -> list[Tensor]:
    """Returns the values of K runs after an epoch of each, see `training.epoch`.

    Args:
        model: `TAGIModel`.
        scales: Tensor `[K, ...]`, values of the weight that stands for the scale of the noise.
        values: List of tensors `[K, ...]`, values of `parameter_variables`.
        index: int32 tensor `[K, T, B]`.
        counts: int32 tensor `[K, T]`.
        num_batches: int32 tensor `[K]`.
        inputs: List of tensors `[N, ...]`.
        targets: Tensor `[N, D]`.
        row_weights: Tensor `[N]`, or `None`.
    """
    variables = model.parameter_variables
    scale = model.likelihood.scale_variable

    def step_of_run(run):
        own_scale, own, rows, count, is_over = run
        with keras.StatelessScope([(scale, own_scale), *zip(variables, own, strict=True)]) as scope:
            training.observe_rows(model, inputs, targets, rows, count, row_weights)
            new = [scope.get_current_value(variable) for variable in variables]
        return [tf.where(is_over, a, b) for a, b in zip(own, new, strict=True)]

    def body(step, values):
        runs = scales, values, index[:, step], counts[:, step], step >= num_batches
        return step + 1, tf.vectorized_map(step_of_run, runs)

    last = tf.reduce_max(num_batches)
    return tf.while_loop(lambda step, _: step < last, body, (tf.constant(0), values))[1]
