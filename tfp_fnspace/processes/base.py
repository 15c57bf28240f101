"""What all priors over functions have in common."""

import keras
import tensorflow as tf

from tfp_fnspace.arguments import checked_count
from tfp_fnspace.math import random


class Process(keras.layers.Layer):
    """A law of functions from points to `R^D`, known by its values at any finite set of points.

    | | takes | gives |
    |---|---|---|
    | `sample(x, n, seed)` | x `[N, ...]` | `[n, N, D]`, n functions at the N points |
    | `log_prob(f, x)` | f `[..., N, D]` | `[...]`, where `has_density` |
    | `score(f, x)` | f `[..., N, D]` | `[..., N, D]`, gradient of `log_prob` in f |
    | `moments(x)` | x `[N, ...]` | `[N, D]` and `[D, N, N]`, where `has_moments` |
    | `weight_divergence(x, seed)` | x `[N, ...]` | scalar, where `has_weight_divergence` |

    A draw is one function: at equal points it has equal values. Points and values are in model
    units. A process is a Keras layer, which holds what it learns as weights; it is not called.

    A subclass has `_sample(x, n, seed)` and, with a density, `_log_prob(f, x, noise_scale)`, which
    get checked tensors of the layer's `variable_dtype`.

    Args:
        num_outputs: D, a positive integer.
        **kwargs: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: If `num_outputs` is not a positive integer.
    """

    #: Whether the values at any points are jointly Gaussian, with the covariance of `moments`.
    is_gaussian = False

    #: Whether one seed gives one set of functions at any points, in any call. Otherwise draws of
    #: two calls are of the same functions only where all points are the same.
    draws_are_functions_of_x = False

    #: Whether the weights have a law that is learned, and one that they are compared with.
    has_weight_divergence = False

    def __init__(self, num_outputs=1, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.num_outputs = checked_count("num_outputs", num_outputs)

    @property
    def has_density(self):
        """Whether there are `log_prob` and `score`."""
        return False

    @property
    def has_moments(self):
        """Whether there are `moments`."""
        return False

    def sample(self, x, n, seed):
        """Draws functions.

        Args:
            x: Points `[N, ...]`.
            n: Number of functions, a positive integer (or a scalar integer tensor).
            seed: Integer, two integers, or int32 tensor `[2]`. One seed gives one set of functions
                for the same points, and for any points where `draws_are_functions_of_x`.

        Returns:
            Tensor `[n, N, D]`.

        Raises:
            ValueError: If an argument is not as described.
        """
        n = n if tf.is_tensor(n) else checked_count("n", n)
        return self._sample(self._checked_points(x), n, random.as_seed(seed))

    def log_prob(self, f, x, noise_scale=0.0):
        """Log density of values, the outputs jointly.

        Args:
            f: Values `[..., N, D]`.
            x: Points `[N, ...]`.
            noise_scale: gamma, a non-negative scalar: the density is then that of the values with
                independent noise of this standard deviation; in units of f.

        Returns:
            Tensor `[...]` of the dtype of f.

        Raises:
            NotImplementedError: If the process has no density.
            ValueError: If a shape is wrong.
        """
        f, x, dtype = self._checked_values(f, x)
        return tf.cast(self._log_prob(f, x, self._cast(noise_scale)), dtype)

    def score(self, f, x, noise_scale=0.0):
        """Gradient of `log_prob` in f.

        Args:
            f: Values `[..., N, D]`.
            x: Points `[N, ...]`.
            noise_scale: As of `log_prob`.

        Returns:
            Tensor `[..., N, D]` of the dtype of f.

        Raises:
            NotImplementedError: If the process has no density.
            ValueError: If a shape is wrong.
        """
        f, x, dtype = self._checked_values(f, x)
        return tf.cast(self._score(f, x, self._cast(noise_scale)), dtype)

    def moments(self, x, noise_scale=0.0):
        """Mean and covariance of the values at points.

        Args:
            x: Points `[N, ...]`.
            noise_scale: gamma; its square is added to the variances.

        Returns:
            Mean `[N, D]` and the covariance of each output, `[D, N, N]`.

        Raises:
            NotImplementedError: If they are not known.
        """
        if not self.has_moments:
            raise NotImplementedError(
                f"The moments of a {type(self).__name__} are not known: `has_moments` is False."
            )
        return self._moments(self._checked_points(x), self._cast(noise_scale))

    def weight_divergence(self, x, seed):
        """KL divergence of the law of the weights from the law that they are compared with.

        Args:
            x: Points `[N, ...]`, for their shape.
            seed: Integer, two integers, or int32 tensor `[2]`; used where the divergence has no
                closed form.

        Returns:
            Scalar tensor, in nats.

        Raises:
            NotImplementedError: If there is none.
        """
        if not self.has_weight_divergence:
            raise NotImplementedError(
                f"The weights of a {type(self).__name__} have no law that is learned: "
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
        """Values and points as the density takes them, and the dtype of the result."""
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

    def get_config(self):
        return {**super().get_config(), "num_outputs": self.num_outputs}


def check_width(network, width):
    """Refuses the network of a process that was made for points of another width.

    Args:
        network: Built Keras model or layer; one that does not say what it takes is let through.
        width: Columns that it is given: those of x, and of noise.

    Raises:
        ValueError: If it takes others.
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
