"""Atoms of the distribution of a random hyperplane, and their sign patterns on given points."""

import dataclasses
from typing import NamedTuple

import numpy as np

from tfp_fnspace.boundary.arguments import checked_choice
from tfp_fnspace.methods.stable_process.hyperplanes.checks import (
    checked_points,
    checked_probabilities,
)
from tfp_fnspace.typing import Array, ArrayLike

KINDS = ("exact", "refined", "sampled")

#: A cell counts if a hyperplane in it keeps this distance (the sine of an angle) from every point.
#: Rounding changes `b + w.x` by up to 1e-15; thinner cells come and go with the rounding of `x`.
MARGIN = 1e-14

#: Probability that may be missing from the total because of cells thinner than `MARGIN`.
_LOST = 1e-8

#: Numbers in one block of `Partition.signs`: 32 MB.
_BLOCK = 4_000_000


class Groups(NamedTuple):
    """Atoms with the same sign pattern, up to the sign, on some points.

    Attributes:
        signs: int8 array `[N, G]` of -1 and +1: the patterns, +1 at the first point. Distinct
            columns, in the order in which the atoms first show them.
        index: int32 array `[L]`, the group of each atom.
        probabilities: float64 array `[G]`, the probabilities of the patterns; they sum to 1.
    """

    signs: np.ndarray
    index: np.ndarray
    probabilities: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """Hyperplanes ("atoms") with probabilities that stand for a random hyperplane.

    For every kind, `sum_l q_l tau_l(x) tau_l(x')` is `1 - (2/pi) angle((1, x), (1, x'))`. This is
    exact for the points from which an exact or refined partition was made, and approximate
    otherwise.

    Attributes:
        hyperplanes: float64 array `[L, I+1]`, unit vectors (b, w); (b, w) and -(b, w) are the
            same atom.
        probabilities: float64 array `[L]`, positive, sum 1.
        kind: `"exact"` (one atom strictly inside each cell), `"refined"` (one or more in each cell)
            or `"sampled"`.

    Raises:
        ValueError: If the shapes, the probabilities or the kind are not as described, or a
            hyperplane is not finite.
    """

    hyperplanes: np.ndarray
    probabilities: np.ndarray
    kind: str

    def __post_init__(self):
        checked_choice("kind", self.kind, KINDS)
        shape = np.shape(self.hyperplanes)
        if len(shape) != 2 or shape[0] < 1 or shape[1] < 2:
            raise ValueError(
                f"`hyperplanes` must have shape [L, I+1]. Received: hyperplanes.shape={shape}"
            )
        checked_points(self.hyperplanes, name="hyperplanes")
        checked_probabilities(self.probabilities, shape[0])

    @property
    def num_atoms(self) -> int:
        """The number L of atoms."""
        return self.hyperplanes.shape[0]

    @property
    def num_inputs(self) -> int:
        """The number I of inputs."""
        return self.hyperplanes.shape[1] - 1

    def signs(self, x: ArrayLike) -> Array:
        """Returns the side of each hyperplane on which each point lies.

        Args:
            x: Array `[N, I]`.

        Returns:
            int8 array `[N, L]`: +1 where `b + w.x >= 0`, else -1.

        Raises:
            ValueError: If `x` has another width, or is not finite.
        """
        x = checked_points(x, self.num_inputs)
        bias, weights = self.hyperplanes[:, 0], self.hyperplanes[:, 1:].T
        signs = np.empty((len(x), self.num_atoms), np.int8)
        rows = max(1, _BLOCK // self.num_atoms)
        for start in range(0, len(x), rows):
            block = slice(start, start + rows)
            signs[block] = np.where(x[block] @ weights + bias >= 0.0, 1, -1)
        return signs

    def groups(self, x: ArrayLike) -> Groups:
        """Groups the atoms by their pattern on the rows of `x`.

        The likelihood at `x` depends on an atom through its group only.

        Args:
            x: Array `[N, I]`.

        Returns:
            `Groups`.

        Raises:
            ValueError: If `x` has another width, or is not finite.
        """
        signs = canonical(self.signs(x))
        _, first, index = np.unique(keys(signs), return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        index = rank[index.reshape(-1)]
        return Groups(
            signs=signs[:, first[order]],
            index=index.astype(np.int32),
            probabilities=np.bincount(index, weights=self.probabilities),
        )


def canonical(signs: Array) -> Array:
    """Merges tau and -tau: patterns `[N, L]` are turned to +1 at the first point."""
    return signs * signs[:1]


def keys(signs: Array) -> Array:
    """Returns patterns `[N, L]` of -1 and +1 as L byte strings, equal where the patterns are."""
    packed = np.ascontiguousarray(np.packbits(signs > 0, axis=0).T)  # [L, ceil(N / 8)]
    return packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)


def unit(vectors: Array) -> Array:
    """Returns vectors along the last axis, divided by their length."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def normalized(probabilities: Array) -> Array:
    """Returns probabilities with sum 1 from the probabilities of the cells that float64 resolves.

    Raises:
        ValueError: If more is missing than thin cells can hold.
    """
    total = probabilities.sum()
    if not abs(total - 1.0) < _LOST:
        raise ValueError(
            "Cells that float64 resolves must hold all of the probability; rescale `x`. "
            f"Received: cells with a total probability of {total:.9g}"
        )
    return probabilities / total
