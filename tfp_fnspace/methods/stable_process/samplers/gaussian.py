"""The Gaussian distribution of the targets given the scales, and its precision matrix."""

import math

import tensorflow as tf


def covariance_shape(totals, problem):
    """Returns `sum_g S_g tau_g tau_g^T`, the covariance of f on the data divided by nu.

    Args:
        totals: `[B, G]`, the groups' shares S.
        problem: `Problem`.

    Returns:
        `[B, N, N]`.
    """
    signs = problem.signs
    return tf.matmul(signs * totals[:, tf.newaxis, :], signs, transpose_b=True)


def spectrum(totals, noise_weights, problem):
    """Returns the spectrum of the covariance of f, divided by nu; noise is whitened to sigma^2.

    Args:
        totals: `[B, G]`.
        noise_weights: `[B, N]`.
        problem: `Problem`.

    Returns:
        Eigenvalues `[B, N]`, eigenvectors `[B, N, N]` and squared coordinates `[B, N]` of the
        whitened targets.
    """
    root = tf.sqrt(noise_weights)
    shape = covariance_shape(totals, problem)
    values, vectors = tf.linalg.eigh(shape / (root[:, :, tf.newaxis] * root[:, tf.newaxis, :]))
    coordinates = tf.linalg.matvec(vectors, problem.targets / root, transpose_a=True)
    return tf.nn.relu(values), vectors, tf.square(coordinates)


def log_likelihood_of_spectrum(values, squares, log_noise, log_nu):
    """Returns `log N(y; 0, Q)` up to the determinant of the noise weights, `[..., B]`."""
    variance = tf.exp(log_nu)[..., tf.newaxis] * values + tf.exp(log_noise)[..., tf.newaxis]
    terms = tf.math.log(2.0 * math.pi * variance) + squares / variance
    return -0.5 * tf.reduce_sum(terms, axis=-1)


def precision_of_spectrum(values, vectors, noise_weights, log_noise, log_nu):
    """Returns `Q^-1`, `[B, N, N]`."""
    variance = tf.exp(log_nu)[:, tf.newaxis] * values + tf.exp(log_noise)[:, tf.newaxis]
    whitened = vectors / tf.sqrt(noise_weights)[:, :, tf.newaxis]
    return tf.matmul(whitened / variance[:, tf.newaxis, :], whitened, transpose_b=True)


def cholesky_of_covariance(totals, state, problem):
    """Returns the Cholesky factor of Q = nu sum_g S_g tau_g tau_g^T + sigma^2 W, `[B, N, N]`."""
    shape = covariance_shape(totals, problem)
    return cholesky_of_shape(shape, state.noise_weights, state.log_noise, state.log_nu)


def cholesky_of_shape(shape, noise_weights, log_noise, log_nu):
    """Returns the Cholesky factor of Q given `covariance_shape`, `[B, N, N]`."""
    covariance = tf.exp(log_nu)[:, tf.newaxis, tf.newaxis] * shape
    noise = tf.exp(log_noise)[:, tf.newaxis] * noise_weights
    return tf.linalg.cholesky(
        tf.linalg.set_diag(covariance, tf.linalg.diag_part(covariance) + noise)
    )


def precision_of_cholesky(factor):
    """Returns `Q^-1`, `[B, N, N]`."""
    identity = tf.eye(factor.shape[-1], batch_shape=factor.shape[:1], dtype=factor.dtype)
    inverse = tf.linalg.triangular_solve(factor, identity)
    return tf.matmul(inverse, inverse, transpose_a=True)


def log_likelihood(factor, targets):
    """Returns `log N(y; 0, L L^T)`, `[B]`."""
    whitened = tf.linalg.triangular_solve(factor, targets[:, :, tf.newaxis])[:, :, 0]
    half_log_determinant = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)
    constant = 0.5 * math.log(2.0 * math.pi) * targets.shape[-1]
    return -0.5 * tf.reduce_sum(whitened**2, axis=-1) - half_log_determinant - constant


def log_ratio(change, curvature, slope):
    """Returns the change of `log N(y; 0, Q)` when `change tau tau^T` is added to Q.

    Args:
        change: Tensor d.
        curvature: `tau^T Q^-1 tau`.
        slope: `tau^T Q^-1 y`.

    Returns:
        `-log(1 + d c)/2 + d m^2 / (2 (1 + d c))`.
    """
    factor = 1.0 + change * curvature
    return 0.5 * (change * tf.square(slope) / factor - tf.math.log(factor))
