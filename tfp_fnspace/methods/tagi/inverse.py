"""From outputs back to inputs: derivatives, and the posterior of uncertain inputs."""

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import columns, data
from tfp_fnspace.methods.tagi import equations, propagation, training
from tfp_fnspace.typing import Array, GaussianMoments, Rows, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.methods.tagi.model import TAGIModel


def check_one_input(model: "TAGIModel", method: str) -> None:
    """Raises an error, with the name of a method, unless a model has one input of rank 2."""
    if len(model.input_tensors) != 1 or len(model.input_tensors[0].shape) != 2:
        raise ValueError(
            f"`{method}` needs a model with one input of rank 2. "
            f"Received: inputs={model.input_tensors}"
        )


def jacobian(model: "TAGIModel", x: Tensor) -> Tensor:
    """Returns the derivatives of the predictive mean, see `TAGIModel.input_gradient`.

    Args:
        model: `TAGIModel` with one input.
        x: Tensor `[N, X]` in the user's units.

    Returns:
        Tensor `[N, D, X]` in the user's units.
    """
    with propagation.frozen_scope(), tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        mean = model.function_moments(x).mean
    return tape.batch_jacobian(mean, x)


def checked_prior(
    model: "TAGIModel", x_mean: Rows, x_variance: Rows, y: Rows
) -> tuple[Array, Array, Array]:
    """Checks the arguments of `TAGIModel.infer_inputs`.

    Returns:
        Arrays of the prior means `[N, X]`, the prior variances `[N, X]` and the targets `[N, D]`.
    """
    check_one_input(model, "infer_inputs")
    model.check_ready()
    (mean,), targets = model.checks.data(x_mean, y)
    names = model.units.input_scalers[0].column_names
    columns.check_column_names(x_variance, names, "x_variance")
    (variance,) = data.check_inputs(
        x_variance, model.input_tensors, "x_variance", model.units.in_users_units
    )
    if variance.shape != mean.shape or np.any(variance < 0.0):
        raise ValueError(
            "`x_variance` must have the shape of `x_mean` and no negative values. Received: "
            f"x_variance of shape {variance.shape}, a smallest value of {variance.min()}"
        )
    return mean, variance, targets


def posterior(
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
    targets, observed = training.without_missing(model, targets)
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
