"""Weights of rows, in the terms of an objective."""

from tfp_fnspace.typing import Tensor


def weighted(terms: Tensor, row_weights: Tensor | None) -> Tensor:
    """Multiplies the term of each row by its weight.

    Args:
        terms: Tensor `[..., N]`.
        row_weights: Tensor `[N]`, or `None` for weights of 1.
    """
    return terms if row_weights is None else terms * row_weights
