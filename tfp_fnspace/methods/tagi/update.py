r"""Updates of parameters from innovations.

Both rules take the sums over a batch of the products `g = VJP_w L(ma, .)[dm]` and `h = VJP_w
L(ma^2, .)[dS]`. They add `S g` to the mean and `S^2 h` to the variance.
"""

import tensorflow as tf

#: Replacement of a variance that a capped update would make non-positive.
VARIANCE_FLOOR = 1e-5

#: Share of a variance that is kept if rounding would leave none after an exact update.
SMALLEST_SHARE = 1e-6


def cap_factor(batch_size, dtype):
    """Returns the strength of the cap of a step, given the number of rows in the batch.

    Args:
        batch_size: Scalar integer tensor or integer.
        dtype: Dtype of the result.

    Returns:
        Scalar tensor: 0.1 for one row, 2 up to 255 rows, 3 from 256.
    """
    one, some, many = (tf.constant(value, dtype) for value in (0.1, 2.0, 3.0))
    return tf.where(batch_size == 1, one, tf.where(batch_size < 256, some, many))


def capped(mean, variance, mean_innovation, variance_innovation, cap):
    """Returns the posterior moments with each change limited to `sqrt(S) / cap`.

    A variance that would become 0 or less becomes `VARIANCE_FLOOR`. A variance of 0 (a constant)
    stays 0.

    Args:
        mean: Tensor, prior mean.
        variance: Tensor of the same shape, prior variance.
        mean_innovation: Sum of `g` over the batch.
        variance_innovation: Sum of `h` over the batch.
        cap: Scalar, see `cap_factor`.

    Returns:
        Posterior mean and variance.
    """
    limit = tf.sqrt(variance) / cap
    step = tf.clip_by_value(variance * mean_innovation, -limit, limit)
    change = tf.clip_by_value(tf.square(variance) * variance_innovation, -limit, limit)
    posterior = variance + change
    floor = tf.where(variance > 0.0, tf.constant(VARIANCE_FLOOR, variance.dtype), 0.0)
    return mean + step, tf.where(posterior > 0.0, posterior, floor)


def exact(mean, variance, mean_innovation, variance_innovation):
    """Returns the posterior moments after one observation (equation 16 of the paper, no cap).

    Rounding, or a layer that one graph uses twice, may reduce the variance to zero or below. It
    then keeps a millionth of its value, so that later steps stay finite.

    The arguments and results are those of `capped`, for one row.
    """
    posterior = variance + tf.square(variance) * variance_innovation
    posterior = tf.where(posterior > 0.0, posterior, SMALLEST_SHARE * variance)
    return mean + variance * mean_innovation, posterior
