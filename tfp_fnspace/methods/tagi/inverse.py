"""The posterior of uncertain inputs given targets."""

from typing import TYPE_CHECKING

import tensorflow as tf

from tfp_fnspace.methods.tagi import equations, propagation, training
from tfp_fnspace.typing import GaussianMoments, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.methods.tagi.model import TAGIModel


def posterior_inputs(
    model: "TAGIModel", mean: Tensor, variance: Tensor, targets: Tensor
) -> GaussianMoments:
    """Returns the posterior moments of the inputs, see `TAGIModel.infer_inputs`.

    Args:
        model: `TAGIModel` with one input.
        mean: Tensor `[N, X]`, prior mean in the user's units.
        variance: Tensor `[N, X]`, prior variance in the user's units squared.
        targets: Tensor `[N, D]` in the user's units; NaN is missing.

    Returns:
        `GaussianMoments` of tensors `[N, X]` in the user's units.
    """
    (scaler,) = model.units.input_scalers
    prior = GaussianMoments(scaler(mean), scaler.scale_variance(variance))
    targets = model.units.target_scaler(model.checks.as_columns(targets))
    observed = tf.logical_not(tf.math.is_nan(targets))
    targets = tf.where(observed, targets, tf.zeros_like(targets))
    infer = _with_covariances if model.chain is not None else _independent
    mean, variance = infer(model, prior, targets, observed)
    variance = tf.cast(variance, tf.float64) * tf.square(scaler.stddev.value)
    return GaussianMoments(scaler.inverse(mean), variance)


def _independent(model, prior, targets, observed):
    network = model.noisy_network()
    with (
        propagation.frozen_scope(),
        propagation.innovation_scope(),
        tf.GradientTape(watch_accessed_variables=False) as tape,
    ):
        tape.watch(prior)
        moments = model.with_learned_noise(GaussianMoments(*network(list(prior))))
    innovations = training.output_innovations(model, moments, targets, observed)
    first, second = tape.gradient(list(moments), list(prior), output_gradients=innovations)
    return equations.posterior(*prior, first, second)


def _with_covariances(model, prior, targets, observed):
    mean, variance = prior
    noise = model.likelihood.noise_variance()
    _, pairs = model.chain.innovations(mean, variance, targets, observed, noise)
    vector, matrix = pairs[0]
    return equations.posterior(mean, variance, vector, tf.linalg.diag_part(matrix))
