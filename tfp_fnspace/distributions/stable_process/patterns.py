"""Signs of hyperplanes at points, which are all that the process uses of its inputs."""

import numpy as np

from tfp_fnspace.typing import Array


def signs_at(hyperplanes: Array, points: Array) -> Array:
    """Returns tau, `sign(h_l . (1, x))` with `sign(0) = 1`.

    Args:
        hyperplanes: Array `[L, I+1]`.
        points: Array `[N, I]`.

    Returns:
        float64 array `[L, N]` of -1 and +1.
    """
    sides = hyperplanes[:, 1:] @ points.T + hyperplanes[:, :1]
    return np.where(sides >= 0.0, 1.0, -1.0)


def merged(signs: Array, probabilities: Array) -> tuple[Array, Array]:
    """Merges patterns that are equal up to the sign.

    Atoms with the same pattern act as one atom with their total probability, since the sum of their
    terms has the distribution of one term. At a single point all atoms have the same pattern.

    Args:
        signs: Array `[L, N]`.
        probabilities: Array `[L]`.

    Returns:
        Patterns `[G, N]`, +1 at the first point, and their probabilities `[G]`.
    """
    patterns, index = np.unique(signs * signs[:, :1], axis=0, return_inverse=True)
    return patterns, np.bincount(index.reshape(-1), weights=probabilities)
