"""Observation models p(y | f)."""

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

tfd = tfp.distributions


class _AdditiveNoise(keras.layers.Layer):
    """`y = f + scale * e` with e of a fixed law, independent between outputs.

    A subclass has `_noisy(values, scale)`, the law of an observation, and `_unit_variance`, the
    variance of e.
    """

    def __init__(self, scale=1.0, **kwargs):
        super().__init__(autocast=False, **{"trainable": False, **kwargs})
        self._initial_scale = self._checked(scale)
        self.scale = self.add_weight(
            name="scale",
            shape=self._initial_scale.shape,
            initializer=keras.initializers.Constant(self._initial_scale),
            autocast=False,
        )
        self.built = True

    @staticmethod
    def _checked(scale):
        try:
            values = np.asarray(scale, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.full(1, np.nan)
        if values.ndim > 1 or not np.all(np.isfinite(values)) or not np.all(values > 0.0):
            raise ValueError(
                "`scale` must be a positive finite number, or one per output. "
                f"Received: scale={scale!r}"
            )
        return values

    def check_outputs(self, num_outputs):
        """Refuses a number of outputs that does not match the scales.

        Raises:
            ValueError: If there are several scales, and not one per output.
        """
        if self.scale.shape not in ((), (num_outputs,)):
            raise ValueError(
                f"`scale` must be one number, or one per output, {num_outputs}. "
                f"Received: {self.scale.shape[0]} scales"
            )

    def set_scale(self, scale):
        """Sets the noise scale, in model units."""
        self.scale.assign(np.broadcast_to(self._checked(scale), self.scale.shape))

    def conditional(self, values, unit=1.0, scale=None):
        """Distribution of the observations given function values.

        Args:
            values: Tensor `[..., N, D]`, f in the units of the result.
            unit: One model unit of the targets, `[]` or `[D]`, in the units of the result.
            scale: Noise scale in model units, a tensor that broadcasts with `values`, in place of
                the layer's own; `[S, 1, 1]` for S draws from a posterior, a scale each.

        Returns:
            `tfd.Independent` of the noise's law, event `[D]`.
        """
        values = tf.convert_to_tensor(values)
        scale = self.scale.value if scale is None else tf.convert_to_tensor(scale, values.dtype)
        # Added to zeros, not `broadcast_to`: draws of the scale may have more axes than `values`.
        noise = scale * unit + tf.zeros_like(values)
        return tfd.Independent(self._noisy(values, noise), reinterpreted_batch_ndims=1)

    def noise_variance(self, unit=1.0, scale=None):
        """Variance of the noise, `[]` or `[D]`, in squared units of the result.

        Args:
            unit: As for `conditional`.
            scale: Noise scale in model units in place of the layer's own.
        """
        scale = self.scale.value if scale is None else scale
        return self._unit_variance * tf.square(scale * unit)

    def get_config(self):
        return {**super().get_config(), "scale": self._initial_scale.tolist()}


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Gaussian(_AdditiveNoise):
    r"""Gaussian noise, `y = f + v`, `v ~ N(0, scale^2)`, independent between outputs.

    Args:
        scale: Standard deviation of the noise in model units (standardised targets when the
            model standardises): a positive number, or one per output.
        **kwargs: `name`, `dtype`.

    Attributes:
        scale: Variable `[]` or `[D]`, saved and exported with the model.

    Raises:
        ValueError: If a scale is not a positive finite number.
    """

    _unit_variance = 1.0

    def _noisy(self, values, scale):
        return tfd.Normal(values, scale)

    def predictive(self, moments, unit=1.0):
        """Distribution of the observations for Gaussian function values, N(mean, S + scale^2).

        Args:
            moments: `GaussianMoments` of f, tensors `[..., N, D]` in the units of the result.
            unit: One model unit of the targets, `[]` or `[D]`, in the units of the result.

        Returns:
            `tfd.Independent` normal, event `[D]`.
        """
        mean, variance = moments
        stddev = tf.sqrt(variance + self.noise_variance(unit))
        return tfd.Independent(tfd.Normal(mean, stddev), reinterpreted_batch_ndims=1)

    def innovation(self, moments, targets):
        r"""Innovations of the function values given one observation each.

        `dm = (y - m)/(S + scale^2)`, `dS = -1/(S + scale^2)`: the first two derivatives of the
        log predictive density in m, so that `m + S dm` and `S + S^2 dS` are the posterior
        moments (equation 14 of the TAGI paper).

        Args:
            moments: `GaussianMoments` of f in model units, tensors `[N, D]`.
            targets: Tensor `[N, D]` in model units.

        Returns:
            Pair of tensors `[N, D]`.
        """
        mean, variance = moments
        precision = 1.0 / (variance + self.noise_variance())
        return (targets - mean) * precision, -precision


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class StudentT(_AdditiveNoise):
    r"""Heavy-tailed noise, `y = f + scale * e`, e of Student's t, independent between outputs.

    Outliers move a fit less than under Gaussian noise, which is the limit `df -> inf`. There is no
    closed form of the predictive law or of the update for Gaussian function values, so this is for
    models that work with draws or gradients.

    Args:
        df: Degrees of freedom, a positive number, fixed; 1 is Cauchy noise.
        scale: Scale of the noise in model units (standardised targets when the model
            standardises), not its standard deviation: a positive number, or one per output.
        **kwargs: `name`, `dtype`.

    Attributes:
        df: float.
        scale: Variable `[]` or `[D]`, saved and exported with the model.

    Raises:
        ValueError: If `df` or a scale is not a positive finite number.

    Example:
        >>> noise = StudentT(df=4.0, scale=0.5)
        >>> float(noise.noise_variance())
        0.5
    """

    def __init__(self, df, scale=1.0, **kwargs):
        super().__init__(scale, **kwargs)
        self.df = self._checked_df(df)

    @staticmethod
    def _checked_df(df):
        number = isinstance(df, int | float | np.number) and not isinstance(df, bool)
        if not number or not np.isfinite(df) or not df > 0.0:
            raise ValueError(f"`df` must be a positive finite number. Received: df={df!r}")
        return float(df)

    @property
    def _unit_variance(self):
        return self.df / (self.df - 2.0) if self.df > 2.0 else np.inf

    def _noisy(self, values, scale):
        return tfd.StudentT(self.df, values, scale)

    def get_config(self):
        return {**super().get_config(), "df": self.df}
