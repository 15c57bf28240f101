r"""The positive stable distribution: `E exp(-l s) = exp(-l^a)`, 0 < a < 1, in logarithms.

Kanter's representation `s = (A(u)/e)^{(1-a)/a}` gives, with `r = a/(1-a)` and `g = log A(u) - r y`,

    P(log s <= y) = int_0^1 exp(-e^g) du,    p(y) = r int_0^1 e^g exp(-e^g) du.
"""

import tensorflow as tf

from tfp_fnspace.math.stable.zolotarev import Geometry, log_density_integral, log_tail_integrals
from tfp_fnspace.typing import Tensor

# From log s = _FAR / a on, log density and log survival are linear to all digits.
_FAR = 600.0


def _level(log_s, index):
    """Returns level and geometry of the integrals, and the linear tail's term in logarithms."""
    inside = tf.minimum(log_s, _FAR / index)
    geometry = Geometry(index, tf.ones_like(index), tf.zeros_like(index), 1.0 - index)
    return -index / (1.0 - index) * inside, geometry, index * (inside - log_s)


def log_density_of_log(log_s: Tensor, index: Tensor) -> Tensor:
    """Returns the logarithm of the density of log s, at log s.

    Args:
        log_s: float64 tensor.
        index: a in (0, 1), float64 tensor that broadcasts with `log_s`.

    Returns:
        Tensor of the broadcast shape.
    """
    level, geometry, tail = _level(log_s, index)
    return tf.math.log(index / (1.0 - index)) + log_density_integral(level, geometry, True) + tail


def log_probabilities_of_log(log_s: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Returns `log P(s <= exp(log_s))` and `log P(s > exp(log_s))`.

    Args:
        log_s: float64 tensor.
        index: a in (0, 1), float64 tensor that broadcasts with `log_s`.

    Returns:
        Two tensors of the broadcast shape.
    """
    level, geometry, tail = _level(log_s, index)
    log_below, log_above = log_tail_integrals(level, geometry, True)
    return log_below, log_above + tail
