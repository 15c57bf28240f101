"""Several short epochs in one call of a compiled function."""

import collections
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tfp_fnspace.typing import ArrayLike

#: For about how many seconds epochs are computed before their callbacks are called.
_AHEAD_SECONDS = 0.25


class EpochsAhead:
    """Runs several short epochs at once, and reports them one after the other.

    A call of a compiled function costs milliseconds, more than an epoch of few rows. The weights
    are about a quarter of a second ahead of the epoch that is reported.

    Args:
        run: Function of a number of epochs that returns a dict of arrays with one value per epoch.
        num_epochs: Total number of epochs to run.
        looks_every: Whenever the number of epochs so far is a multiple of this number, the weights
            must be those of the reported epoch.
        num_before: Number of epochs that were run before.
    """

    def __init__(
        self,
        run: Callable[[int], dict[str, ArrayLike]],
        num_epochs: int,
        looks_every: int,
        num_before: int = 0,
    ):
        self.run, self.left, self.looks_every, self.done = run, num_epochs, looks_every, num_before
        self.told, self.calls, self.seconds = collections.deque(), 0, 0.0

    def __call__(self) -> dict[str, Any]:
        """Returns the logs of the next epoch."""
        if not self.told:
            count = int(_AHEAD_SECONDS / max(self.seconds, 1e-6)) if self.calls > 1 else 1
            until_look = self.looks_every - self.done % self.looks_every
            count = max(1, min(count, self.left, until_look))
            start = time.perf_counter()
            logs = {name: np.asarray(values) for name, values in self.run(count).items()}
            self.seconds = (time.perf_counter() - start) / count
            self.told.extend({name: v[i] for name, v in logs.items()} for i in range(count))
            self.calls += 1  # the first call may trace
            self.left, self.done = self.left - count, self.done + count
        return self.told.popleft()
