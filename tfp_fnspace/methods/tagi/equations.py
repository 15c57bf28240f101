r"""The equations of TAGI, in the order of the paper.

The model is `y = z + v` with noise `v ~ N(0, sigma^2)` (equation 1), where z is the output of a
network. Weights w, biases b, hidden units z and activations a are Gaussians with means m and
variances S. Those of a layer are treated as independent (section 2.3), so every covariance of two
different variables in equations 3 to 6 is 0. A layer is `z = L(a, w) + b`, where L is linear in a
and in w. The paper has dense layers, in which L is the matrix product. The same lines hold for
convolutions and other maps.

    forward
      layer        mz = L(ma, mw) + mb                                              (3), (8) to (10)
                   Sz = L(ma^2 + Sa, Sw) + L(Sa, mw^2) + Sb                         (6), (8) to (10)
      activation   ma = f(mz)      Sa = J^2 Sz      J = f'(mz)                      (11), (12)
    backward
      outputs      dm = (y - mz) / (Sz + sigma^2)     dS = -1 / (Sz + sigma^2)      (14)
      activation   dm_z = J dm_a                      dS_z = J^2 dS_a               (12), (15)
      units        dm_a = VJP_a L(., mw)[dm]          dS_a = VJP_a L(., mw^2)[dS]   (4), (15)
      parameters   dm_w = VJP_w L(ma, .)[dm]          dS_w = VJP_w L(ma^2, .)[dS]   (4), (16)
    posterior      m + S dm        S + S^2 dS                                       (14) to (16)

The paper passes changes of moments backward. Here the *innovations* `dm = (m_z|y - mz) / Sz` and
`dS = (S_z|y - Sz) / Sz^2` travel instead. The gains `J_Z` and `J_theta` of equations 15 and 16 then
need no division by a variance, and what is left of them is a vector-Jacobian product (VJP) of L.

What is elsewhere:

- Equation 14 depends on the likelihood, and is the `innovation` of `tfp_fnspace.likelihoods`: of
  `Gaussian`, of `HierarchicalCategorical` (appendix C and equation 24), and of the others.
  `likelihoods.variance_inference` learns the noise (AGVI, a later paper).
- `propagation` lets a gradient tape carry innovations, so one backward pass runs equations 15 and
  16 through any graph of layers. `training` does this for a batch.
- `covariance` has equations 10 to 16 with full covariances (section 4.1).
- `noise` has the cross-validation of sigma (section 4.2).

References:
    Goulet, Nguyen & Amiri (2021), "Tractable Approximate Gaussian Inference for Bayesian Neural
    Networks", JMLR 22(251).
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from tfp_fnspace.math.expectations import clipped_moments
from tfp_fnspace.typing import Array, Tensor

#: A function `L(a, w)` that is linear in each argument.
LinearMap: TypeAlias = Callable[[Tensor, Tensor], Tensor]

#: The mean and the variance of a Gaussian.
Pair: TypeAlias = tuple[Tensor, Tensor]

#: The mean and the variance of an activation, and its slope J.
MomentsAndSlope: TypeAlias = tuple[Tensor, Tensor, Tensor]

#: Replacement of a variance that a capped update would make non-positive.
VARIANCE_FLOOR = 1e-5

#: Share of a variance that is kept if rounding would leave none after an exact update.
SMALLEST_SHARE = 1e-6

# Forward: sections 2.1 and 2.2 -------------------------------------------------------------------


def bilinear_moments(
    linear_map: LinearMap, mean: Tensor, variance: Tensor | None, kernel: Pair, bias: Pair | None
) -> Pair:
    """Returns the moments of `z = L(a, w) + b` (equations 3, 6 and 10, without covariances).

    Args:
        linear_map: Function `L(a, w)`; every product of an a and a w enters an output at most once,
            with coefficient 1.
        mean: Tensor, mean of a.
        variance: Tensor, variance of a, or `None` for exactly known a.
        kernel: Pair of tensors, mean and variance of w.
        bias: Pair of tensors that broadcast to the output, or `None`.

    Returns:
        Mean and variance of the output.
    """
    kernel_mean, kernel_variance = kernel
    second_moment = tf.square(mean) if variance is None else tf.square(mean) + variance
    out_mean = linear_map(mean, kernel_mean)  # (3)
    out_variance = linear_map(second_moment, kernel_variance)  # (6)
    if variance is not None:
        out_variance += linear_map(variance, tf.square(kernel_mean))
    if bias is not None:
        out_mean += bias[0]  # (10)
        out_variance += bias[1]
    return out_mean, out_variance


def linearized(
    function: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor
) -> MomentsAndSlope:
    """Returns the moments of `a = f(z)`, linearised at the mean (equations 11 and 12).

    Args:
        function: Elementwise TensorFlow function f.
        mean: Tensor, mean of z.
        variance: Tensor of the same shape, variance of z.

    Returns:
        Mean `f(m)`, variance `f'(m)^2 S` and slope `f'(m)`, each with the shape of `mean`.

    Raises:
        ValueError: If the function has no gradient.
    """
    with tf.GradientTape() as tape:
        tape.watch(mean)
        value = function(mean)  # (11)
    slope = tape.gradient(value, mean)
    if slope is None:
        raise ValueError(
            "An activation must be differentiable in TensorFlow. "
            f"Received: activation={function!r}, which has no gradient"
        )
    slope = tf.convert_to_tensor(slope)
    return value, tf.square(slope) * variance, slope  # (12)


# Exact moments of piecewise-linear functions replace equations 11 and 12; they are not in the
# paper. The slope is `cov(z, a) / var(z)`, which is f' where f is linear.


def exact_relu(mean: Tensor, variance: Tensor) -> MomentsAndSlope:
    """Returns exact moments and slope of `max(z, 0)`; the shapes are those of `linearized`."""
    return clipped_moments(mean, variance, 0.0)


def exact_tanh(mean: Tensor, variance: Tensor) -> MomentsAndSlope:
    """Returns exact moments and slope of `clip(z, -1, 1)`, as `exact_relu` does."""
    return clipped_moments(mean, variance, -1.0, 1.0)


def exact_sigmoid(mean: Tensor, variance: Tensor) -> MomentsAndSlope:
    """Returns exact moments and slope of `(1 + clip(z, -1, 1)) / 2`, as `exact_relu` does."""
    centre, spread, slope = clipped_moments(mean, variance, -1.0, 1.0)
    return 0.5 * (1.0 + centre), 0.25 * spread, 0.5 * slope


# Backward: section 2.3, from the innovations of equation 14 on -----------------------------------


def activation_innovations(
    slope: Tensor, mean_innovation: Tensor, variance_innovation: Tensor
) -> Pair:
    """Returns the innovations of z given those of `a = f(z)` (equation 15 through equation 12).

    Args:
        slope: Tensor, `J = cov(z, a) / var(z)`.
        mean_innovation: Tensor of the same shape, dm of a.
        variance_innovation: Tensor of the same shape, dS of a.

    Returns:
        dm and dS of z, tensors of the same shape.
    """
    return slope * mean_innovation, tf.square(slope) * variance_innovation


def bilinear_innovations(
    linear_map: LinearMap,
    mean: Tensor,
    kernel_mean: Tensor,
    bias_mean: Tensor | None,
    mean_innovation: Tensor,
    variance_innovation: Tensor,
) -> list[Tensor]:
    """Returns the innovations of a, w and b given those of `z = L(a, w) + b`.

    The covariances behind them are `cov(a, z) = Sa L(., mw)` and `cov(w, z) = Sw L(ma, .)`, by
    equation 4. One vector-Jacobian product gives dm of all three; another one, with squared
    coefficients, gives dS. A bias is a weight whose input is 1. Innovations of one weight add up
    over the rows, as for a single update of a batch.

    Args:
        linear_map: As for `bilinear_moments`.
        mean: Tensor, mean of a.
        kernel_mean: Tensor, mean of w.
        bias_mean: Tensor, mean of b, or `None` without a bias.
        mean_innovation: Tensor, dm of z.
        variance_innovation: Tensor, dS of z.

    Returns:
        List of tensors: dm and dS of a (equation 15), then of w, then of b if there is one
        (equation 16). Each has the shape of its variable.
    """
    first = _vjp(linear_map, (mean, kernel_mean, bias_mean), mean_innovation)
    squares = tf.square(mean), tf.square(kernel_mean), bias_mean
    second = _vjp(linear_map, squares, variance_innovation)
    return [part for pair in zip(first, second, strict=True) for part in pair]


def _vjp(
    linear_map: LinearMap, arguments: tuple[Tensor, Tensor, Tensor | None], cotangent: Tensor
) -> list[Tensor]:
    """Returns the vector-Jacobian products of `L(a, w) + b` in all its arguments."""
    inputs, kernel, bias = arguments
    sources = [inputs, kernel] + ([] if bias is None else [bias])
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        output = linear_map(inputs, kernel)
        if bias is not None:
            output += bias
    gradients = tape.gradient(output, sources, output_gradients=cotangent)
    return [tf.convert_to_tensor(gradient) for gradient in gradients]  # that of a gather is sparse


# Posterior: equations 14 to 16 in terms of innovations -------------------------------------------


def posterior(
    mean: Tensor, variance: Tensor, mean_innovation: Tensor, variance_innovation: Tensor
) -> Pair:
    """Returns the posterior moments `m + S dm` and `S + S^2 dS`.

    Args:
        mean: Tensor, prior mean m.
        variance: Tensor of the same shape, prior variance S.
        mean_innovation: Tensor of the same shape, dm.
        variance_innovation: Tensor of the same shape, dS.

    Returns:
        Posterior mean and variance.
    """
    return (
        mean + variance * mean_innovation,
        variance + tf.square(variance) * variance_innovation,
    )


def exact_update(
    mean: Tensor, variance: Tensor, mean_innovation: Tensor, variance_innovation: Tensor
) -> Pair:
    """Returns the posterior moments of a parameter after one observation (equation 16, no cap).

    The arguments and results are those of `posterior`; the variance is that of `positive`.
    """
    new_mean, new_variance = posterior(mean, variance, mean_innovation, variance_innovation)
    return new_mean, positive(new_variance, variance)


def positive(new_variance: Tensor, variance: Tensor) -> Tensor:
    """Returns a posterior variance that is positive if the prior variance is.

    Rounding, or a layer that one graph uses twice, may reduce a variance to zero or below. It then
    keeps a millionth of its value, so that later steps stay finite.

    Args:
        new_variance: Tensor, posterior variance.
        variance: Tensor of the same shape, prior variance.
    """
    return tf.where(new_variance > 0.0, new_variance, SMALLEST_SHARE * variance)


def capped_update(
    mean: Tensor,
    variance: Tensor,
    mean_innovation: Tensor,
    variance_innovation: Tensor,
    cap: Tensor,
) -> Pair:
    """Returns the posterior moments after a batch, with each change limited to `sqrt(S) / cap`.

    The paper makes a single update for all rows of a batch (section 2.3) and leaves open what keeps
    their sum from overshooting. A variance that would become 0 or less becomes `VARIANCE_FLOOR`. A
    variance of 0 (a constant) stays 0.

    Args:
        mean: Tensor, prior mean.
        variance: Tensor of the same shape, prior variance.
        mean_innovation: Tensor of the same shape, the sum of dm over the batch.
        variance_innovation: Tensor of the same shape, the sum of dS over the batch.
        cap: Scalar, see `cap_factor`.

    Returns:
        Posterior mean and variance.
    """
    limit = tf.sqrt(variance) / cap
    step = tf.clip_by_value(variance * mean_innovation, -limit, limit)
    change = tf.clip_by_value(tf.square(variance) * variance_innovation, -limit, limit)
    new_variance = variance + change
    floor = tf.where(variance > 0.0, tf.constant(VARIANCE_FLOOR, variance.dtype), 0.0)
    return mean + step, tf.where(new_variance > 0.0, new_variance, floor)


def cap_factor(batch_size: Tensor | int, dtype: tf.DType | str) -> Tensor:
    """Returns the strength of the cap of a step, given the number of rows in the batch.

    Args:
        batch_size: Scalar integer tensor or integer.
        dtype: Dtype of the result.

    Returns:
        Scalar tensor: 0.1 for one row, 2 up to 255 rows, 3 from 256.
    """
    one, some, many = (tf.constant(value, dtype) for value in (0.1, 2.0, 3.0))
    return tf.where(batch_size == 1, one, tf.where(batch_size < 256, some, many))


# Priors: section 4 -------------------------------------------------------------------------------


def prior_variance(rule: str, fan_in: float, fan_out: float, gain: float) -> float:
    """Returns the prior variance of a weight; prior means are drawn from N(0, variance).

    Args:
        rule: `"he"` for `gain^2 / fan_in`; anything else means `2 gain^2 / (fan_in + fan_out)`, the
            rule of Glorot & Bengio, whom sections 4.1 to 4.3 follow.
        fan_in: Number of inputs that an output sums over.
        fan_out: Number of outputs that an input reaches.
        gain: Positive number.
    """
    variance = 1.0 / fan_in if rule == "he" else 2.0 / (fan_in + fan_out)
    return gain**2 * variance


# Learnt constant noise replaces the cross-validation of section 4.2; it is not in the paper. The
# noise has the variance `min_scale^2 + exp(u)`, where u is a Gaussian parameter without inputs. It
# learns by `likelihoods.variance_inference.noise_innovation`.


def log_variance_mean(scale: Array, min_scale: float, variance: float) -> Array:
    """Returns the mean of u for which the mean variance of the noise is `scale^2`.

    Args:
        scale: Array `[]` or `[D]`, larger than `min_scale`.
        min_scale: Smallest standard deviation of the noise.
        variance: Variance of u.

    Returns:
        Array with the shape of `scale`.
    """
    return np.log(scale**2 - min_scale**2) - 0.5 * variance


def noise_scale(mean: Tensor, variance: Tensor, min_scale: float) -> Tensor:
    """Returns the square root of the mean variance of the noise, `min_scale^2 + E exp(u)`.

    Args:
        mean: Tensor `[]` or `[D]`, mean of u.
        variance: Tensor of the same shape, variance of u.
        min_scale: Smallest standard deviation of the noise.

    Returns:
        Tensor of the same shape.
    """
    return tf.sqrt(min_scale**2 + tf.exp(mean + 0.5 * variance))
