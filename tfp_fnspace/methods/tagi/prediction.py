"""Predictions of a TAGI model about functions, observations and inputs."""

import math

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import arguments, columns, data
from tfp_fnspace.methods.tagi import inverse, propagation, sampling
from tfp_fnspace.typing import GaussianMoments


class TAGIPrediction:
    """Mixin of `TAGIModel`: moments, distributions and derivatives in the user's units."""

    def function_moments(self, x):
        return GaussianMoments(*map(self.about_targets, self.in_user_units(self(x))))

    def predictive(self, x):
        return self.likelihood.predictive(self.in_user_units(self(x)), self.target_unit)

    def predictive_moments(self, x):
        moments = self.in_user_units(self(x))
        mixture = GaussianMoments(*(part[tf.newaxis] for part in moments))
        if self.likelihood.is_classifier:
            return self.likelihood.uncertainty(mixture)
        noise = self.likelihood.mean_noise_variance(mixture, self.target_unit)
        functions = GaussianMoments(*map(self.about_targets, moments))
        return self._summary_of_moments(functions, noise)

    def numbers_per_sample(self):
        layers = self.network.layers
        tensors = [t for layer in layers for t in keras.tree.flatten(layer.output)]
        return max(math.prod(size or 1 for size in tensor.shape[1:]) for tensor in tensors)

    def draw_functions(self, x, num_samples, seed):
        return sampling.draw_functions(self, x, num_samples, seed)

    def input_gradient(self, x, batch_size=1024):
        """Returns the derivative of the predictive mean with respect to the inputs.

        Args:
            x: Array `[N, D_in]`; the model has one input of rank 2.
            batch_size: Rows evaluated at a time.

        Returns:
            NumPy array `[N, D, D_in]` in the user's units.

        Raises:
            ValueError: If the model has several inputs or one of another rank, or `batch_size` is
                not a positive integer.
        """
        batch_size = arguments.checked_count("batch_size", batch_size)
        self._check_one_input("input_gradient")
        self._check_ready()
        (array,) = self._check_inputs(x)
        parts = (array[i : i + batch_size] for i in range(0, len(array), batch_size))
        return np.concatenate([self._jacobian(tf.constant(part)).numpy() for part in parts])

    def _jacobian(self, x):
        with (
            propagation.frozen_scope(),
            tf.GradientTape(watch_accessed_variables=False) as tape,
        ):
            tape.watch(x)
            mean = self.function_moments(x).mean
        return tape.batch_jacobian(mean, x)

    def infer_inputs(self, x_mean, x_variance, y):
        r"""Returns the posterior of uncertain inputs given targets (the inverse problem).

        The inputs are independent Gaussians, and the targets follow the likelihood given f. The
        innovations of the outputs pass back to the inputs (equation 15 of the paper, one layer
        further than in training). The posterior moments are `m + S dm` and `S + S^2 dS`, or with
        full covariances `m + S d` and the diagonal of `S + S G S`. This is exact for a linear
        network with known weights and `covariance="full"`. Other networks are linearised near the
        prior mean, so a prior that is too wide gives misleading results. The model itself does not
        change.

        Args:
            x_mean: Array `[N, X]`, prior means in the user's units.
            x_variance: Array `[N, X]`, prior variances in the user's units squared.
            y: Targets, as for `fit`; NaN is not observed.

        Returns:
            `GaussianMoments` of NumPy arrays `[N, X]` in the user's units.

        Raises:
            ValueError: If the model has several inputs or one of another rank, or data are bad.
        """
        self._check_one_input("infer_inputs")
        self._check_ready()
        (mean,), targets = self._check_data(x_mean, y)
        columns.check_column_names(x_variance, self.input_scalers[0].column_names, "x_variance")
        (variance,) = data.check_inputs(
            x_variance, self.input_tensors, "x_variance", self._standardized_inputs
        )
        if variance.shape != mean.shape or np.any(variance < 0.0):
            raise ValueError(
                "`x_variance` must have the shape of `x_mean` and no negative values. Received: "
                f"x_variance of shape {variance.shape}, a smallest value of {variance.min()}"
            )
        moments = inverse.posterior_inputs(self, *map(tf.constant, (mean, variance, targets)))
        return GaussianMoments(*(part.numpy() for part in moments))

    def _check_one_input(self, method):
        if len(self.input_tensors) != 1 or len(self.input_tensors[0].shape) != 2:
            raise ValueError(
                f"`{method}` needs a model with one input of rank 2. "
                f"Received: inputs={self.input_tensors}"
            )
