"""Random features whose products are a stationary kernel."""

import math
import random

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import arguments
from tfp_fnspace.kernels.description import describe
from tfp_fnspace.kernels.spectral import spectral_draws


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class RandomFourierFeatures(keras.layers.Layer):
    r"""Cosines of random frequencies, whose products are a stationary kernel on average.

        phi_u(x) = (2 v_u / units)^1/2 cos(w_u . x + b_u),      E phi(x)^T phi(x') = k(x, x'):

    a linear function of them with standard normal weights is nearly a draw of the Gaussian process,
    the covariance being right up to `k(0) units^-1/2`. The phases b are uniform on a circle, the
    frequencies w have the spectral density of the kernel, the variances v its amplitude.

    Args:
        units: Number of features, a positive integer.
        kernel: TFP kernel: `ExponentiatedQuadratic`, `MaternOneHalf`, `MaternThreeHalves`,
            `MaternFiveHalves`, `RationalQuadratic`, `ExpSinSquared`, `Constant`, `FeatureScaled` of
            those, sums and products; `prior.kernel()` of a `processes.GaussianProcess`. Its
            parameters are taken as they are now.
        seed: Integer, of frequencies and phases; None follows `keras.utils.set_random_seed`.
        trainable: Whether frequencies and phases are trained.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: Tensor `[..., I]`.

    Returns:
        Tensor `[..., units]`.

    Raises:
        TypeError: If `kernel` is no TFP kernel.
        ValueError: If an argument is not as described.

    Example:
        >>> kernel = tfp.math.psd_kernels.MaternFiveHalves(length_scale=2.0)
        >>> network = keras.Sequential(
        ...     [
        ...         keras.Input((3,)),
        ...         layers.RandomFourierFeatures(500, kernel),
        ...         layers.VariationalDense(1, posterior="conditioned", prior="standard"),
        ...     ]
        ... )

    References:
        Rahimi and Recht (2007), "Random features for large-scale kernel machines", NeurIPS.
    """

    def __init__(self, units, kernel, seed=None, trainable=False, **kwargs):
        super().__init__(trainable=trainable, **kwargs)
        self.units = arguments.checked_count("units", units)
        self.kernel = dict(kernel) if isinstance(kernel, dict) else describe(kernel)
        spectral_draws(self.kernel, _num_inputs(self.kernel), 1, np.random.default_rng(0))
        self.seed = seed

    def build(self, input_shape):
        size, expected = input_shape[-1], _num_inputs(self.kernel, input_shape[-1])
        if size != expected:
            raise ValueError(
                f"`kernel` has {expected} scales and takes as many inputs. "
                f"Received: input_shape={tuple(input_shape)}"
            )
        seed = random.randrange(2**32) if self.seed is None else self.seed
        generator = np.random.default_rng(seed)
        frequencies, variances = spectral_draws(self.kernel, size, self.units, generator)
        phases = generator.uniform(0.0, 2.0 * math.pi, size=self.units)
        amplitudes = np.sqrt(2.0 / self.units * variances)
        self.frequencies = self._weight("frequencies", frequencies)
        self.phases = self._weight("phases", phases)
        self.amplitudes = self._weight("amplitudes", amplitudes, trainable=False)

    def _weight(self, name, value, **options):
        def initializer(shape, dtype=None):
            return tf.reshape(tf.constant(value, dtype), shape)

        return self.add_weight(name=name, shape=value.shape, initializer=initializer, **options)

    def call(self, inputs):
        frequencies, phases, amplitudes = (
            tf.convert_to_tensor(v) for v in (self.frequencies, self.phases, self.amplitudes)
        )
        angles = tf.tensordot(tf.convert_to_tensor(inputs), frequencies, axes=1) + phases
        return amplitudes * tf.cos(angles)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        options = {"units": self.units, "kernel": self.kernel, "seed": self.seed}
        return {**super().get_config(), **options}


def _num_inputs(kernel, otherwise=1):
    """The inputs that the scales of a kernel, or of those it is made of, are for."""
    parameters = kernel["parameters"]
    if kernel["kernel"] == "FeatureScaled":
        return np.size(parameters["scale_diag"]["tensor"])
    sizes = [_num_inputs(part, None) for part in parameters.get("kernels", ())]
    return next((size for size in sizes if size is not None), otherwise)
