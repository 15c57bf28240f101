"""Batches that come in as a stream: counted, and checked on their way into the model."""

import contextlib

import keras
import tensorflow as tf

from tfp_fnspace import data


def is_stream(x):
    """Whether `x` yields batches (a dataset, a generator) rather than being arrays."""
    kinds = (tf.data.Dataset, keras.utils.PyDataset, tf.distribute.DistributedDataset)
    return isinstance(x, kinds) or hasattr(x, "__next__") or _is_torch_loader(x)


def _is_torch_loader(x):
    return any(cls.__name__ == "DataLoader" for cls in type(x).__mro__)


_STREAM_RULES = {
    "inputs": "The inputs of a dataset must be finite",
    "targets": "The targets of a dataset must not be infinite",
    "labels": "The targets of a dataset must be the integer labels of the classes",
    "indices": "Indices in the inputs of a dataset must be whole numbers in the table",
}


def count_batches(stream):
    """The number of batches of a stream, `None` if it is endless or not known."""
    if isinstance(stream, tf.data.Dataset) and stream.cardinality() >= 0:
        return int(stream.cardinality())
    return stream.num_batches if isinstance(stream, keras.utils.PyDataset) else None


def finite_batches(stream):
    """The batches of a stream with a known number of them, one pass."""
    if isinstance(stream, keras.utils.PyDataset):
        return (stream[i] for i in range(stream.num_batches))
    return iter(stream)


def count_rows(stream):
    """The number of rows of a stream, by a pass over it; `None` where `count_batches` is."""
    if count_batches(stream) is None:
        return None
    return sum(len(tf.nest.flatten(batch)[0]) for batch in finite_batches(stream))


def batches_of(*arrays, size):
    """A dataset of the batches of arrays in their own dtypes.

    Args:
        *arrays: Arrays of N rows, or tuples of such.
        size: Rows in a batch; the last may have fewer.
    """
    num_rows = len(tf.nest.flatten(arrays)[0])
    starts = tf.data.Dataset.range(0, num_rows, size)
    whole = tf.data.Dataset.from_tensors(arrays).repeat()

    @tf.autograph.experimental.do_not_convert
    def batch(start, arrays):
        return tf.nest.map_structure(lambda array: array[start : start + size], arrays)

    return tf.data.Dataset.zip((starts, whole)).map(batch, num_parallel_calls=tf.data.AUTOTUNE)


class _CheckedPyDataset(keras.utils.PyDataset):
    """A `PyDataset` whose batches are checked."""

    def __init__(self, dataset, check):
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self.dataset, self.check = dataset, check

    def __getitem__(self, index):
        return self.check(self.dataset[index])

    @property
    def num_batches(self):
        return self.dataset.num_batches

    def on_epoch_end(self):
        self.dataset.on_epoch_end()


def checked_stream(stream, check, check_shapes, num_labels=None):
    """The same batches, each checked on its way into the model.

    Args:
        stream: `tf.data.Dataset`, `keras.utils.PyDataset` or generator of batches.
        check: Function of a batch of arrays that returns it or raises.
        check_shapes: For a `tf.data.Dataset`, of a batch of symbolic tensors: raises or returns
            pairs of a tensor of indices and their number. Values are checked in the graph of the
            dataset, see `clear_stream_errors`.
        num_labels: Number of classes if the targets are labels, else `None`.
    """
    if isinstance(stream, tf.data.Dataset):

        @tf.autograph.experimental.do_not_convert
        def checked(*batch):
            return _check_in_graph(batch, num_labels, check_shapes(batch))

        return stream.map(checked)
    if isinstance(stream, keras.utils.PyDataset):
        return _CheckedPyDataset(stream, check)
    if hasattr(stream, "__next__"):
        return (check(batch) for batch in stream)
    return stream


def _check_in_graph(batch, num_labels, indices):
    """Asserts what `_STREAM_RULES` says; `clear_stream_errors` reads it."""
    parts = {"inputs": tf.nest.flatten(batch[:1]), "targets": tf.nest.flatten(batch[1:2])}
    bad = {
        "inputs": lambda t: tf.logical_not(tf.math.is_finite(t)),
        "targets": tf.math.is_inf,
    }
    assertions = [
        tf.debugging.Assert(tf.logical_not(tf.reduce_any(bad[name](t))), [_STREAM_RULES[name]])
        for name, tensors in parts.items()
        for t in tensors
        if t.dtype.is_floating
    ]
    whole = [("indices", *pair) for pair in indices]
    if num_labels is not None:
        whole += [("labels", t, num_labels) for t in parts["targets"]]
    assertions += [
        tf.debugging.Assert(tf.reduce_all(data.is_label(t, count)), [_STREAM_RULES[name]])
        for name, t, count in whole
    ]
    with tf.control_dependencies(assertions):
        batch = tf.nest.map_structure(tf.identity, batch)
    return batch if len(batch) > 1 else batch[0]


@contextlib.contextmanager
def clear_stream_errors():
    """Turns the assertions of `checked_stream` into one clear `ValueError`."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        for rule in _STREAM_RULES.values():
            if rule in error.message:
                raise ValueError(f"{rule}. Received: a batch that breaks this") from None
        raise
