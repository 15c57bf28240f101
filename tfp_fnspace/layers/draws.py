"""The state that the layers of a network share while functions are drawn from it."""

import contextlib
import threading
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfp_fnspace.math import linalg, random, replicas
from tfp_fnspace.math.random import fast_normal
from tfp_fnspace.typing import Seed, Tensor

#: How the noise of the data points is drawn. `"independent"`: separately for each point, for
#: training. `"shared"`: one draw for all points, so that the prediction at a point does not depend
#: on the others. `"joint"`: from the joint distribution of all points, for coherent functions.
NOISES = ("independent", "shared", "joint")

#: How many calls of `FunctionDraws.point_normal` share a tensor.
_MORE_COLUMNS = 8

_state = threading.local()


class FunctionDraws:
    """Number of draws, seeds, and the divergences that the layers report.

    Args:
        num_samples: S, the number of functions.
        seed: int32 tensor `[2]`.
        noise: One of `NOISES`.
        prior: Rule for the weights of layers that were given no prior, see `VariationalLayer`.

    Attributes:
        divergences: List of scalars, the KL divergences of the layers so far.
        num_jittered: int32 scalar, the number of matrices so far that needed more than the fixed
            jitter.
    """

    def __init__(
        self,
        num_samples: int = 1,
        seed: Seed = (0, 0),
        noise: str = "independent",
        prior: str = "fan_in",
    ):
        self.num_samples = num_samples
        self.noise = noise
        self.prior = prior
        self.divergences = []
        self.num_jittered = tf.zeros([], tf.int32)
        (self._seed,) = random.split(random.as_seed(seed), 1)
        self._count = 0
        self._columns = {}

    def next_seed(self) -> Tensor:
        """Returns a different seed for each call, in the order of the calls."""
        self._count += 1
        return self._seed + tf.constant([0, self._count])

    def add_divergence(self, values: Tensor) -> None:
        """Adds the mean of KL divergences, a tensor of any shape."""
        self.divergences.append(tf.reduce_mean(values))

    def kl(self, dtype: str | tf.DType) -> Tensor:
        """Returns the sum of the divergences, a scalar."""
        return tf.add_n(self.divergences) if self.divergences else tf.zeros([], dtype)

    def cholesky(self, matrix: Tensor) -> Tensor:
        """Returns the factor of `linalg.cholesky`, and counts the matrices that needed jitter."""
        factor, jitter = linalg.cholesky(matrix)
        self.num_jittered += tf.math.count_nonzero(jitter, dtype=tf.int32)
        return factor

    def normal(self, shape: Sequence[int | Tensor], dtype: str | tf.DType) -> Tensor:
        """Returns standard normal draws.

        Args:
            shape: List of integers and scalar tensors.
            dtype: Floating dtype.

        Returns:
            Tensor of shape `shape`.
        """
        return fast_normal(tf.stack(shape), self.next_seed(), dtype)

    def point_normal(self, shape: Sequence[int | Tensor], dtype: str | tf.DType) -> Tensor:
        """Returns standard normal draws whose last axis is over data points.

        All draws of a point are independent of each other. Where the noise is independent or joint,
        they are also independent of the draws of other points. Where it is independent, the k-th
        call with a shape takes the columns k, k + 1, ... of one tensor. The draws of several layers
        *at one point* are then independent, and only these enter an objective that is a sum over
        points.

        Args:
            shape: List of integers and scalar tensors.
            dtype: Floating dtype.

        Returns:
            Tensor that broadcasts to `shape`.
        """
        if self.noise == "shared":
            return self.normal([*shape[:-1], 1], dtype)
        if self.noise == "joint":
            return self.normal(shape, dtype)
        *rest, count = shape
        key = (*rest, dtype)

        def columns(count):
            used, values = self._columns.get(key, (_MORE_COLUMNS, None))
            if used == _MORE_COLUMNS:
                used, values = 0, self.normal([*rest, count + _MORE_COLUMNS - 1], dtype)
            self._columns[key] = used + 1, values
            return values[..., used : used + count]

        return replicas.of_all_rows(columns, count, axis=-1)


@contextlib.contextmanager
def function_draws(
    num_samples: int, seed: Seed, noise: str = "independent", prior: str = "fan_in"
) -> Iterator[FunctionDraws]:
    """Makes the layers called in its `with` block draw `num_samples` functions from `seed`.

    Args:
        num_samples: S.
        seed: Integer, two integers, or int32 tensor `[2]`.
        noise: One of `NOISES`.
        prior: Rule for the weights of layers that were given no prior, see `VariationalLayer`.

    Yields:
        `FunctionDraws`.
    """
    draws = FunctionDraws(num_samples, seed, noise, prior)
    outer = draws_of_scope()
    _state.draws = draws
    try:
        yield draws
    finally:
        _state.draws = outer


def draws_of_scope() -> FunctionDraws | None:
    """Returns the `FunctionDraws` of the innermost `function_draws`, or None outside of one."""
    return getattr(_state, "draws", None)


def current_draws() -> FunctionDraws:
    """Returns the `FunctionDraws` of the innermost scope; outside, one draw with a new seed."""
    draws = draws_of_scope()
    if draws is None:
        _state.outside = getattr(_state, "outside", 0) + 1
        draws = FunctionDraws(seed=(0, _state.outside))
    return draws
