"""The seed and the counters of a model as weights, so that a restored model continues the run."""

import zlib
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from tfp_fnspace.model.seeds import Seeds
from tfp_fnspace.typing import Array, Tensor

#: Number of rows by which data are told apart from other data.
_ROWS_TO_COMPARE = 256


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Counters(keras.layers.Layer):
    """Counts steps and epochs, and knows where an epoch began that was stopped midway.

    Args:
        seed: Non-negative integer, or `None` for one drawn by NumPy's global generator.
        **kwargs: `name`, `dtype`.

    Attributes:
        steps: Finished training steps, a scalar weight.
        epochs: Finished epochs, a scalar weight.
        rows: Number of rows that the last `fit` trained on, a scalar weight.
        mean_weight: Mean weight of these rows, 1 without weights, a scalar weight of the layer.
        seeds: `Seeds` of the model.
        first_batch: The batch at which the current epoch begins: not 0 if it was interrupted.
        epoch_of: The number of steps of an epoch of this `fit` (0 if unknown), and a number that
            identifies its data (0 for none).
    """

    def __init__(self, seed: int | None = None, **kwargs: Any):
        super().__init__(autocast=False, **{"trainable": False, "name": "counters", **kwargs})
        options = {"trainable": False, "initializer": "zeros"}
        self.seed_state = self.add_weight(name="seed", shape=(2,), dtype="int32", **options)
        self.seed_state.assign(Seeds.initial_state(seed))
        self.epochs = self.add_weight(name="epochs", dtype="int32", **options)
        self.steps = self.add_weight(name="steps", dtype="int64", **options)
        self.rows = self.add_weight(name="rows", dtype="int64", **options)
        # The counts of steps and epochs at which the current epoch began, its number of steps, and
        # a number for its data. All are zero when no epoch is under way.
        self.epoch_start = self.add_weight(name="epoch_start", shape=(4,), dtype="int64", **options)
        options.update(initializer="ones", autocast=False)
        self.mean_weight = self.add_weight(name="mean_weight", dtype="float64", **options)
        self.seeds = Seeds(self.seed_state)
        self.first_batch, self.epoch_of = 0, (0, 0)
        self.built = True

    @property
    def has_steps(self) -> bool:
        """Whether the model has learnt something."""
        return bool(self.steps.numpy())

    def step_seed(self) -> Tensor:
        """Returns the seed of the next step, an int32 tensor `[2]`."""
        return self.seeds.step(self.steps.value)

    def epoch_order(self, num_rows: int, shuffle: bool = True, ahead: int = 0) -> Array:
        """Returns the order of in-memory rows in the epoch `ahead` epochs from now, `[N]`."""
        return self.seeds.epoch_order(int(self.epochs.numpy()) + ahead, num_rows, shuffle)

    def begin_epochs(self) -> None:
        """Continues an epoch that was stopped midway, or records that a new one begins here."""
        steps, epochs, *epoch_of = self.epoch_start.numpy().tolist()
        num_batches, described = self.epoch_of
        done = int(self.steps.numpy()) - steps
        done -= num_batches * (int(self.epochs.numpy()) - epochs)
        is_midway = described and epoch_of == [num_batches, described] and 0 < done < num_batches
        self.first_batch = done if is_midway else 0
        if not is_midway:
            counts = [int(self.steps.numpy()), int(self.epochs.numpy())]
            self.epoch_start.assign([*counts, *self.epoch_of])

    def forget_epoch(self) -> None:
        """Records that no epoch was stopped midway, so that the next `fit` begins a new one."""
        self.epoch_start.assign([0, 0, 0, 0])

    def count_whole_epochs(self) -> int:
        """Counts the epochs whose steps are done but that were not reported to callbacks.

        Returns:
            Their number.
        """
        steps, epochs, num_batches, _ = self.epoch_start.numpy().tolist()
        if not num_batches:
            return 0
        whole = epochs + (int(self.steps.numpy()) - steps) // num_batches
        missing = max(whole - int(self.epochs.numpy()), 0)
        self.epochs.assign_add(missing)
        return missing

    def settle(self, before: Iterable[tuple[keras.Variable, Array]]) -> None:
        """Corrects the counters after a `fit` that was stopped.

        Args:
            before: Pairs of weights and their values before the first `fit`. The values are
                restored if no step was done.
        """
        self.first_batch = 0
        if not self.has_steps:
            for weight, value in before:
                weight.assign(value)
            return
        self.count_whole_epochs()
        steps, _, num_batches, described = self.epoch_start.numpy().tolist()
        is_stream = not described  # a stream cannot continue midway
        if is_stream or (int(self.steps.numpy()) - steps) % num_batches == 0:
            self.forget_epoch()


def description(arrays: Iterable[Array], batch_size: int, shuffle: bool) -> int:
    """Returns a positive number that identifies arrays and their batches, from some of the rows."""
    number = zlib.crc32(f"{batch_size} {bool(shuffle)}".encode())
    for array in arrays:
        rows = np.ascontiguousarray(array[:: -(-len(array) // _ROWS_TO_COMPARE)])
        number = zlib.crc32(rows.tobytes(), zlib.crc32(f"{array.shape}".encode(), number))
    return number + 1
