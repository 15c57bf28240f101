"""Types that the parts of the library pass to each other."""

from typing import NamedTuple

import tensorflow as tf

#: A stateless seed: two int32 numbers, as TensorFlow's stateless random ops take them.
Seed = tuple[int, int]


class GaussianMoments(NamedTuple):
    """Mean and variance of independent Gaussian variables.

    Attributes:
        mean: Tensor `[..., D]`.
        variance: Tensor of the same shape, non-negative; `None` means exactly known values.
    """

    mean: tf.Tensor
    variance: tf.Tensor | None
