"""Observations that are classes with an order."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count
from tfp_fnspace.likelihoods.categorical import Labels
from tfp_fnspace.math.expectations import normal_expectation
from tfp_fnspace.typing import Config, GaussianMoments, Seed, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Ordinal(Labels):
    r"""One of K classes with an order: ordered logistic regression on one output f.

        P(y <= k | f) = 1 / (1 + exp(f - c_k)),    c_0 < ... < c_{K-2}

    The cut points c start where all classes are equally probable at f = 0, and are trained with the
    model. A larger f makes higher classes more probable. Targets are integer labels from 0 to
    K - 1, of shape `[N]` or `[N, 1]`. Predictions are those of a classifier.

    Args:
        num_classes: K, an integer of at least 2.
        trainable: Whether the cut points are trained.
        **kwargs: `name`, `dtype`.

    Raises:
        ValueError: If `num_classes` is too small.

    References:
        McCullagh (1980), "Regression models for ordinal data", JRSS B 42.
    """

    def __init__(self, num_classes: int, trainable: bool = True, **kwargs: Any):
        super().__init__(trainable=bool(trainable), **kwargs)
        self.num_classes = checked_count("num_classes", num_classes, 2)
        shares = np.arange(1, self.num_classes) / self.num_classes
        cuts = np.log(shares) - np.log1p(-shares)
        start: Any = np.concatenate([cuts[:1], np.log(np.diff(cuts))])
        self._raw_cuts = self.add_weight(
            name="raw_cuts",
            shape=(self.num_classes - 1,),
            initializer=keras.initializers.Constant(start),
            trainable=self.trainable,
            autocast=False,
        )

    @property
    def cuts(self) -> Tensor:
        """The increasing cut points, `[K - 1]`."""
        return tf.cumsum(tf.concat([self._raw_cuts.value[:1], self._steps], axis=0))

    @property
    def _steps(self) -> Tensor:
        """The distances between them, `[K - 2]`."""
        return tf.exp(self._raw_cuts.value[1:])

    def check_outputs(self, num_outputs: int) -> None:
        """Refuses several outputs.

        Raises:
            ValueError: If there is more than one.
        """
        if num_outputs != 1:
            raise ValueError(
                "With `Ordinal` a model must have one output, whatever the number of classes. "
                f"Received: {num_outputs} outputs"
            )

    def num_labels(self, num_outputs: int) -> int:
        return self.num_classes

    def expected_log_prob(
        self, moments: GaussianMoments, targets: Tensor, seed: Seed | None = None
    ) -> Tensor:
        """Computes `Likelihood.expected_log_prob` by Gauss-Hermite quadrature."""
        expected = normal_expectation(
            lambda f: tf.expand_dims(self.log_prob(f, targets), -1), moments
        )
        return tf.squeeze(expected, axis=-1)

    def _log_probabilities(self, values: Tensor) -> Tensor:
        """Computes differences of logistic functions s without cancellation.

        For a > b, `s(a) - s(b) = s(a) s(-b) (1 - exp(b - a))`.
        """
        places = tf.cast(self.cuts, values.dtype) - values  # [..., N, K - 1]
        below, above = tf.math.log_sigmoid(places), tf.math.log_sigmoid(-places)
        between = tf.math.log(-tf.math.expm1(-tf.cast(self._steps, values.dtype)))
        inner = below[..., 1:] + above[..., :-1] + between  # pyright: ignore[reportArgumentType]
        return tf.concat([below[..., :1], inner, above[..., -1:]], axis=-1)  # pyright: ignore[reportArgumentType]

    def get_config(self) -> Config:
        return {**super().get_config(), "num_classes": self.num_classes}
