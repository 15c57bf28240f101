"""Bijectors that TFP lacks.

TFP has the other maps that covariance parameters need: a positive number with a floor is
`tfb.Softplus(low=floor)`, a lower triangle with a positive diagonal is `tfb.FillScaleTriL`.
"""

from tfp_fnspace.bijectors.low_rank_outer_product import LowRankOuterProduct
from tfp_fnspace.bijectors.positive_definite_inverse import PositiveDefiniteInverse

__all__ = ["LowRankOuterProduct", "PositiveDefiniteInverse"]
