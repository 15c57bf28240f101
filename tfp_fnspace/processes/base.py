"""The base class of all priors over functions."""

from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count
from tfp_fnspace.math import random
from tfp_fnspace.typing import ArrayLike, Config, Seed, Tensor


class Process(keras.layers.Layer):
    """A distribution of functions from points to `R^D`, known by values at finite sets of points.

    | | argument | result |
    |---|---|---|
    | `sample(x, n, seed)` | x `[N, ...]` | `[n, N, D]`, n functions at the N points |
    | `log_prob(f, x)` | f `[..., N, D]` | `[...]`, if `has_density` |
    | `score(f, x)` | f `[..., N, D]` | `[..., N, D]`, gradient of `log_prob` in f |
    | `moments(x)` | x `[N, ...]` | `[N, D]` and `[D, N, N]`, if `has_moments` |
    | `weight_divergence(x, seed)` | x `[N, ...]` | scalar, if `has_weight_divergence` |

    A draw is one function, which has equal values at equal points. Points and values are in model
    units. A process is a Keras layer whose learned parameters are weights; it is not called.

    A subclass has `_sample(x, n, seed)` and, with a density, `_log_prob(f, x, noise_scale)`. Both
    receive checked tensors of the layer's `variable_dtype`.

    Args:
        num_outputs: D, a positive integer.
        **kwargs: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: If `num_outputs` is not a positive integer.
    """

    #: Whether the values at any points are jointly Gaussian, with the covariance of `moments`.
    is_gaussian = False

    #: Whether one seed gives the same functions at any points, in any call. Otherwise two calls
    #: draw the same functions only if all points are the same.
    draws_are_functions_of_x = False

    #: Whether the weights have a learned distribution and a prior to compare it with.
    has_weight_divergence = False

    def __init__(self, num_outputs: int = 1, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.num_outputs = checked_count("num_outputs", num_outputs)

    @property
    def has_density(self) -> bool:
        """Whether the process has `log_prob` and `score`."""
        return False

    @property
    def has_moments(self) -> bool:
        """Whether the process has `moments`."""
        return False

    def sample(self, x: ArrayLike, num_samples: int | Tensor, seed: Seed) -> Tensor:
        """Draws functions.

        Args:
            x: Points `[N, ...]`.
            num_samples: S, a positive integer, or a scalar integer tensor.
            seed: Integer, two integers, or int32 tensor `[2]`. One seed gives the same functions at
                the same points, and at any points if `draws_are_functions_of_x`.

        Returns:
            Tensor `[S, N, D]`.

        Raises:
            ValueError: If an argument is not as described.
        """
        if not tf.is_tensor(num_samples):
            num_samples = checked_count("num_samples", num_samples)
        return self._sample(self._checked_points(x), num_samples, random.as_seed(seed))

    def log_prob(self, f: ArrayLike, x: ArrayLike, noise_scale: ArrayLike = 0.0) -> Tensor:
        """Returns the joint log density of the values of all outputs.

        Args:
            f: Values `[..., N, D]`.
            x: Points `[N, ...]`.
            noise_scale: gamma, a non-negative scalar in units of f. The density is that of the
                values with independent noise of this standard deviation.

        Returns:
            Tensor `[...]` of the dtype of f.

        Raises:
            NotImplementedError: If the process has no density.
            ValueError: If a shape is wrong.
        """
        f, x, dtype = self._checked_values(f, x)
        return tf.cast(self._log_prob(f, x, self._cast(noise_scale)), dtype)

    def score(self, f: ArrayLike, x: ArrayLike, noise_scale: ArrayLike = 0.0) -> Tensor:
        """Returns the gradient of `log_prob` in f.

        Args:
            f: Values `[..., N, D]`.
            x: Points `[N, ...]`.
            noise_scale: As for `log_prob`.

        Returns:
            Tensor `[..., N, D]` of the dtype of f.

        Raises:
            NotImplementedError: If the process has no density.
            ValueError: If a shape is wrong.
        """
        f, x, dtype = self._checked_values(f, x)
        return tf.cast(self._score(f, x, self._cast(noise_scale)), dtype)

    def moments(self, x: ArrayLike, noise_scale: ArrayLike = 0.0) -> tuple[Tensor, Tensor]:
        """Returns the mean and the covariance of the values at points.

        Args:
            x: Points `[N, ...]`.
            noise_scale: gamma; its square is added to the variances.

        Returns:
            Mean `[N, D]` and the covariance of each output, `[D, N, N]`.

        Raises:
            NotImplementedError: If the moments are not known.
        """
        if not self.has_moments:
            raise NotImplementedError(
                f"The moments of a {type(self).__name__} are not known: `has_moments` is False."
            )
        return self._moments(self._checked_points(x), self._cast(noise_scale))

    def weight_divergence(self, x: ArrayLike, seed: Seed) -> Tensor:
        """Returns the KL divergence of the learned distribution of the weights from their prior.

        Args:
            x: Points `[N, ...]`, for their shape.
            seed: Integer, two integers, or int32 tensor `[2]`; used if the divergence has no closed
                form.

        Returns:
            Scalar tensor, in nats.

        Raises:
            NotImplementedError: If there is no such divergence.
        """
        if not self.has_weight_divergence:
            raise NotImplementedError(
                f"The weights of a {type(self).__name__} have no learned distribution: "
                "`has_weight_divergence` is False."
            )
        return self._weight_divergence(self._checked_points(x), random.as_seed(seed))

    def _sample(self, x, n, seed):
        raise NotImplementedError

    def _log_prob(self, f, x, noise_scale):
        raise NotImplementedError

    def _moments(self, x, noise_scale):
        raise NotImplementedError

    def _weight_divergence(self, x, seed):
        raise NotImplementedError

    def _score(self, f, x, noise_scale):
        with tf.GradientTape() as tape:
            tape.watch(f)
            total = tf.reduce_sum(self._log_prob(f, x, noise_scale))
        return tape.gradient(total, f)

    def _cast(self, value):
        return tf.cast(value, self.variable_dtype)

    def _checked_points(self, x):
        x = self._cast(tf.convert_to_tensor(x))
        if x.shape.rank is not None and x.shape.rank < 2:
            raise ValueError(
                f"Points must have the shape [N, features ...]. Received: x.shape={x.shape}"
            )
        if not self.built:
            self.build(x.shape)
        return x

    def _checked_values(self, f, x):
        """Checks values and points, and returns them with the dtype of the result."""
        if not self.has_density:
            raise NotImplementedError(
                f"A {type(self).__name__} has no density: `has_density` is False. "
                "Estimate its score from samples."
            )
        x, f = self._checked_points(x), tf.convert_to_tensor(f)
        dtype = f.dtype if f.dtype.is_floating else tf.as_dtype(self.variable_dtype)
        expected = tf.TensorShape([x.shape[0], self.num_outputs])
        rank_fits = f.shape.rank is None or f.shape.rank >= 2
        if not rank_fits or not expected.is_compatible_with(f.shape[-2:]):
            raise ValueError(
                f"Values must have the shape [..., N, D] = [..., {x.shape[0]}, "
                f"{self.num_outputs}]. Received: f.shape={f.shape}"
            )
        return self._cast(f), x, dtype

    def get_config(self) -> Config:
        return {**super().get_config(), "num_outputs": self.num_outputs}


def check_width(network: Any, width: int) -> None:
    """Refuses a network of a process that was made for points of another width.

    Args:
        network: Built Keras model or layer. It is accepted if it does not state its input shape.
        width: Number of columns that it is given, those of x and of noise.

    Raises:
        ValueError: If it takes another number of columns.
    """
    try:
        takes = network.input_shape[-1]
    except (AttributeError, IndexError, TypeError):
        return
    if takes not in (None, width):
        raise ValueError(
            f"The network of the process must take {width} columns, those of x and of its noise. "
            f"Received: a network that takes {takes}"
        )
