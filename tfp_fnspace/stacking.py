"""Stacking: a mixture of several fitted models, weighed by held-out rows."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, Self

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import likelihoods
from tfp_fnspace.boundary import arguments
from tfp_fnspace.distributions import observations
from tfp_fnspace.math.random import as_seed, fold_in
from tfp_fnspace.model import FunctionSpaceModel, checks, summary
from tfp_fnspace.model.wrapping import set_up_around
from tfp_fnspace.typing import Array, Config, Distribution, Rows, Seed, Tensor

#: The most iterations of EM, and the gain per row in nats below which they end.
_MOST_ITERATIONS, _LEAST_GAIN = 10_000, 1e-9

#: What keeps logarithms of probabilities finite.
_LEAST_PROBABILITY = 1e-30


def stacking_weights(log_densities: Array, row_weights: Array | None = None) -> Array:
    r"""Returns the weights that maximise the held-out log density of the mixture.

        max_w  sum_n v_n log sum_k w_k p_k(y_n),     w_k >= 0,  sum_k w_k = 1

    The objective is concave. EM maximises it by `w_k <- mean_n w_k p_k(y_n) / sum_j w_j p_j(y_n)`,
    where the mean is weighted by v.

    Args:
        log_densities: Held-out log densities `[H, K]` of K models, none of them infinite.
        row_weights: Positive weights v of the rows, `[H]`, or `None` for ones.

    Returns:
        Array `[K]`.

    References:
        Yao, Vehtari, Simpson and Gelman (2018), "Using stacking to average Bayesian predictive
        distributions", Bayesian Analysis 13(3).
    """
    shifts = np.max(log_densities, axis=1, keepdims=True)
    densities = np.exp(log_densities - shifts)
    weights = np.full(densities.shape[1], 1.0 / densities.shape[1])
    best = -np.inf
    for _ in range(_MOST_ITERATIONS):
        mixture = densities @ weights
        value = np.average(np.log(mixture), weights=row_weights)
        if value < best + _LEAST_GAIN:
            break
        shares = densities / mixture[:, np.newaxis]
        best, weights = value, weights * np.average(shares, axis=0, weights=row_weights)
    return weights / np.sum(weights)


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class StackedModel(FunctionSpaceModel):
    r"""A weighted mixture of fitted models of the same targets.

        p(y | x) = sum_k w_k p_k(y | x)

    Its members keep their weights. It predicts, is evaluated, saved and exported as they are, but
    it cannot be trained. The variance of f is the variance within and between members; the noise
    variance is the mean of the members'.

    Args:
        members: Fitted models with the same inputs and targets: regressions whose predictive
            distributions are Gaussian or mixtures of Gaussians, or classifiers of the same classes.
        mixture_weights: Positive numbers, one for each member, which sum to 1.
        **kwargs: `name`.

    Raises:
        ValueError: If weights and members do not match, or a member predicts other columns.
    """

    input_scaler_dtype = "float64"  # members take inputs in the user's units

    def __init__(
        self, members: Sequence[FunctionSpaceModel], mixture_weights: Iterable[float], **kwargs: Any
    ):
        super().__init__(autocast=False, **kwargs)
        self.members = list(members)
        self.mixture_weights = [float(weight) for weight in mixture_weights]
        if len(self.members) != len(self.mixture_weights) or not self.members:
            raise ValueError(
                "There must be a weight for each member. Received: "
                f"{len(self.members)} members and mixture_weights={self.mixture_weights}"
            )
        if min(self.mixture_weights) <= 0.0 or abs(sum(self.mixture_weights) - 1.0) > 1e-6:
            raise ValueError(
                "`mixture_weights` must be positive and sum to 1. "
                f"Received: mixture_weights={self.mixture_weights}"
            )
        linked = [m for m in self.members if m.likelihood.has_link]
        if linked:
            raise ValueError(
                "Regressions in a mixture must have Gaussian predictive distributions or mixtures "
                "of Gaussians, so no likelihoods of counts, positive, bounded or censored targets. "
                f"Received: a member with {type(linked[0].likelihood).__name__}"
            )
        first = self.members[0]
        widths = [member.num_target_columns for member in self.members]
        if len(set(widths)) > 1:
            raise ValueError(
                "All members must predict the same columns. "
                f"Received: members of {widths} columns of targets"
            )
        likelihood, num_outputs = likelihoods.Gaussian(1.0), first.num_target_columns
        if first.likelihood.is_classifier:
            num_outputs = first.likelihood.num_labels(first.num_outputs)
            likelihood = likelihoods.Categorical()
        set_up_around(self, self.members, likelihood, num_outputs)

    @property
    def predict_batch_size(self) -> int:
        return min(member.predict_batch_size for member in self.members)

    # In the graph -----------------------------------------------------------------------------

    def _components(self, x):
        """Returns log weights `[N, K]`, means and standard deviations `[N, K, D]`."""
        parts = []
        for member, weight in zip(self.members, self.mixture_weights, strict=True):
            logits, mean, stddev = observations.normal_components(member.predictive(x))
            parts.append((logits + np.log(weight), mean, stddev))
        return tuple(
            tf.concat([tf.cast(v, tf.float64) for v in values], axis=1)
            for values in zip(*parts, strict=True)
        )

    def predicted(self, x: Tensor | list[Tensor]) -> summary.Predicted:
        if self.likelihood.is_classifier:
            outputs = self._averages(x)
            distribution = self.likelihood.from_probabilities(outputs["probabilities"])
            return summary.Predicted(lambda: distribution, lambda: outputs)
        return summary.Predicted(lambda: _mixture(*self._components(x)), lambda: self._averages(x))

    def _averages(self, x):
        """Returns the tensors of `predict`."""
        found = [member.predictive_moments(x) for member in self.members]

        def mean_of(values):
            terms = zip(self.mixture_weights, values, strict=True)
            return tf.add_n([weight * tf.cast(value, tf.float64) for weight, value in terms])

        if self.likelihood.is_classifier:
            probabilities = mean_of([each["probabilities"] for each in found])
            entropy = -tf.reduce_sum(tf.math.xlogy(probabilities, probabilities), axis=-1)
            given_f = mean_of([each["entropy"] - each["mutual_information"] for each in found])
            return {
                "probabilities": probabilities,
                "entropy": entropy,
                "mutual_information": entropy - given_f,
            }
        mean = mean_of([each["mean"] for each in found])
        spread = mean_of(
            [
                tf.square(tf.cast(each["mean"], tf.float64) - mean)
                + tf.square(tf.cast(each["epistemic_stddev"], tf.float64))
                for each in found
            ]
        )
        noise = mean_of([tf.square(each["aleatoric_stddev"]) for each in found])
        return {
            "mean": mean,
            "stddev": tf.sqrt(spread + noise),
            "epistemic_stddev": tf.sqrt(spread),
            "aleatoric_stddev": tf.sqrt(noise),
        }

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        """Draws functions `[S, N, D]`, from each member a number in proportion to its weight.

        The functions of a classifier are logarithms of the probabilities, since members may have
        different likelihoods.
        """
        ends = np.round(np.cumsum([0.0, *self.mixture_weights]) * num_samples).astype(int)
        draws, x = [], self.checks.pack(inputs)
        for i, (member, count) in enumerate(zip(self.members, np.diff(ends), strict=True)):
            if count:
                own = member.draw_functions(x, int(count), fold_in(as_seed(seed), i))
                if self.likelihood.is_classifier:
                    given = summary.probabilities_given(own, member.likelihood)
                    own = tf.math.log(tf.cast(given, tf.float64) + _LEAST_PROBABILITY)
                draws.append(tf.cast(own, tf.float64))
        return tf.concat(draws, axis=0)

    # ------------------------------------------------------------------------------------------

    def predict_distribution(
        self, x: Rows, batch_size: int | None = None, joint: bool = False
    ) -> Distribution:
        """Returns the predictive distribution of the observations at each point.

        Args:
            x: Array `[N, X]`.
            batch_size: Rows in a batch.
            joint: Must be false.

        Returns:
            A mixture of Gaussians, batch `[N]`, event `[D]`; for classes as in other models.

        Raises:
            ValueError: If `joint` is true, or the data are bad.
        """
        if joint or self.likelihood.is_classifier:
            return super().predict_distribution(x, batch_size=batch_size, joint=joint)
        inputs = self.checked_inputs(x)
        rows = checks.batch_rows(batch_size, len(inputs[0]), self.predict_batch_size)
        parts = self.in_batches(self.traced(self._components), inputs, rows)
        return _mixture(*(tf.concat(values, axis=0) for values in zip(*parts, strict=True)))

    def fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises an error: each member is fitted by its own method.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "A `StackedModel` must have fitted members and cannot be trained itself: fit each of "
            f"them. Received: fit of {len(self.members)} members"
        )

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            "members": [serialize(member) for member in self.members],
            "mixture_weights": self.mixture_weights,
        }

    @classmethod
    def from_config(cls, config: Config, custom_objects: dict[str, Any] | None = None) -> Self:
        load = keras.saving.deserialize_keras_object
        members = [load(each, custom_objects=custom_objects) for each in config["members"]]
        return cls(**{**config, "members": members})


def _mixture(logits, mean, stddev):
    return observations.mixture(logits, observations.Normal(mean, stddev))


def stacked(
    models: Callable[[int], FunctionSpaceModel],
    log_densities: Array,
    least_weight: float,
    row_weights: Array | None = None,
) -> tuple[StackedModel, Array]:
    """Makes the mixture of models that their held-out log densities favour.

    Args:
        models: Function of the number of a model that fits and returns it. It is called only for
            models with enough weight.
        log_densities: `[H, K]`.
        least_weight: The least weight of a model in the mixture.
        row_weights: As for `stacking_weights`.

    Returns:
        `StackedModel` and the weights `[K]`, which are 0 for models that are left out.
    """
    arguments.checked_fraction("least_weight", least_weight)
    weights = stacking_weights(log_densities, row_weights)
    weights = np.where(weights >= least_weight, weights, 0.0)
    weights /= np.sum(weights)
    chosen = np.flatnonzero(weights)
    return StackedModel([models(k) for k in chosen], weights[chosen]), weights
