"""Observations with additive noise."""

import math
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary import arrays
from tfp_fnspace.boundary.arguments import checked_choice, checked_positive
from tfp_fnspace.distributions import observations
from tfp_fnspace.likelihoods.base import variance_of
from tfp_fnspace.likelihoods.mixtures import MixtureLikelihood, at_nodes
from tfp_fnspace.math.expectations import normal_expectation
from tfp_fnspace.typing import (
    Array,
    ArrayLike,
    Config,
    Distribution,
    GaussianMoments,
    Seed,
    Shape,
    Tensor,
)

tfd = tfp.distributions

#: Units in which a scale may be given.
UNITS = ("model", "user")


class _AdditiveNoise(MixtureLikelihood):
    """`y = f + scale * e`, where e has a fixed distribution, independent between outputs.

    A subclass has `_noisy(values, scale)`, the distribution of an observation; `_unit_variance`,
    the variance of e; and `_components`, see `MixtureLikelihood`.
    """

    def __init__(
        self,
        scale: ArrayLike = 1.0,
        trainable: bool = False,
        min_scale: float = 1e-3,
        separate: bool = False,
        units: str = "model",
        **kwargs: Any,
    ):
        super().__init__(autocast=False, trainable=bool(trainable), **kwargs)
        self.units = checked_choice("units", units, UNITS)
        self._initial_scale = self._checked(scale)
        self.min_scale = checked_positive("min_scale", min_scale)
        self._learns_scale = bool(trainable)
        self.separate = bool(separate) or units == "user"  # columns have different units
        self._stored(self._initial_scale)  # refuses a scale that cannot be trained
        self._scale = None
        if not self.separate or self._initial_scale.ndim:
            self._create_scale(self._initial_scale.shape)
            self.built = True

    def build(self, input_shape: Shape) -> None:
        """Creates the scales of `separate` for targets `[N, D]`: `[D]`, or `[]` for one column."""
        num_outputs = input_shape[-1]
        self._create_scale(() if num_outputs == 1 else (num_outputs,))

    def get_build_config(self) -> Config | None:
        if self._scale is None or not self.separate or self._initial_scale.ndim:
            return None
        return {"num_outputs": (*self._scale.shape, 1)[0]}

    def build_from_config(self, config: Config | None) -> None:
        if config:
            self.build((None, config["num_outputs"]))

    def _create_scale(self, shape: Shape) -> None:
        # A weight that gradient steps change is unconstrained. One that is only assigned is the
        # scale.
        self._scale = self.add_weight(
            name="unconstrained_scale" if self._learns_scale else "scale",
            shape=shape,
            initializer=keras.initializers.Constant(self._stored(self._initial_scale)),
            trainable=self._learns_scale,
            autocast=False,
        )

    def _variable(self) -> keras.Variable:
        """Returns the weight that stands for the scale."""
        if self._scale is None:
            raise ValueError(
                "The scales of a likelihood exist once a model knows the number of outputs. "
                f"Received: separate={self.separate}"
            )
        return self._scale

    @property
    def scale(self) -> Tensor | keras.Variable:
        """The noise scale in model units, `[]` or `[D]`: a variable, or a tensor if trained."""
        if self._scale is None:  # the number of outputs is not known yet
            return tf.constant(self._initial_scale, self.variable_dtype)
        if not self._learns_scale:
            return self._scale
        return self.min_scale + tf.nn.softplus(self._scale.value)

    def _scale_in(self, dtype: tf.DType) -> Tensor:
        """Returns the noise scale as a tensor in the precision of a method."""
        return tf.cast(tf.convert_to_tensor(self.scale), dtype)

    def _stored(self, scale: Array) -> Any:
        """Returns the value of the weight that stands for a scale."""
        if not self._learns_scale:
            return scale
        above = scale - self.min_scale
        if not np.all(above > 0.0):
            raise ValueError(
                f"A trained `scale` must be larger than `min_scale`, {self.min_scale:g}. "
                f"Received: scale={scale.tolist()!r}"
            )
        return above + np.log(-np.expm1(-above))  # the inverse of softplus

    @staticmethod
    def _checked(scale: ArrayLike) -> Array:
        try:
            values = arrays.as_array(scale, "scale")
            values = np.where(values.dtype.kind == "b", np.nan, values.astype(np.float64))
        except (TypeError, ValueError):
            values = np.full(1, np.nan)
        if values.ndim > 1 or not np.all(np.isfinite(values)) or not np.all(values > 0.0):
            raise ValueError(
                "`scale` must be a positive finite number, or one per output. "
                f"Received: scale={scale!r}"
            )
        return values

    def check_outputs(self, num_outputs: int) -> None:
        """Refuses a number of outputs that does not match the scales.

        Raises:
            ValueError: If there are several scales, and not one per output.
        """
        shape = tuple(self.scale.shape)
        if shape not in ((), (num_outputs,)):
            raise ValueError(
                f"`scale` must be one number, or one per output, {num_outputs}. "
                f"Received: {shape[0]} scales"
            )

    @property
    def scale_variable(self) -> keras.Variable:
        """The weight that `set_scale` sets."""
        return self._variable()

    def set_scale(self, scale: ArrayLike) -> None:
        """Sets the noise scale, in model units."""
        variable = self._variable()
        variable.assign(self._stored(np.broadcast_to(self._checked(scale), variable.shape)))

    def adapt(self, unit: Array) -> None:
        """Converts a scale from the user's units to model units.

        Args:
            unit: One model unit of the targets, array `[D]`, in the user's units.
        """
        if self.units == "user":
            self.set_scale(np.reshape(self._initial_scale / unit, self._variable().shape))

    def assign_scale(self, scale: Tensor) -> None:
        """Sets a trained scale in the graph, to a tensor that is not checked."""
        variable = self._variable()
        tiny = np.finfo(variable.dtype).tiny
        above = tf.maximum(scale - self.min_scale, tiny)
        variable.assign(above + tf.math.log(-tf.math.expm1(-above)))

    @property
    def learns_scale(self) -> bool:
        """Whether the scale is a trained parameter."""
        return self._learns_scale

    _unit_variance: Any  # a number, or a property that computes it

    def _noisy(self, values: Tensor, scale: Tensor) -> Distribution:
        raise NotImplementedError

    def conditional(
        self, values: Tensor, unit: ArrayLike = 1.0, scale: ArrayLike | None = None
    ) -> Distribution:
        """Returns the distribution of the observations given function values.

        Args:
            values: Tensor `[..., N, D]`, f in the units of the result.
            unit: One model unit of the targets, `[]` or `[D]`, in the units of the result.
            scale: Noise scale in model units, a tensor that broadcasts with `values`. It replaces
                the layer's own scale; use `[S, 1, 1]` for S draws from a posterior with one scale
                each.

        Returns:
            `tfd.Independent` of the noise's distribution, event `[D]`.
        """
        values = tf.convert_to_tensor(values)
        if scale is None:
            scale = self._scale_in(values.dtype)
        scale = tf.convert_to_tensor(scale, values.dtype)
        # `broadcast_to` would not do: draws of the scale may have more axes than `values`.
        noise = scale * tf.cast(unit, values.dtype) + tf.zeros_like(values)
        return tfd.Independent(self._noisy(values, noise), reinterpreted_batch_ndims=1)

    def noise_variance(self, unit: ArrayLike = 1.0, scale: ArrayLike | None = None) -> Tensor:
        """Returns the variance of the noise, `[]` or `[D]`, in squared units of the result.

        Args:
            unit: As for `conditional`.
            scale: Noise scale in model units that replaces the layer's own scale.
        """
        scale = tf.convert_to_tensor(self.scale if scale is None else scale)
        dtype = unit.dtype if tf.is_tensor(unit) else scale.dtype
        return self._unit_variance * tf.square(tf.cast(scale, dtype) * unit)

    def mean_noise_variance(self, moments: GaussianMoments, unit: ArrayLike = 1.0) -> Tensor:
        return self.noise_variance(unit)

    def log_prob(self, values: Tensor, targets: Tensor) -> Tensor:
        return self.conditional(values).log_prob(targets)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "scale": self._initial_scale.tolist(),
            "min_scale": self.min_scale,
            "trainable": self._learns_scale,
            "separate": self.separate,
            "units": self.units,
            "frozen": self._learns_scale and not self.trainable,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        config = dict(config)
        frozen = config.pop("frozen", False)
        likelihood = cls(**config)
        likelihood.trainable = likelihood.trainable and not frozen
        return likelihood


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Gaussian(_AdditiveNoise):
    r"""Gaussian noise, `y = f + v`, `v ~ N(0, scale^2)`, independent between outputs.

    Args:
        scale: Standard deviation of the noise: a positive number, or one per output. It is in model
            units, which are standard deviations of the targets if the model standardises them,
            unless `units` says otherwise.
        trainable: Whether models train the scale: by gradients, or in closed form by TAGI. The
            weight is then `r` in `scale = min_scale + softplus(r)`.
        min_scale: Smallest scale that training can reach, a positive number in model units.
        separate: Whether each output has its own scale if `scale` is one number, at which all of
            them start. They are created when a model knows the number of outputs.
        units: Units of the given `scale`: `"model"`, or `"user"` for those of the targets. Models
            convert the latter to their own units when they learn the standardisation.
        **kwargs: `name`, `dtype`.

    Attributes:
        scale: Variable `[]` or `[D]` (a tensor if it is trained) in model units. It is saved and
            exported with the model.

    Raises:
        ValueError: If a scale is not a positive finite number, or a trained one is not larger
            than `min_scale`.
    """

    has_expected_power = True
    _unit_variance = 1.0

    def _noisy(self, values: Tensor, scale: Tensor) -> Distribution:
        return observations.Normal(values, scale)

    def observation_moments(
        self, moments: GaussianMoments, unit: ArrayLike = 1.0
    ) -> GaussianMoments:
        """Returns the mean and variance `S + scale^2` of the observations, as in `predictive`."""
        mean, variance = moments[0], variance_of(moments)
        return GaussianMoments(mean, variance + tf.cast(self.noise_variance(unit), mean.dtype))

    def predictive(self, moments: GaussianMoments, unit: ArrayLike = 1.0) -> Distribution:
        """Returns the distribution of the observations for Gaussian f, N(mean, S + scale^2).

        Args:
            moments: `GaussianMoments` of f, tensors `[..., N, D]` in the units of the result.
            unit: One model unit of the targets, `[]` or `[D]`, in the units of the result.

        Returns:
            `tfd.Independent` normal, event `[D]`.
        """
        observed = self.observation_moments(moments, unit)
        return tfd.Independent(
            observations.Normal(observed.mean, tf.sqrt(variance_of(observed))),
            reinterpreted_batch_ndims=1,
        )

    def expected_log_prob(
        self, moments: GaussianMoments, targets: Tensor, seed: Seed | None = None
    ) -> Tensor:
        r"""Returns `log N(y; mean, scale^2) - variance / (2 scale^2)` (see `Likelihood`)."""
        mean, variance = moments
        noise = tf.square(self._scale_in(mean.dtype))
        squared = tf.square(targets - mean) + (0.0 if variance is None else variance)
        density = -0.5 * (squared / noise + tf.math.log(2.0 * math.pi * noise))
        return tf.reduce_sum(density, axis=-1)

    def log_expected_power(
        self, moments: GaussianMoments, targets: Tensor, alpha: float, seed: Seed
    ) -> Tensor:
        r"""Computes `Likelihood.log_expected_power` in closed form.

        It is `-1/2 [alpha log(2 pi s) + log(1 + alpha v / s) + (y - m)^2 / (v + s / alpha)]`, where
        s = scale^2 and v is the variance of f.
        """
        mean, variance = moments[0], variance_of(moments)
        noise = tf.square(self._scale_in(mean.dtype))
        logs = alpha * tf.math.log(2.0 * math.pi * noise) + tf.math.log1p(alpha * variance / noise)
        squares = tf.square(targets - mean) / (variance + noise / alpha)
        return -0.5 * tf.reduce_sum(logs + squares, axis=-1)

    def _components(self, moments: GaussianMoments, unit: ArrayLike, seed: Seed) -> Distribution:
        return self.predictive(moments, unit)

    def innovation(self, moments: GaussianMoments, targets: Tensor) -> tuple[Tensor, Tensor]:
        r"""Returns the innovations of the function values given one observation each.

        They are `dm = (y - m)/(S + scale^2)` and `dS = -1/(S + scale^2)`, the first two derivatives
        of the log predictive density in m. The posterior moments are therefore `m + S dm` and `S +
        S^2 dS` (equation 14 of the TAGI paper).

        Args:
            moments: `GaussianMoments` of f in model units, tensors `[N, D]`.
            targets: Tensor `[N, D]` in model units.

        Returns:
            Pair of tensors `[N, D]`.
        """
        mean, variance = moments[0], variance_of(moments)
        precision = 1.0 / (variance + self.noise_variance())
        return (targets - mean) * precision, -precision


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class StudentT(_AdditiveNoise):
    r"""Heavy-tailed noise, `y = f + scale * e`, e Student t, independent between outputs.

    This is the marginal distribution of Gaussian noise whose precision has a Gamma prior: `y ~ N(f,
    1 / tau)` with `tau ~ Gamma(df / 2, df scale^2 / 2)` (shape and rate), with a separate tau for
    each observation.

    Outliers move a fit less than under Gaussian noise, which is the limit `df -> inf`. Given
    Gaussian function values, neither the predictive distribution nor the update has a closed form.
    This likelihood is therefore for models that work with draws or gradients.

    Args:
        df: Degrees of freedom, a positive number, fixed; 1 is Cauchy noise.
        scale: Scale of the noise, not its standard deviation: a positive number, or one per output,
            in the units of `units`.
        trainable: As for `Gaussian`.
        min_scale: As for `Gaussian`.
        separate: As for `Gaussian`.
        units: As for `Gaussian`.
        **kwargs: `name`, `dtype`.

    Attributes:
        df: float.
        scale: As for `Gaussian`.

    Raises:
        ValueError: If `df` or a scale is not a positive finite number.

    Example:
        >>> noise = StudentT(df=4.0, scale=0.5)
        >>> float(noise.noise_variance())
        0.5
    """

    def __init__(
        self,
        df: float,
        scale: ArrayLike = 1.0,
        trainable: bool = False,
        min_scale: float = 1e-3,
        **kwargs: Any,
    ):
        super().__init__(scale, trainable=trainable, min_scale=min_scale, **kwargs)
        self.df = checked_positive("df", df)

    @property
    def _unit_variance(self) -> float:
        return self.df / (self.df - 2.0) if self.df > 2.0 else np.inf

    def _noisy(self, values: Tensor, scale: Tensor) -> Distribution:
        # df is a tensor: `quantile` broadcasts the parameters and would convert a float to float32.
        return observations.StudentT(tf.constant(self.df, values.dtype), values, scale)

    def expected_log_prob(
        self, moments: GaussianMoments, targets: Tensor, seed: Seed | None = None
    ) -> Tensor:
        """Computes `Likelihood.expected_log_prob` by Gauss-Hermite quadrature.

        The error is within 1e-3 if the standard deviation of f is at most twice the scale (df 4).
        It is larger beyond that, since the log density is not a polynomial.
        """
        mean, _ = moments
        noise = self._noisy(tf.zeros_like(mean), self._scale_in(mean.dtype))
        densities = normal_expectation(lambda values: noise.log_prob(targets - values), moments)
        return tf.reduce_sum(densities, axis=-1)

    def _components(self, moments: GaussianMoments, unit: ArrayLike, seed: Seed) -> Distribution:
        """Returns the noise about each of K values of f for each component, see `at_nodes`.

        The density is accurate if the values are closer to each other than the noise is wide. For
        S = 1, df 4, D = 1, the log density has a standard error over y of 0.002 if f has a standard
        deviation of 1 scale of the noise, 0.02 at 3 and 0.1 at 10. (Past the last node, at 3 to 5
        standard deviations of the distribution, it is too low: by 0.01, 0.3 and 3.) The nodes of
        several outputs fill a volume: for D = 2 the error is 0.02 at 1 and 0.2 at 3.
        """
        return self.conditional(at_nodes(moments, seed), unit)

    def get_config(self) -> Config:
        return {**super().get_config(), "df": self.df}


def default_noise(dtype: Any, trainable: bool = True) -> Gaussian:
    """Returns the default noise of models: Gaussian, with one scale for each column."""
    return Gaussian(scale=0.3, trainable=trainable, separate=True, dtype=dtype)
