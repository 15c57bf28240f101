"""Prediction of models that represent f as an equal mixture of Gaussians, or by draws."""

import numpy as np
import tensorflow as tf

from tfp_fnspace import arguments
from tfp_fnspace.distributions.quantile import quantile
from tfp_fnspace.export import QUANTILE_LEVELS
from tfp_fnspace.math.random import fold_in
from tfp_fnspace.model.contract import FunctionSpaceModel
from tfp_fnspace.model.prediction import SAMPLE_CHUNK
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import GaussianMoments

#: Folded into the model's seed. Training folds in its step numbers, which are not negative.
_COMPONENTS, _LIKELIHOOD = -1, -2


class MixturePrediction(FunctionSpaceModel):
    r"""The contract of a model whose posterior of f is an equal mixture over S draws.

        p(f(x)) = 1/S sum_s N(f(x); m_s(x), v_s(x))

    A model `class M(MixturePrediction, keras.Model)` implements `mixture_moments`, `draw_functions`
    and training. (If it is trained by gradients, it is `class M(GradientTraining,
    MixturePrediction, keras.Model)`.) All prediction follows from these, for regression and for
    classification. The seed of the S draws is a function of the model's seed, so predictions are
    repeatable. They do not depend on the batches as long as the draws of `mixture_moments` do not
    depend on the number of rows.

    Attributes:
        num_eval_samples: S of all predictions, a positive integer.
        num_joint_functions: Number of functions of the joint distribution of all points;
            `num_eval_samples` by default.
    """

    num_eval_samples = 100
    num_joint_functions = None

    def mixture_moments(self, x, num_samples, seed):
        """Computes the moments of f given each of S draws of what f depends on, in the graph.

        Args:
            x: Tensor `[N, ...]`, or a list of tensors, in the user's units.
            num_samples: S, a Python integer.
            seed: int32 tensor `[2]`.

        Returns:
            `GaussianMoments` of tensors `[S, N, D]`, in the user's units (`in_user_units`); for a
            classifier, those of logits. `variance=None` stands for function draws.
        """
        raise NotImplementedError

    def predictive_mixture(self, x):
        """Returns the mixture behind all predictions, `[S, N, D]`; x is in the user's units."""
        seed = fold_in(tf.convert_to_tensor(self.seed_state), _COMPONENTS)
        return self.mixture_moments(x, self.num_eval_samples, seed)

    def function_moments(self, x):
        return self._function_moments(self.predictive_mixture(x))

    def predictive(self, x):
        return self._distribution(self.predictive_mixture(x))

    def predictive_moments(self, x):
        return self._summary(self.predictive_mixture(x))

    def served_outputs(self, x):
        mixture = self.predictive_mixture(x)  # computed once, since it is most of the work
        if self.likelihood.is_classifier:
            return self._summary(mixture)
        quantiles = quantile(self._distribution(mixture), list(QUANTILE_LEVELS))
        return {**self._summary(mixture), "quantiles": quantiles}

    def _distribution(self, mixture):
        """Returns the distribution of the observations, batch `[N]`."""
        return self.likelihood.mixture(mixture, self.target_unit, self._likelihood_seed())

    def _summary(self, mixture):
        """Returns the tensors of `predict`."""
        if self.likelihood.is_classifier:
            return self.likelihood.uncertainty(mixture, self._likelihood_seed())
        noise = self.likelihood.mean_noise_variance(mixture, self.target_unit)
        return self._summary_of_moments(self._function_moments(mixture), noise)

    def _function_moments(self, mixture):
        return GaussianMoments(*(self.about_targets(part) for part in _total_moments(mixture)))

    def _likelihood_seed(self):
        return fold_in(tf.convert_to_tensor(self.seed_state), _LIKELIHOOD)

    def predict_distribution(self, x, batch_size=None, joint=False):
        """Returns the predictive distribution of the observations, at each point or jointly.

        Args:
            x: As for `predict`; for regression, arrays only.
            batch_size: As for `predict`.
            joint: Whether to return the joint distribution of all points, S functions with noise.
                It gives the covariance of points, and statements about several points at once. Its
                density is accurate as long as some of the functions are near the observations, so
                more points need more functions.

        Returns:
            `tfd.MixtureSameFamily` over the draws in the user's units, with batch `[N]` and event
            `[D]`. If `joint`, it has no batch and event `[N, D]`. For a classifier, the
            distribution of the label with the averaged probabilities.

        Raises:
            ValueError: If `joint` is true for a classifier, or for a model that knows the noise at
                a point only by its moments; or if the data are bad.
        """
        if self.likelihood.is_classifier:
            return super().predict_distribution(x, batch_size=batch_size, joint=joint)
        if batch_size is not None:
            arguments.check_count("batch_size", batch_size)
        if joint and not self.likelihood.has_noise_outputs:
            seed = fold_in(tf.convert_to_tensor(self.seed_state), _COMPONENTS)
            count = self.num_joint_functions or self.num_eval_samples
            functions = self.sample_functions(x, count, seed)
            return self.likelihood.joint(tf.constant(functions), self.target_unit)
        self._check_ready()
        inputs = self._check_inputs(x)
        rows = self._batch_rows(batch_size, len(inputs[0]), self.predict_batch_size)
        parts = [
            self._mixture_function(self._pack([tf.constant(a[i : i + rows]) for a in inputs]))
            for i in range(0, len(inputs[0]), rows)
        ]
        means, variances = zip(*parts, strict=True)
        mean = tf.concat(means, axis=1)
        variance = None if variances[0] is None else tf.concat(variances, axis=1)
        if not joint:
            return self._distribution(GaussianMoments(mean, variance))
        if variance is None:  # draws of functions, whose outputs include the noise
            return self.likelihood.joint(mean, self.target_unit)
        return super().predict_distribution(x, joint=joint)

    def _reset_functions(self):
        super()._reset_functions()
        # Hidden from Keras's tracking, which would export it.
        vars(self)["_mixture_function"] = traced(self.predictive_mixture, reduce_retracing=True)

    @property
    def predict_batch_size(self):
        """Rows in a batch, such that the widest tensor takes about 20 MB."""
        if self.num_outputs is None:
            return super().predict_batch_size
        rows = SAMPLE_CHUNK // self.numbers_per_row(self.num_eval_samples)
        return int(np.clip(rows, 1, super().predict_batch_size))


def _total_moments(mixture):
    """Returns the mean and variance of the mixture, `[N, D]`.

    These are the laws of total expectation and variance.
    """
    means, variances = mixture
    within = 0.0 if variances is None else tf.reduce_mean(variances, axis=0)
    between = tf.math.reduce_variance(means, axis=0)
    return GaussianMoments(tf.reduce_mean(means, axis=0), within + between)
