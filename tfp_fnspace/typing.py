"""Types that the parts of the library pass to each other."""

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import tensorflow as tf

#: A tensor, in a graph or eager.
Tensor: TypeAlias = tf.Tensor

#: A NumPy array.
Array: TypeAlias = np.ndarray[Any, Any]

#: Numbers that a user hands over: an array, a tensor, a data frame, or nested lists.
ArrayLike: TypeAlias = Any

#: Rows that a user hands over: an `ArrayLike`, a list or dict of them for several inputs, or a
#: stream, which is a dataset, a `keras.utils.PyDataset`, or a generator of batches.
Rows: TypeAlias = Any

#: Shape of a tensor; `None` is a size that is not known yet.
Shape: TypeAlias = Sequence[int | None]

#: A functional Keras model: its `inputs`, `outputs` and own attributes are known to no checker.
Network: TypeAlias = Any

#: What `get_config` returns.
Config: TypeAlias = dict[str, Any]

#: A distribution of TensorFlow Probability, which has no types.
Distribution: TypeAlias = Any

#: A stateless seed: two int32 numbers, as TensorFlow's stateless random ops take them, or a tensor
#: of them.
Seed: TypeAlias = Any


class GaussianMoments(NamedTuple):
    """Mean and variance of independent Gaussian variables.

    Attributes:
        mean: Tensor `[..., D]`.
        variance: Tensor of the same shape, non-negative; `None` means exactly known values.
    """

    mean: tf.Tensor
    variance: tf.Tensor | None

    @property
    def shape(self) -> NoReturn:
        """Raises an error: Keras's own layers and operations read it, but are not for moments."""
        raise AttributeError(
            "Moments, a mean and a variance, pass through layers of `fns.tagi` only, not through "
            "Keras's own: take `fns.tagi.Dense`, `Add`, `Concatenate` and others. "
            f"Received: mean={self.mean}"
        )


class GramBlocks(NamedTuple):
    """Needed blocks of the Gram (or kernel) matrix of P inducing and N data points.

    Attributes:
        ii: Tensor `[..., P, P]`, between inducing points.
        it: Tensor `[..., P, N]`, inducing points (rows) to data points.
        tt: Tensor `[..., N]`, each data point with itself; `[..., N, N]` between all data points if
            their joint distribution is needed.
    """

    ii: tf.Tensor
    it: tf.Tensor
    tt: tf.Tensor
