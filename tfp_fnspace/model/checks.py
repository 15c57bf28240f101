"""What a user hands to a model that knows its shapes, checked once, each with one clear error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments, arrays, columns, data, streams, weights
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.model.units import Units
from tfp_fnspace.typing import Array, ArrayLike, Rows, Shape, Tensor

#: Rows in a batch of `predict` and `evaluate`; the results do not depend on this number.
PREDICT_BATCH_SIZE = 1024

#: Rows in a batch of `fit`, the same as in Keras.
FIT_BATCH_SIZE = 32


@dataclass(frozen=True)
class Checks:
    """Checks of inputs, targets and streams, which come back as arrays that a model takes.

    Attributes:
        units: The units of the model.
        likelihood: Its observation model.
        num_outputs: Its number of outputs.
        standardize: Whether it standardises.
        missing_targets: Whether NaN in the targets stands for a missing value.
        index_inputs: As for `Units`.
        batch_rows: The number of rows of every batch, if a layer keeps a state for each row.
        weights_allowed: As in `FunctionSpaceModel`.
    """

    units: Units
    likelihood: Likelihood
    num_outputs: int
    standardize: bool
    missing_targets: bool = False
    index_inputs: Sequence[int | None] | None = None
    batch_rows: int | None = None
    weights_allowed: str = "none"

    @property
    def input_tensors(self) -> list[keras.KerasTensor]:
        return self.units.input_tensors

    @property
    def target_dtype(self) -> str:
        """Dtype of targets in the user's units."""
        return self.units.variable_dtype if self.likelihood.is_classifier else "float64"

    @property
    def num_labels(self) -> int | None:
        """Number of classes, `None` for regression."""
        return self.likelihood.num_labels(self.num_outputs)

    def as_columns(self, y: ArrayLike) -> Tensor:
        """Returns the targets of a batch as a tensor `[N, D]`, or `[N, 1]` for labels."""
        return tf.cast(data.check_columns(y, self.units.num_target_columns), self.target_dtype)

    # Arrays -----------------------------------------------------------------------------------

    def inputs(self, x: Rows, name: str = "x", first: bool = False) -> list[Array]:
        """Checks inputs.

        Args:
            x: What the user gave.
            name: Name of the argument, for messages.
            first: As for `data`.

        Returns:
            List of arrays.

        Raises:
            TypeError: If the values are not numbers.
            ValueError: If shapes, columns or values are bad.
        """
        scalers = self.units.input_scalers
        if not first:
            items = data.input_items(x, self.input_tensors, name)
            for item, scaler in zip(items, scalers, strict=True):
                columns.check_column_names(item, scaler.column_names, name)
        inputs = data.check_inputs(x, self.input_tensors, name, self.units.in_users_units)
        self._check_kinds(inputs)
        if not first:
            for array, scaler in zip(inputs, scalers, strict=True):
                scaler.check_near(array, name)
        return inputs

    def _check_kinds(self, inputs: list[Array]) -> None:
        """Checks variances, indices and the rows of stateful layers."""
        for array, role in zip(inputs, self.units.roles, strict=True):
            if role is not None and np.any(np.less(array, 0.0)):
                raise ValueError(
                    "An input of variances must not be negative. "
                    f"Received: a smallest value of {np.min(array)}"
                )
        for array, rows in zip(inputs, self.index_inputs or [None] * len(inputs), strict=True):
            if rows is not None:
                data.check_labels(array, rows, name="x", what="indices")
        if self.batch_rows is not None and len(inputs[0]) % self.batch_rows:
            raise ValueError(
                "With a stateful layer the rows must be whole batches of the model's inputs. "
                f"Received: {len(inputs[0])} rows, batches of {self.batch_rows}"
            )

    def data(
        self, x: Rows, y: ArrayLike, prefix: str = "", first: bool = False, learnt: bool = False
    ) -> tuple[list[Array], Array]:
        """Checks inputs and targets.

        Args:
            x: Inputs.
            y: Targets.
            prefix: Prefix of the names in messages.
            first: Whether these are the model's first data. Their columns are remembered, and those
                of all later data are compared with them.
            learnt: Whether the model learns from these data. If no earlier data had column names,
                theirs are remembered.

        Returns:
            List of arrays of inputs, and an array of targets `[N, D]`.

        Raises:
            TypeError: If the values are not numbers.
            ValueError: If shapes, columns or values are bad.
        """
        inputs = self.inputs(x, f"{prefix}x", first)
        scaler, name = self.units.target_scaler, f"{prefix}y"
        if not first:
            columns.check_column_names(y, scaler.column_names, name, "target_names")
        targets = data.check_targets(
            y,
            len(inputs[0]),
            self.units.num_target_columns,
            self.missing_targets,
            self.target_dtype,
            name=name,
            num_labels=self.num_labels,
            largest=data.LARGEST_VALUE if self.standardize else data.LARGEST_SCALED,
            are_limits=self.likelihood.targets_are_limits,
        )
        self.likelihood.check_targets(targets, name)
        if not first:
            scaler.check_near(targets, name)
        if first or learnt:
            items = [*data.input_items(x, self.input_tensors), y]
            for each, item in zip(self.units.scalers, items, strict=True):
                if first or each.column_names is None:
                    each.column_names = columns.names_to_keep(item)
        return inputs, targets

    def weights(
        self,
        sample_weight: ArrayLike | None,
        num_rows: int,
        prefix: str = "",
        learnt: bool = False,
    ) -> Array | None:
        """Checks the weights of rows, see `boundary.weights`; the model may learn from them."""
        if sample_weight is None:
            return None
        whole = learnt and self.weights_allowed == "whole"
        return weights.checked_weights(sample_weight, num_rows, f"{prefix}sample_weight", whole)

    def with_class_weight(
        self, row_weights: Array | None, class_weight: Any, targets: Array
    ) -> Array | None:
        """Multiplies weights of rows by those of their classes; returns `None` if both are `None`.

        Raises:
            ValueError: If `class_weight` is bad, or the targets are not labels of one column.
        """
        if class_weight is None:
            return row_weights
        if self.num_labels is None or self.units.num_target_columns != 1:
            raise ValueError(
                "`class_weight` is for classifiers with one column of labels. Received: "
                f"class_weight={class_weight!r} with {self.units.num_target_columns} columns and "
                f"the likelihood {type(self.likelihood).__name__}"
            )
        of_classes = weights.weights_of_classes(class_weight, targets, self.num_labels)
        product = of_classes if row_weights is None else row_weights * of_classes
        return self.weights(product, len(targets), "class_weight times ", learnt=True)

    def validation(self, validation_data: Any) -> tuple[list[Array], Array, Array | None]:
        """Checks arrays to validate on; returns what `data` and `weights` do."""
        is_tuple = isinstance(validation_data, tuple | list)
        if not is_tuple or len(validation_data) not in (2, 3):
            number = f"{len(validation_data)} items" if is_tuple else type(validation_data).__name__
            raise ValueError(
                "`validation_data` must be a pair (x, y), or (x, y, sample_weight), or a dataset. "
                f"Received: {number}"
            )
        x, y, *given = validation_data
        inputs, targets = self.data(x, y, prefix="validation ")
        row_weights = self.weights(given[0] if given else None, len(targets), "validation ")
        return inputs, targets, row_weights

    # Batches ----------------------------------------------------------------------------------

    def batch_size(self, batch_size: int) -> None:
        """Checks the rows of a batch, which stateful layers prescribe."""
        if self.batch_rows not in (None, batch_size):
            raise ValueError(
                "With a stateful layer `batch_size` must be that of the model's inputs, "
                f"{self.batch_rows}. Received: batch_size={batch_size}"
            )

    def pack(self, inputs: list[Any], container: Callable[[list[Any]], Any] = list) -> Any:
        """Returns the inputs as the model takes them: one array, or a list of several."""
        return inputs[0] if len(inputs) == 1 else container(inputs)

    def feed(
        self,
        inputs: list[Array],
        targets: Array | None,
        batch_size: int,
        row_weights: Array | None = None,
    ) -> tf.data.Dataset:
        """Returns checked arrays as Keras takes them: a dataset of batches.

        Keras would convert arrays to float32 before they are standardised.
        """
        self.batch_size(batch_size)
        others = [array for array in (targets, row_weights) if array is not None]
        return streams.batches_of(self.pack(inputs, tuple), *others, size=batch_size)

    def stream(
        self,
        stream: Rows,
        with_targets: bool = True,
        first: bool = False,
        learnt: bool = False,
        class_weight: Any = None,
    ) -> streams.CheckedStream:
        """Returns the batches of a stream, which are checked as arrays are.

        Args:
            stream: An object for which `streams.is_stream` is true.
            with_targets: Whether the targets are wanted, and the weights if there are any.
            first: Whether the first batch defines the columns of the model, see `data`.
            learnt: Whether the batches are learnt from, see `data`.
            class_weight: As for `fit`.

        Returns:
            `streams.CheckedStream`.
        """
        counts = first or learnt

        def check(x, *others):
            nonlocal first
            if not others:
                inputs = self.inputs(x, "batch x")
                self.batch_size(len(inputs[0]))
                return (self.pack(inputs, tuple),)
            y, *given = others
            refuse_weights_in(given)
            inputs, y = self.data(x, y, prefix="batch ", first=first, learnt=learnt)
            self.batch_size(len(y))
            row_weights = self.weights(given[0] if given else None, len(y), "batch ", learnt)
            row_weights = self.with_class_weight(row_weights, class_weight, y)
            first = False
            return (self.pack(inputs, tuple), y, *([] if row_weights is None else [row_weights]))

        def check_shapes(x, *others):
            data.check_structure(x, self.input_tensors)
            for y in others[:1]:
                data.check_columns(y, self.units.num_target_columns, self.num_labels)
            refuse_weights_in(others[1:])

        def refuse_weights_in(given):
            if given and counts and self.weights_allowed == "none":
                raise ValueError(
                    "A batch of a dataset must be a pair (x, y): this model does not learn from "
                    "weights of rows. Received: 3 parts"
                )

        inputs = [
            tf.TensorSpec((None, *tensor.shape[1:]), "float64" if in_units else tensor.dtype)
            for tensor, in_units in zip(self.input_tensors, self.units.in_users_units, strict=True)
        ]
        targets = tf.TensorSpec((None, self.units.num_target_columns), self.target_dtype)
        signature = self.pack(inputs, tuple), targets, tf.TensorSpec((None,), "float64")
        signature = signature if with_targets else signature[:1]
        adds_weights = class_weight is not None
        return streams.CheckedStream(stream, check, check_shapes, signature, adds_weights)


def first_data(
    x: ArrayLike, y: ArrayLike, likelihood: Likelihood, dtype: str
) -> tuple[Array, Array]:
    """Checks the first data of a model that does not know its shapes yet.

    Args:
        x: Inputs.
        y: Targets.
        likelihood: Observation model.
        dtype: Dtype of the inputs of the model.

    Returns:
        Arrays `[N, ...]` and `[N, D]` of any widths.

    Raises:
        TypeError: If the values are not numbers.
        ValueError: If shapes or values are bad.
    """
    targets = arrays.as_array(y, "y", labels=likelihood.is_classifier)
    x = _only_input(x, targets.shape[:1])
    array = arrays.as_array(x, "x")
    tensor = input_tensor(array.shape[1:] if array.ndim > 1 else (1,), dtype)
    (inputs,) = data.check_inputs(x, [tensor], standardized=[True])
    has_rows = targets.ndim == 2 and len(targets) == len(inputs)
    num_columns = targets.shape[1] if has_rows else 1
    if not num_columns:
        raise ValueError(f"`y` must have at least one column. Received: y of shape {targets.shape}")
    num_labels = None
    if likelihood.is_classifier and likelihood.num_target_columns(num_columns) < num_columns:
        num_columns, num_labels = 1, num_columns  # one-hot labels, or bad ones
    options = {"dtype": "float64", "num_labels": num_labels}
    targets = data.check_targets(y, len(inputs), num_columns, False, **options)
    likelihood.check_targets(targets)
    return inputs, targets


def _only_input(x: Rows, num_rows: tuple[int, ...]) -> ArrayLike:
    """Returns the array in a list or dict of one input; any other x as it is.

    A list of one nested list may also be one row. It is a list of inputs if the rows agree.
    """
    if isinstance(x, dict):
        (x,) = data.input_items(x, [input_tensor((1,), "float64")])
    elif isinstance(x, list | tuple) and len(x) == 1:
        shape = data.shape_of(x[0])
        if shape is not None and len(shape) > 1 and shape[:1] == num_rows:
            (x,) = x
    return x


def input_tensor(shape: Shape, dtype: str) -> keras.KerasTensor:
    """Returns the symbolic input for rows of a shape."""
    return keras.KerasTensor((None, *shape), dtype=dtype, name="x")


# Arguments of several verbs ---------------------------------------------------------------------


def batch_rows(batch_size: int | None, num_rows: int, default: int) -> int:
    """Returns the rows in a batch of arrays: `default` for `None`, never more than all rows."""
    if batch_size is None:
        return default
    return min(arguments.checked_count("batch_size", batch_size), num_rows)


def check_no_targets(
    y: ArrayLike | None, validation_split: float = 0.0, sample_weight: ArrayLike | None = None
) -> None:
    """Refuses arguments for arrays beside a dataset."""
    if sample_weight is not None:
        raise ValueError(
            "A dataset yields (x, y, sample_weight) batches itself; `sample_weight` is for arrays. "
            f"Received: sample_weight of type {type(sample_weight).__name__}"
        )
    if y is not None or validation_split:
        raise ValueError(
            "A dataset yields (x, y) batches itself; `y` and `validation_split` are for "
            f"arrays. Received: y={type(y).__name__}, validation_split={validation_split!r}"
        )


def check_passes(stream: Rows, name: str, steps: int | None, num_passes: int = 1) -> None:
    """Refuses passes over a stream that would not end, or that would find no data left."""
    if steps is not None:
        return
    if streams.is_endless(stream):
        raise ValueError(f"A dataset without an end needs `{name}`. Received: {name}=None")
    if num_passes > 1 and hasattr(stream, "__next__"):
        raise ValueError(
            f"A generator has one pass, so `{name}` must say how many of its batches are an "
            f"epoch's. Received: {name}=None with {num_passes} epochs"
        )


def check_strategy(stream: Rows, strategy: tf.distribute.Strategy) -> None:
    """Refuses a generator under a strategy."""
    if hasattr(stream, "__next__") and strategy is not tf.distribute.get_strategy():
        raise ValueError(
            "A generator cannot be shared among the devices of a strategy: "
            "`tf.data.Dataset.from_generator` makes a dataset of its function. "
            f"Received: a generator and {type(strategy).__name__}"
        )


def refuse_steps(steps_per_epoch: int | None) -> None:
    """Refuses an argument for datasets beside arrays."""
    if steps_per_epoch is not None:
        raise ValueError(
            "`steps_per_epoch` is for datasets; an epoch of arrays is all rows. Received: "
            f"steps_per_epoch={steps_per_epoch!r}"
        )


def refuse_weights(owner: Any, **given: Any) -> None:
    """Refuses weights of rows and classes for a model that does not learn from them."""
    if owner.weights_allowed != "none":
        return
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"`{name}` is not supported by {type(owner).__name__}. "
                f"Received: {name} of type {type(value).__name__}"
            )
