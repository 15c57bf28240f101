"""Observations between 0 and 1."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import data
from tfp_fnspace.distributions import observations
from tfp_fnspace.likelihoods.linked import LinkedLikelihood
from tfp_fnspace.typing import Array, Distribution, GaussianMoments, Tensor

#: The least distance of a mean from 0 and 1, at which the density is still finite.
_MARGIN = 1e-6


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Beta(LinkedLikelihood):
    r"""Shares and rates between 0 and 1 with a Beta distribution, independent between outputs.

        m = E(y | f) = 1 / (1 + exp(-f)),    Var(y | f) = m (1 - m) / (1 + precision)

    The parameters of the Beta distribution are `m precision` and `(1 - m) precision`; m is kept
    1e-6 away from 0 and 1. Targets lie strictly between 0 and 1. Expectations over Gaussian f are
    by quadrature.

    Args:
        precision: A positive number at which the precision of each column starts. The default is
            what the first data suggest.
        trainable: Whether the precisions are trained.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If `precision` is not a positive finite number.
    """

    parameter_name = "precision"

    def __init__(self, precision: float | None = None, trainable: bool = True, **kwargs: Any):
        super().__init__(precision, trainable, **kwargs)

    @property
    def precision(self) -> Tensor:
        """The precision of each column, `[D]`."""
        return self._parameter()

    def check_targets(self, targets: Array, name: str = "y") -> None:
        good = (targets > 0.0) & (targets < 1.0)
        data.check_rows(name, targets, good, "numbers between 0 and 1 (not 0 or 1) for `Beta`")

    def _inside(self, targets: Tensor) -> Tensor:
        return tf.clip_by_value(targets, 0.001, 0.999)

    def _link(self, mean: Tensor) -> Tensor:
        return tf.math.log(mean) - tf.math.log1p(-mean)

    def _observed(self, values: Tensor) -> Distribution:
        precision = self._parameter(values.dtype)
        both = [
            precision * (_MARGIN + (1.0 - 2.0 * _MARGIN) * tf.sigmoid(f)) for f in (values, -values)
        ]
        return observations.Beta(*both)

    def _expected(self, moments: GaussianMoments, targets: Tensor) -> Tensor:
        limits = np.finfo(targets.dtype.name)
        # A number next to 1 may have become 1 in the dtype of the model.
        inside = tf.clip_by_value(targets, float(limits.tiny), 1.0 - float(limits.epsneg))
        return super()._expected(moments, inside)

    def _parameter_of(self, mean: Array, variance: Array) -> Array:
        with np.errstate(divide="ignore"):
            return mean * (1.0 - mean) / variance - 1.0
