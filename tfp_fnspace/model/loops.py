"""Loops of `fit`: by batches, by the batches of a stream, or by whole epochs in one call.

Each runs Keras's own loop, with its callbacks and validation. None knows the class of a model.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.streams import CheckedStream
from tfp_fnspace.callbacks import wants_batches
from tfp_fnspace.typing import Array

if TYPE_CHECKING:
    from tfp_fnspace.model.base import FunctionSpaceModel


def may_run_whole_epochs(
    model: "FunctionSpaceModel",
    own_class: "type[FunctionSpaceModel]",
    callbacks: Iterable[keras.callbacks.Callback],
) -> bool:
    """Returns whether nothing needs control between the batches of an epoch.

    Args:
        model: `FunctionSpaceModel`.
        own_class: The class whose `train_step` an epoch repeats; a user may have overridden it.
        callbacks: The callbacks of the `fit`.
    """
    own_step = type(model).train_step is own_class.train_step
    one_device = model.distribute_strategy.num_replicas_in_sync == 1
    in_graph = not model.run_eagerly
    return own_step and one_device and in_graph and not any(map(wants_batches, callbacks))


def keras_fit_is_replaced() -> bool:
    """Returns whether something wraps Keras's own `fit`, as `mlflow.tensorflow.autolog` does.

    It may add callbacks to a list of them, of which the loops here know nothing.
    """
    return "fit" in vars(keras.Model)  # Keras has it in the class of its trainer


def by_batches(
    model: "FunctionSpaceModel",
    inputs: list[Array],
    targets: Array,
    batch_size: int,
    shuffle: bool,
    options: dict[str, Any],
    row_weights: Array | None = None,
) -> keras.callbacks.History:
    """Runs Keras's loop over batches of arrays, in the model's own order of rows.

    Args:
        model: `FunctionSpaceModel`.
        inputs: List of arrays `[N, ...]`.
        targets: Array `[N, D]`.
        batch_size: Rows in a batch; the last may have fewer.
        shuffle: Whether to permute the rows.
        options: Dict of options of `keras.Model.fit`.
        row_weights: Array `[N]`, or `None`.

    Returns:
        `keras.callbacks.History`.
    """
    num_rows, num_batches = len(targets), -(-len(targets) // batch_size)
    counters, pack = model.counters, model.checks.pack
    others = [targets] if row_weights is None else [targets, row_weights]

    def batches():
        order = counters.epoch_order(num_rows, shuffle)
        for start in range(0, num_rows, batch_size):
            rows = order[start : start + batch_size]
            yield pack([x[rows] for x in inputs], tuple), *(array[rows] for array in others)

    specs = [tf.TensorSpec((None, *a.shape[1:]), a.dtype) for a in [*inputs, *others]]
    signature = (pack(specs[: len(inputs)], tuple), *specs[len(inputs) :])
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_batches))
    model.make_train_function()
    train = model.train_function

    def train_rest(iterator):
        if counters.first_batch <= 0:
            return train(iterator)
        counters.first_batch -= model.steps_per_execution
        for _ in range(model.steps_per_execution):
            next(iterator, None)  # the epoch was stopped after this batch
        return {}

    model.train_function = train_rest
    try:
        return keras.Model.fit(model, dataset, shuffle=False, **options)
    finally:
        model.train_function = train


def by_stream(
    model: "FunctionSpaceModel",
    stream: CheckedStream,
    steps_per_epoch: int | None,
    options: dict[str, Any],
) -> keras.callbacks.History:
    """Runs Keras's loop over the batches of a `CheckedStream`."""
    x = stream.for_keras()
    options = {**options, "steps_per_epoch": steps_per_epoch}
    return keras.Model.fit(model, x, shuffle=False, **options)


def by_epochs(
    model: "FunctionSpaceModel",
    train_epoch: Callable[[], dict[str, Any]],
    inputs: list[Array],
    targets: Array,
    options: dict[str, Any],
    num_batches: int = 1,
) -> keras.callbacks.History:
    """Runs Keras's loop with one "batch" that is the whole epoch.

    Args:
        model: `FunctionSpaceModel`.
        train_epoch: Function that runs an epoch and returns its logs in the user's units.
        inputs: List of arrays.
        targets: Array.
        options: Dict of options of `keras.Model.fit`.
        num_batches: The number that the progress bar counts to.

    Returns:
        `keras.callbacks.History`.
    """
    callbacks = options["callbacks"]
    if not keras_fit_is_replaced():
        callbacks = keras.callbacks.CallbackList(
            callbacks,
            add_history=True,
            add_progbar=options["verbose"] != 0,
            verbose=options["verbose"],
            epochs=options["epochs"],
            steps=num_batches,
            model=model,
        )
    previous = model.train_function

    model.train_function = lambda _: train_epoch()
    try:
        only = _only_batch(model, inputs, targets)
        options = {**options, "callbacks": callbacks, "steps_per_epoch": 1}
        return keras.Model.fit(model, only, shuffle=False, **options)
    finally:
        model.train_function = previous


def _only_batch(
    model: "FunctionSpaceModel", inputs: list[Array], targets: Array
) -> tf.data.Dataset:
    """Returns a dataset for `fit`, which the loop asks for nothing."""
    if keras_fit_is_replaced():  # what replaces it may read all of the dataset
        return tf.data.Dataset.from_tensors((model.checks.pack(inputs, tuple), targets))
    # Keras may call the model on a row to check whether it is built. The dataset is endless: Keras
    # would make a new iterator of a finite one in each epoch.
    row = (model.checks.pack([a[:1] for a in inputs], tuple), targets[:1])
    return tf.data.Dataset.from_tensors(row).repeat()
