"""Random features whose products are a stationary kernel."""

import math
import random
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.kernels.description import describe
from tfp_fnspace.kernels.spectral import scales_of, spectral_draws
from tfp_fnspace.layers import calls
from tfp_fnspace.typing import Config, Shape, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class RandomFourierFeatures(keras.layers.Layer):
    r"""Cosines of random frequencies, whose products are a stationary kernel on average.

        phi_u(x) = (2 v_u / units)^1/2 cos(w_u . x + b_u),      E phi(x)^T phi(x') = k(x, x').

    A linear function of them with standard normal weights is nearly a draw of the Gaussian process;
    the error of its covariance is about `k(0) units^-1/2`. The phases b are uniform on a circle,
    the frequencies w have the spectral density of the kernel, and the variances v give its
    amplitude.

    Args:
        units: Number of features, a positive integer.
        kernel: TFP kernel: `ExponentiatedQuadratic`, `MaternOneHalf`, `MaternThreeHalves`,
            `MaternFiveHalves`, `RationalQuadratic`, `ExpSinSquared`, `Constant`, `FeatureScaled` of
            those, their sums and products, or `prior.kernel()` of a `processes.GaussianProcess`.
            The current values of its parameters are used.
        seed: Integer seed of frequencies and phases; None follows `keras.utils.set_random_seed`.
        trainable: Whether frequencies and phases are trained.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: Tensor `[..., I]`.

    Returns:
        Tensor `[..., units]`.

    Raises:
        TypeError: If `kernel` is not a TFP kernel.
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

    def __init__(
        self,
        units: int,
        kernel: Any,
        *,
        seed: int | None = None,
        trainable: bool = False,
        **kwargs: Any,
    ):
        super().__init__(trainable=trainable, autocast=False, **kwargs)
        self.units = arguments.checked_count("units", units)
        self.kernel = dict(kernel) if isinstance(kernel, dict) else describe(kernel)
        self._num_inputs = _num_inputs(self.kernel)
        some = self._num_inputs or 1
        spectral_draws(self.kernel, some, self.units, np.random.default_rng(0))
        if seed is not None:
            arguments.check_count("seed", seed, least=0)
        self.seed = seed

    def __call__(self, inputs: Any, **kwargs: Any) -> Any:
        calls.refuse_moments(self, inputs)
        return super().__call__(inputs, **kwargs)

    def build(self, input_shape: Shape) -> None:
        size = input_shape[-1]
        if size is None:
            raise ValueError(
                f"The number of inputs must be known. Received: input_shape={tuple(input_shape)}"
            )
        if self._num_inputs not in (None, size):
            raise ValueError(
                f"`kernel` has {self._num_inputs} scales and takes as many inputs. "
                f"Received: input_shape={tuple(input_shape)}"
            )
        seed = random.randrange(2**32) if self.seed is None else self.seed
        generator = np.random.default_rng(seed)
        frequencies, variances = spectral_draws(self.kernel, size, self.units, generator)
        phases = generator.uniform(0.0, 2.0 * math.pi, size=self.units)
        amplitudes = np.sqrt(2.0 / self.units * variances)
        # Weights that are not trained stay so when a model is frozen and thawed.
        self.frequencies = self._weight("frequencies", frequencies, trainable=self.trainable)
        self.phases = self._weight("phases", phases, trainable=self.trainable)
        self.amplitudes = self._weight("amplitudes", amplitudes, trainable=False)

    def _weight(self, name, value, **options):
        def initializer(shape, dtype=None):
            return tf.reshape(tf.constant(value, dtype), shape)

        options = {"name": name, "autocast": False, **options}
        return self.add_weight(shape=value.shape, initializer=initializer, **options)

    def call(self, inputs: Tensor) -> Tensor:
        frequencies, phases, amplitudes = (
            tf.convert_to_tensor(v) for v in (self.frequencies, self.phases, self.amplitudes)
        )
        inputs = tf.cast(inputs, self.variable_dtype)  # large angles need its precision
        angles = tf.tensordot(inputs, frequencies, axes=1) + phases
        return tf.cast(amplitudes * tf.cos(angles), self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.units)

    def get_config(self) -> Config:
        options = {"units": self.units, "kernel": self.kernel, "seed": self.seed}
        return {**super().get_config(), **options}


def _num_inputs(kernel):
    """Returns the number of inputs that the scales of a kernel or its parts fix; None for any."""
    parameters = kernel["parameters"]
    parts = parameters.get("kernels", [parameters["kernel"]] if "kernel" in parameters else [])
    sizes = {_num_inputs(part) for part in parts}
    if kernel["kernel"] == "FeatureScaled":
        sizes.add(len(scales_of(parameters)))
    if parameters.get("feature_ndims", 1) != 1:
        raise ValueError(
            "A kernel with frequencies must have `feature_ndims=1`. "
            f"Received: feature_ndims={parameters['feature_ndims']}"
        )
    sizes.discard(None)
    if len(sizes) > 1:
        raise ValueError(
            "All scales of a kernel must be for the same inputs. "
            f"Received: scales of {sorted(sizes)} inputs"
        )
    return next(iter(sizes), None)
