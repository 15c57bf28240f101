"""Prediction of models that know f as an equal mixture of Gaussians, or by draws."""

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

#: Folded into the model's seed; training folds in the numbers of its steps, which are not negative.
_COMPONENTS, _LIKELIHOOD = -1, -2


class MixturePrediction(FunctionSpaceModel):
    r"""The contract of a model whose posterior of f is an equal mixture over S draws.

        p(f(x)) = 1/S sum_s N(f(x); m_s(x), v_s(x))

    A model `class M(MixturePrediction, keras.Model)` (`class M(GradientTraining,
    MixturePrediction, keras.Model)` if it is trained by gradients) implements `mixture_moments`,
    `draw_functions` and training; everything that predicts follows, for regression and for
    classification. The seed of the S draws is a function of the model's seed, so that
    predictions are repeatable; they do not depend on the batches as far as the draws of
    `mixture_moments` do not depend on the number of rows.

    Attributes:
        num_eval_samples: S of everything that predicts, a positive integer.
        num_joint_functions: Functions of the joint law of all points; `num_eval_samples` by
            default.
    """

    num_eval_samples = 100
    num_joint_functions = None

    def mixture_moments(self, x, num_samples, seed):
        """Moments of f given each of S draws of what f depends on, in the graph.

        Args:
            x: Tensor `[N, ...]`, or a list of tensors, in the user's units.
            num_samples: S, a Python integer.
            seed: int32 tensor `[2]`.

        Returns:
            `GaussianMoments` of tensors `[S, N, D]`, in the user's units (`in_user_units`);
            logits for a classifier. `variance=None` for function draws.
        """
        raise NotImplementedError

    def predictive_mixture(self, x):
        """The mixture that predictions are made of, `[S, N, D]`; x in the user's units."""
        seed = fold_in(tf.convert_to_tensor(self.seed_state), _COMPONENTS)
        return self.mixture_moments(x, self.num_eval_samples, seed)

    def function_moments(self, x):
        return self._function_moments(self.predictive_mixture(x))

    def predictive(self, x):
        return self._law(self.predictive_mixture(x))

    def predictive_moments(self, x):
        return self._summary(self.predictive_mixture(x))

    def served_outputs(self, x):
        mixture = self.predictive_mixture(x)  # once: it is most of the work
        if self.likelihood.is_classifier:
            return self._summary(mixture)
        quantiles = quantile(self._law(mixture), list(QUANTILE_LEVELS))
        return {**self._summary(mixture), "quantiles": quantiles}

    def _law(self, mixture):
        """Law of the observations, batch `[N]`."""
        return self.likelihood.mixture(mixture, self.target_unit, self._likelihood_seed())

    def _summary(self, mixture):
        """The tensors of `predict`."""
        if self.likelihood.is_classifier:
            return self.likelihood.uncertainty(mixture, self._likelihood_seed())
        noise = self.likelihood.mean_noise_variance(mixture, self.target_unit)
        return self._summary_of_moments(self._function_moments(mixture), noise)

    def _function_moments(self, mixture):
        return GaussianMoments(*(self.about_targets(part) for part in _total_moments(mixture)))

    def _likelihood_seed(self):
        return fold_in(tf.convert_to_tensor(self.seed_state), _LIKELIHOOD)

    def predict_distribution(self, x, batch_size=None, joint=False):
        """The predictive distribution of the observations, at each point or jointly.

        Args:
            x: As for `predict`, arrays only for regression.
            batch_size: As for `predict`.
            joint: Whether the law of all points jointly is asked for, S functions with noise: for
                the covariance of points, for what is said of several at once. Its density is right
                as far as some of the functions are near the observations, which takes the more
                functions the more points there are.

        Returns:
            `tfd.MixtureSameFamily` over the draws in the user's units, batch `[N]`, event `[D]`; no
            batch and event `[N, D]` if `joint`; of a classifier, the law of the label with the
            averaged probabilities.

        Raises:
            ValueError: If `joint` is asked of a classifier, or of a model that knows the noise at a
                point by its moments; or the data are bad.
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
            return self._law(GaussianMoments(mean, variance))
        if variance is None:  # draws of functions, the noise among their outputs
            return self.likelihood.joint(mean, self.target_unit)
        return super().predict_distribution(x, joint=joint)

    def _reset_functions(self):
        super()._reset_functions()
        # Past Keras's tracking, which would export it.
        vars(self)["_mixture_function"] = traced(self.predictive_mixture, reduce_retracing=True)

    @property
    def predict_batch_size(self):
        """Rows in a batch, so many that the widest tensor takes some 20 MB."""
        if self.num_outputs is None:
            return super().predict_batch_size
        rows = SAMPLE_CHUNK // self.numbers_per_row(self.num_eval_samples)
        return int(np.clip(rows, 1, super().predict_batch_size))


def _total_moments(mixture):
    """Mean and variance of the mixture, `[N, D]`: laws of total expectation and variance."""
    means, variances = mixture
    within = 0.0 if variances is None else tf.reduce_mean(variances, axis=0)
    between = tf.math.reduce_variance(means, axis=0)
    return GaussianMoments(tf.reduce_mean(means, axis=0), within + between)
