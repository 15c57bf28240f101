"""The random streams of a model: functions of its seed and of its counters, which are weights."""

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.layers import networks
from tfp_fnspace.math.random import base_seed, fold_in, permutation
from tfp_fnspace.typing import Array, Seed, Tensor

#: Name of a stream -> the number that is folded into the seed. Steps are numbers from 0. The
#: stable process draws by no other steps than its own, whose streams have such numbers.
_STREAMS = {
    "predict": -1,  # the draws that all predictions share
    "likelihood": -2,  # nodes of a likelihood without a closed form
    "prior": -3,  # draws of a prior that all predictions share, and what a prior starts with
    "start": 0,  # stable process: where chains start
    "sweeps": 1,  # stable process: what chains draw
    "folds": 2,  # stable process: chains of cross-validation
}

#: Name of a part -> the number that is folded into the seed of a step or of a prediction, beside
#: the seeds that `split` makes of it.
_PARTS = {
    "layers": -10,  # the noise of Keras layers, such as dropout
    "prior weights": -1,  # SIP: the divergence of the weights of the prior
    "first set": -1,  # SIP: which of the prior's sets of draws is the first
    "random points": -1,  # fBNN: the points at which the divergence is estimated for `History`
    "fewer points": 3,  # fBNN: the points of a step, if there are not enough draws for all
    "input noise": -1,  # TAGI: the noise of uncertain inputs
    "recurrent kernel": 2,  # TAGI: the kernel of the hidden state; kernel and bias are 0 and 1
}

#: In place of the number of an epoch: the order in which rows are taken for an initialisation.
_OF_ROWS = 2**31 - 1


class Seeds:
    """Stateless seeds by name; a restored model continues with the same ones.

    Args:
        state: Integer variable `[2]`, see `initial_state`.
    """

    def __init__(self, state: keras.Variable):
        self.state = state

    @staticmethod
    def initial_state(seed: int | None) -> Array:
        """Returns the two numbers for a seed, or for one drawn by NumPy's global generator.

        Args:
            seed: Non-negative integer, or `None`. (`keras.utils.set_random_seed` sets the
                generator.)
        """
        return base_seed(np.random.randint(2**31) if seed is None else seed)

    def stream(self, name: str) -> Tensor:
        """Returns the seed of a stream, an int32 tensor `[2]`."""
        return fold_in(tf.convert_to_tensor(self.state), _STREAMS[name])

    def of_layer(self, number: int) -> Tensor:
        """Returns the seed with which a layer starts, by its place, an int32 tensor `[2]`."""
        return fold_in(tf.convert_to_tensor(self.state), number)

    def integers(self, count: int) -> list[int]:
        """Returns non-negative integers that follow from the seed, for Keras's initializers."""
        states = np.random.SeedSequence([int(v) % 2**32 for v in self.state.numpy()])
        return [int(v) for v in states.generate_state(count) % 2**30]

    def step(self, number: int | Tensor) -> Tensor:
        """Returns the seed of a training step, an int32 tensor `[2]`."""
        return fold_in(tf.convert_to_tensor(self.state), number)

    def number(self) -> int:
        """Returns a non-negative integer that follows from the seed, for NumPy."""
        return int(np.abs(self.state.numpy().astype(np.int64)).sum())

    def epoch_order(self, epoch: int, num_rows: int, shuffle: bool = True) -> Array:
        """Returns the order of the rows in an epoch, an int32 array `[N]`."""
        if not shuffle:
            return np.arange(num_rows, dtype=np.int32)
        return permutation(self.state.numpy(), epoch, num_rows)

    def row_order(self, num_rows: int) -> Array:
        """Returns the order in which an initialisation takes rows, an int32 array `[N]`."""
        return permutation(self.state.numpy(), _OF_ROWS, num_rows)


def part(seed: Seed, name: str) -> Tensor:
    """Returns the seed of a part of a step or of a prediction, an int32 tensor `[2]`.

    Args:
        seed: int32 tensor `[2]`.
        name: Name of the part.
    """
    return fold_in(seed, _PARTS[name])


def seed_layers(model: keras.Model, seed: Seed) -> None:
    """Seeds the noise of a model's Keras layers (such as dropout) with the seed of a step."""
    for i, generator in enumerate(networks.seed_generators(model)):
        own = tf.bitcast(fold_in(part(seed, "layers"), i), tf.uint32)
        generator.state.assign(tf.cast(own, generator.state.dtype))
