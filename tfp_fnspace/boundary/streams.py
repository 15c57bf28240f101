"""Streams of batches, each of which is checked once on its way into the model."""

import contextlib
import itertools
import multiprocessing
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.typing import Array

#: A list of arrays of inputs, an array of targets, and perhaps an array of the weights of the rows.
Batch: TypeAlias = tuple[list[Array], Array] | tuple[list[Array], Array, Array]


def is_stream(x: Any) -> bool:
    """Returns whether `x` yields batches (a dataset or a generator) rather than being arrays."""
    kinds = (tf.data.Dataset, keras.utils.PyDataset, tf.distribute.DistributedDataset)
    return isinstance(x, kinds) or hasattr(x, "__next__") or _is_torch_loader(x)


def _is_torch_loader(x: Any) -> bool:
    return any(cls.__name__ == "DataLoader" for cls in type(x).__mro__)


def count_batches(stream: Any) -> int | None:
    """Returns the number of batches of a stream, or `None` if it is endless or unknown."""
    if isinstance(stream, tf.data.Dataset):
        return int(stream.cardinality()) if stream.cardinality() >= 0 else None
    if isinstance(stream, keras.utils.PyDataset):
        return _num_batches(stream)
    try:
        return len(stream)
    except TypeError:
        return None


def _num_batches(dataset: keras.utils.PyDataset) -> int | None:
    try:
        count = dataset.num_batches
    except (NotImplementedError, TypeError) as error:
        text = str(error).strip().splitlines()[:1]
        raise TypeError(
            "A `PyDataset` must have `__len__`, the number of its batches as an integer, or "
            f"`num_batches`, which may be None. Received: x={type(dataset).__name__}, "
            f"{' '.join(text)}"
        ) from error
    if count is not None:
        arguments.check_count("num_batches", count, 0)
    return count


def is_endless(stream: Any) -> bool:
    """Returns whether a stream declares that it has no end."""
    if isinstance(stream, tf.data.Dataset):
        return int(stream.cardinality()) == tf.data.INFINITE_CARDINALITY
    return isinstance(stream, keras.utils.PyDataset) and _num_batches(stream) is None


def one_pass(stream: Any) -> Iterator[Any]:
    """Returns the batches of a stream as they are, in one pass."""
    if isinstance(stream, keras.utils.PyDataset):
        count = _num_batches(stream)
        numbers = itertools.count() if count is None else range(count)
        return (stream[i] for i in numbers)
    return iter(stream)


def all_parts(stream: Any, with_targets: bool) -> Iterator[tuple[Any, ...]]:
    """Returns `parts_of` of all batches of a stream, in one pass."""
    if isinstance(stream, tf.data.Dataset):
        check_spec(stream, with_targets)
    return (parts_of(batch, with_targets) for batch in one_pass(stream))


def first_batches(
    stream: Any, num_rows: int, with_targets: bool = True
) -> tuple[list[tuple[Any, ...]], Any]:
    """Returns the first batches of a stream, and a stream that still yields them.

    Args:
        stream: Dataset or generator of batches.
        num_rows: The batches have at least this many rows together, or are all batches.
        with_targets: See `parts_of`.

    Returns:
        List of the parts of the batches, and the stream.

    Raises:
        ValueError: If there are no batches, or they have unexpected parts.
    """
    batches, taken, rows = all_parts(stream, with_targets), [], 0
    while rows < num_rows and (parts := next(batches, None)) is not None:
        taken.append(parts)
        flat = tf.nest.flatten(parts)
        rows += len(flat[0]) if flat and hasattr(flat[0], "__len__") else 1
    if not taken:
        refuse_empty(stream)
    return taken, itertools.chain(taken, stream) if hasattr(stream, "__next__") else stream


def refuse_empty(stream: Any) -> NoReturn:
    """Raises the error that a stream has no batches."""
    raise ValueError(f"A dataset must have at least one batch. Received: x={stream!r}")


def parts_of(batch: Any, with_targets: bool) -> tuple[Any, ...]:
    """Returns the inputs, targets and perhaps weights of a batch of a stream, or only the inputs.

    Args:
        batch: An element of a stream, or the element specs of a `tf.data.Dataset`.
        with_targets: Whether targets are required; if not, they are dropped if present.

    Returns:
        Tuple of two or three parts, or of one part without targets.

    Raises:
        ValueError: If targets are missing, or there are more than three parts.
    """
    # A list of lists may be rows; PyTorch's loaders yield lists of tensors.
    is_list = isinstance(batch, list) and all(hasattr(part, "shape") for part in batch)
    parts = tuple(batch) if isinstance(batch, tuple) or is_list else (batch,)
    if len(parts) in (2, 3) or (len(parts) == 1 and not with_targets):
        return parts if with_targets else parts[:1]
    rule = "a pair (x, y) of inputs and targets, or (x, y, sample_weight)"
    if not with_targets:
        rule = "inputs x, a pair (x, y), or (x, y, sample_weight)"
    given = f"{len(parts)} parts"
    if len(parts) == 1:
        given = f"one part of type {type(parts[0]).__name__.removesuffix('Spec')}"
    raise ValueError(f"A batch of a dataset must be {rule}. Received: {given}")


_REMEDIES = {
    tf.RaggedTensorSpec: ": `to_tensor` pads what is ragged",
    tf.SparseTensorSpec: ": `tf.sparse.to_dense` makes dense what is sparse",
    tf.data.DatasetSpec: ": `dataset.flat_map(lambda w: w.batch(n))` makes batches of windows",
}


def check_spec(dataset: tf.data.Dataset, with_targets: bool) -> None:
    """Refuses a `tf.data.Dataset` that yields anything but batches of real numbers.

    Args:
        dataset: `tf.data.Dataset`.
        with_targets: See `parts_of`.

    Raises:
        TypeError: If a part is not a tensor of real numbers, or targets are several tensors.
        ValueError: If the parts are not inputs, targets and weights, or have no axis of rows.
    """
    names = ("x", "y", "sample_weight")
    for name, part in zip(names, parts_of(dataset.element_spec, with_targets), strict=False):
        if name != "x" and not isinstance(part, tf.TypeSpec):
            what = "[N, D], whose columns are the outputs" if name == "y" else "[N]"
            raise TypeError(
                f"`{name}` in a dataset must be one tensor {what}. "
                f"Received: {name} of type {type(part).__name__} of {len(part)} parts"
            )
        for spec in tf.nest.flatten(part):
            kind = spec.dtype if isinstance(spec, tf.TensorSpec) else None
            if kind is None or not (kind.is_floating or kind.is_integer or kind.is_bool):
                remedy = next((text for k, text in _REMEDIES.items() if isinstance(spec, k)), "")
                if kind == tf.string:
                    remedy = ": `keras.layers.StringLookup` makes integers of words"
                raise TypeError(
                    f"`{name}` in a dataset must be dense tensors of real numbers. "
                    f"Received: {name} of {spec}{remedy}"
                )
            if spec.shape.rank == 0:
                raise ValueError(
                    "A dataset must yield batches, whose first axis is rows: `dataset.batch(32)` "
                    f"makes them. Received: {name} of shape ()"
                )


def batches_of(*arrays: Any, size: int) -> tf.data.Dataset:
    """Returns a dataset of the batches of arrays in their own dtypes.

    Args:
        *arrays: Arrays of N rows, or tuples of them.
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
    """A `PyDataset` whose batches are checked by the worker that makes them."""

    def __init__(
        self, dataset: keras.utils.PyDataset, read: Callable[[keras.utils.PyDataset, int], Any]
    ):
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self.dataset, self.read = dataset, read

    def __getitem__(self, index: int) -> Any:
        return self.read(self.dataset, index)

    @property
    def num_batches(self) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.dataset.num_batches

    def on_epoch_begin(self) -> None:
        self.dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.dataset.on_epoch_end()


class CheckedStream:
    """The batches of a stream in a model's shapes and dtypes, each checked when it is read.

    Args:
        stream: `tf.data.Dataset`, `keras.utils.PyDataset`, generator or loader of batches.
        check: Function of the inputs and, if targets are required, the targets and the weights of a
            batch (arrays, data frames or other data). It returns arrays as `signature` says, or
            raises a `TypeError` or `ValueError`. It may run in other threads and processes.
        check_shapes: Function of tensors of the same parts that raises if their static shapes are
            wrong.
        signature: Tuple of the specs of the inputs and, if targets are required, of the targets and
            of the weights, which a batch may lack.
        adds_weights: Whether `check` returns weights for batches without them.

    Raises:
        TypeError: If a `tf.data.Dataset` declares elements that are not numbers.
        ValueError: If the stream declares that it is empty, or that its batches have unexpected
            parts or shapes.
    """

    def __init__(
        self,
        stream: Any,
        check: Callable[..., Any],
        check_shapes: Callable[..., None],
        signature: tuple[Any, ...],
        adds_weights: bool = False,
    ):
        self.given, self._check, self._signature = stream, check, signature
        self._adds_weights = adds_weights
        self._with_targets = len(signature) > 1
        processes = getattr(stream, "use_multiprocessing", False)
        self._errors = multiprocessing.SimpleQueue() if processes else queue.SimpleQueue()
        self._is_empty = True  # until a batch is read
        if self.count_batches() == 0:
            refuse_empty(stream)
        if isinstance(stream, tf.data.Dataset):
            check_spec(stream, self._with_targets)
            self._stream = self._checked_dataset(stream, check_shapes)
        elif isinstance(stream, keras.utils.PyDataset):
            self._stream = _CheckedPyDataset(stream, self._read_item)
        elif isinstance(stream, tf.distribute.DistributedDataset):
            parts = parts_of(stream.element_spec, self._with_targets)
            self._refuse_weights(self._signature_of(parts))  # they could not be checked
            self._stream = stream
        elif hasattr(stream, "__next__"):
            self._stream = self._read(stream)
        else:
            self._stream = self._in_graph(lambda: self._read(stream, weighted=False))
            if self.count_batches() is not None:
                counted = tf.data.experimental.assert_cardinality(self.count_batches())
                self._stream = self._stream.apply(counted)

    # Reading ----------------------------------------------------------------------------------

    def _checked(self, number: int, batch: Any) -> Any:
        parts = parts_of(batch, self._with_targets)
        self._is_empty = False
        try:
            return self._check(*parts)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{error}, in batch {number}") from None

    @contextlib.contextmanager
    def _keeping_errors(self) -> Iterator[None]:
        """Stores errors of its block, since TensorFlow replaces them by its own errors."""
        try:
            yield
        except Exception as error:
            self._errors.put(error)
            raise

    def _read(self, batches: Iterable[Any], weighted: bool = True) -> Iterator[Any]:
        with self._keeping_errors():
            for number, batch in enumerate(batches):
                if not weighted:
                    self._refuse_weights(parts_of(batch, self._with_targets))
                yield self._checked(number, batch)
            self._refuse_end()

    def _refuse_weights(self, parts: Sequence[Any]) -> None:
        """Refuses weights in streams whose batches must have a known form before they are read."""
        if len(parts) == 3:
            raise ValueError(
                "Weights need arrays, a `tf.data.Dataset`, a `PyDataset` or a generator. "
                f"Received: x={type(self.given).__name__} with weights of rows or classes"
            )

    def _read_item(self, dataset: keras.utils.PyDataset, number: int) -> Any:
        with self._keeping_errors():
            return self._checked(number, dataset[number])

    def _refuse_end(self) -> None:
        if self._is_empty:
            refuse_empty(self.given)

    def _signature_of(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        return self._signature[: max(len(parts), 3 if self._adds_weights else 0)]

    def _in_graph(
        self, generator: Callable[[], Iterable[Any]], parts: Sequence[Any] = ("x", "y")
    ) -> tf.data.Dataset:
        signature = self._signature_of(parts)
        return tf.data.Dataset.from_generator(generator, output_signature=signature)

    def _checked_dataset(
        self, dataset: tf.data.Dataset, check_shapes: Callable[..., None]
    ) -> tf.data.Dataset:
        given_parts = parts_of(dataset.element_spec, self._with_targets)
        signature = self._signature_of(given_parts)
        specs = tf.nest.flatten(signature)

        @tf.autograph.experimental.do_not_convert
        def step(number, batch):
            parts = parts_of(batch, self._with_targets)
            check_shapes(*parts)

            def read(number, *arrays):
                with self._keeping_errors():
                    parts_read = tf.nest.pack_sequence_as(parts, arrays)
                    return tf.nest.flatten(self._checked(number, parts_read))

            given = tf.nest.flatten(parts)
            tensors = tf.numpy_function(read, [number, *given], [spec.dtype for spec in specs])
            rows = given[0].shape[:1] if given[0].shape.rank else [None]
            for tensor, spec in zip(tensors, specs, strict=True):
                tensor.set_shape([*rows, *spec.shape[1:]])
            return number + 1, tf.nest.pack_sequence_as(signature, tensors)

        checked = dataset.scan(np.int64(0), step)
        if self.count_batches() is not None or is_endless(dataset):
            return checked
        return checked.concatenate(self._in_graph(lambda: self._read(()), given_parts))

    # For models -----------------------------------------------------------------------

    def count_batches(self) -> int | None:
        """Returns the number of batches, or `None` if it is endless or unknown."""
        return count_batches(self.given)

    def batches(self) -> Iterator[Batch]:
        """Returns the batches in one pass, see `Batch`."""
        return map(_as_arrays, one_pass(self._stream))

    def count_rows(self) -> tuple[int | None, float]:
        """Returns the number of rows and their mean weight, from one pass.

        The number is `None`, and the weight 1, if `count_batches` returns `None`.
        """
        if self.count_batches() is None:
            return None, 1.0
        num_rows, total = 0, 0.0
        for _, targets, *weights in self.batches():
            num_rows += len(targets)
            total += float(np.sum(weights[0])) if weights else len(targets)
        return num_rows, total / num_rows

    def first_batches(self, num_rows: int) -> list[Batch]:
        """Returns the first batches with `num_rows` rows, which the stream yields again."""
        taken, self._stream = first_batches(self._stream, num_rows)
        return list(map(_as_arrays, taken))

    def for_keras(self) -> Any:
        """Returns a stream for Keras."""
        if hasattr(self._stream, "__next__"):  # Keras would read a generator's first batches twice
            first, rest = first_batches(self._stream, 1, self._with_targets)
            return self._in_graph(lambda: rest, first[0])
        return self._stream

    def raise_own_error(self) -> None:
        """Raises the first stored error, if there is one."""
        if not self._errors.empty():
            raise self._errors.get() from None


def _as_arrays(batch: Any) -> Batch:
    inputs, *others = tf.nest.map_structure(np.asarray, tuple(batch))
    return tf.nest.flatten(inputs), *others


#: For TensorFlow's errors: how the useful part begins, and the rule that was broken.
_RULES = {
    "Input dataset was expected": "A dataset must have as many batches as its cardinality says",
    "`generator` yielded an element": (
        "Batches must have the shapes of a dataset's `output_signature`, or for a `PyDataset` "
        "those of its first two batches, which may differ"
    ),
}


@contextlib.contextmanager
def own_errors(*streams: Any) -> Iterator[None]:
    """Restores the type and the text of errors in streams that TensorFlow has replaced.

    Args:
        *streams: `CheckedStream`s that are read in the block; other objects are ignored.
    """
    try:
        yield
    except tf.errors.OpError as error:
        for stream in streams:
            if isinstance(stream, CheckedStream):
                stream.raise_own_error()
        for start, rule in _RULES.items():
            if start in error.message:
                text = error.message[error.message.index(start) :].splitlines()[0]
                received = text.split(". [")[0].rstrip(".")
                raise ValueError(f"{rule}. Received: {received}") from None
        raise
