"""The state of a `StableProcessModel` in weights: partition, data, chains, draws."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import notices
from tfp_fnspace.methods.stable_process.hyperplanes import Partition
from tfp_fnspace.methods.stable_process.samplers import ChainState, Draws
from tfp_fnspace.typing import Array, Tensor

#: Bytes that the weights may take; a `.keras` file and an export then stay under 50 MB.
MAX_BYTES = 40_000_000

#: Smallest number of draws kept of each chain: fewer have no diagnostics.
_LEAST_DRAWS = 4

_COUNTERS = ("epochs", "drawn", "stored", "stride")


class ChainStore(keras.layers.Layer):
    """Weights whose shapes follow from the data.

    Chain `d * chains + c` is chain c of output d. When the places for draws are full, every second
    draw is dropped, and from then on also every second new one. The draws that are kept are number
    0, stride, 2 stride, ... since `clear`.

    Args:
        sizes: Dict for JSON, from `sizes_of`.
        **kwargs: Passed to `keras.layers.Layer`.

    Attributes:
        hyperplanes, probabilities: The partition, float64 `[L, I+1]` and `[L]`, model units.
        x, y, x_predict: float64 `[N, I]`, `[N, D]`, `[M, I]`, model units.
        weights_drawn: float32 `[B, K, L]`, draws of the atoms' weights, B = D * chains.
        noise_scale_drawn, alpha_drawn, nu_drawn: float64 `[B, K]`.
        counters: int32 `[4]`: epochs on these data, draws made, draws stored, stride.
    """

    def __init__(self, sizes: dict[str, Any], **kwargs: Any):
        super().__init__(autocast=False, **{"trainable": False, **kwargs})
        self.sizes = sizes
        rows, inputs, outputs = sizes["rows"], sizes["inputs"], sizes["outputs"]
        chains, atoms, capacity = outputs * sizes["chains"], sizes["atoms"], sizes["capacity"]
        self.hyperplanes = self._zeros("hyperplanes", (atoms, inputs + 1))
        self.probabilities = self._zeros("probabilities", (atoms,))
        self.x = self._zeros("x", (rows, inputs))
        self.y = self._zeros("y", (rows, outputs))
        self.x_predict = self._zeros("x_predict", (sizes["rows_predict"], inputs))
        for name, (shape, dtype) in sizes["state"].items():
            setattr(self, f"state_{name}", self._zeros(f"state_{name}", shape, dtype))
        self.weights_drawn = self._zeros("weights_drawn", (chains, capacity, atoms), "float32")
        # Ones, because a scale of zero would give NaN (without weight) at places not yet filled.
        self.noise_scale_drawn = self._zeros("noise_scale_drawn", (chains, capacity), init="ones")
        self.alpha_drawn = self._zeros("alpha_drawn", (chains, capacity))
        self.nu_drawn = self._zeros("nu_drawn", (chains, capacity))
        self.counters = self._zeros("counters", (len(_COUNTERS),), "int32")
        self.built = True

    def _zeros(self, name, shape, dtype="float64", init="zeros"):
        return self.add_weight(
            name=name, shape=tuple(shape), dtype=dtype, initializer=init, autocast=False
        )

    @property
    def capacity(self) -> int:
        """Places for draws of each chain, K."""
        return self.sizes["capacity"]

    @property
    def partition(self) -> Partition:
        """The `Partition`, in model units."""
        return Partition(self.hyperplanes.numpy(), self.probabilities.numpy(), self.sizes["kind"])

    @property
    def state(self) -> ChainState:
        """The `ChainState`."""
        return ChainState(*(getattr(self, f"state_{name}").value for name in ChainState._fields))

    def set_state(self, state: ChainState) -> None:
        """Stores a `ChainState`."""
        for name, value in state._asdict().items():
            getattr(self, f"state_{name}").assign(value)

    def counter(self, name: str) -> int:
        """Returns a counter as an integer."""
        return int(self.counters.numpy()[_COUNTERS.index(name)])

    def _set_counters(self, **values):
        current = dict(zip(_COUNTERS, self.counters.numpy().tolist(), strict=True))
        self.counters.assign(np.array([*{**current, **values}.values()], np.int32))

    def count_epoch(self) -> None:
        """Counts an epoch on these data."""
        self._set_counters(epochs=self.counter("epochs") + 1)

    def has_data(self, x: Array, y: Array, x_predict: Array | None) -> bool:
        """Returns whether the chains have these data (model units); `None` fits any points."""
        same = np.array_equal(x, self.x.numpy()) and np.array_equal(y, self.y.numpy())
        return same and (x_predict is None or np.array_equal(x_predict, self.x_predict.numpy()))

    def has_noise_weights(self, shares: Array | None) -> bool:
        """Returns whether the rows have these shares of the noise's variance, `None` for ones."""
        own = self.state.noise_weights.numpy()[0]
        return np.array_equal(own, np.ones_like(own) if shares is None else shares)

    def clear(self) -> None:
        """Forgets the draws."""
        self._set_counters(drawn=0, stored=0, stride=1)

    def add(self, draws: Draws) -> None:
        """Stores draws as the class describes.

        Args:
            draws: `samplers.Draws` of some states.
        """
        rings = (self.weights_drawn, self.noise_scale_drawn, self.alpha_drawn, self.nu_drawn)
        drawn, stored, stride = map(self.counter, ("drawn", "stored", "stride"))
        count = draws.alpha.shape[0]
        start = 0
        while start < count:
            wanted = np.arange(start, count)
            wanted = wanted[(drawn + wanted) % stride == 0]
            taken = wanted[: self.capacity - stored]
            if len(taken):
                for ring, new in zip(rings, draws, strict=True):
                    new = tf.gather(new, taken)
                    new = tf.transpose(new, [1, 0, *range(2, len(new.shape))])
                    # A slice's `assign` is avoided: a variable of several replicas lacks it.
                    old = tf.convert_to_tensor(ring.value)
                    parts = [old[:, :stored], new, old[:, stored + len(taken) :]]
                    ring.assign(tf.concat(parts, axis=1))
            stored += len(taken)
            if len(taken) == len(wanted):
                break
            start, stride, stored = wanted[len(taken)], 2 * stride, -(-stored // 2)
            for ring in rings:
                ring.value[:, :stored].assign(ring.value[:, ::2])
        self._set_counters(drawn=drawn + count, stored=stored, stride=stride)

    def stored(self, name: str) -> Array:
        """Returns stored draws by chain, NumPy `[D, chains, K', ...]`, K' the number stored.

        Args:
            name: `"weights"`, `"noise_scale"`, `"alpha"` or `"nu"`.
        """
        values = getattr(self, f"{name}_drawn").numpy()[:, : self.counter("stored")]
        return values.reshape(self.sizes["outputs"], self.sizes["chains"], *values.shape[1:])

    def flat_draws(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns weights `[D, S, L]`, noise scales `[D, S]` and whether a place is stored, `[S]`.

        The tensors are in the graph. S counts all places, so that XLA knows the shapes.
        """
        outputs, chains = self.sizes["outputs"], self.sizes["chains"]
        draws = chains * self.capacity
        weights = tf.reshape(self.weights_drawn.value, [outputs, draws, self.sizes["atoms"]])
        noise = tf.reshape(self.noise_scale_drawn.value, [outputs, draws])
        place = tf.tile(tf.range(self.capacity), [chains])
        return weights, noise, place < self.counters.value[_COUNTERS.index("stored")]


def sizes_of(
    partition: Partition,
    x: Array,
    y: Array,
    x_predict: Array,
    state: ChainState,
    chains: int,
    max_draws: int,
    config_bytes: int = 0,
) -> dict[str, Any]:
    """Returns the sizes of a store.

    Args:
        partition: `Partition`.
        x: Array `[N, I]`.
        y: Array `[N, D]`.
        x_predict: Array `[M, I]`.
        state: `ChainState`.
        chains: Number of chains for each output.
        max_draws: Draws that may be stored for each output, over all chains.
        config_bytes: Further bytes that a file of the model has to hold.

    Returns:
        Dict for JSON.
    """
    arrays = [partition.hyperplanes, partition.probabilities, x, y, x_predict, *state]
    total_chains = y.shape[1] * chains
    room = MAX_BYTES - config_bytes - sum(np.asarray(a).nbytes for a in arrays)
    fitting = room // (total_chains * (4 * partition.num_atoms + 24))
    if fitting < _LEAST_DRAWS:
        notices.warn(
            f"A model of {partition.num_atoms} atoms and {total_chains} chains takes more than "
            f"{MAX_BYTES / 1e6:g} MB even with the {_LEAST_DRAWS} draws of each chain that "
            "diagnostics need, and so will its file. Take fewer atoms or chains for a smaller one.",
        )
    capacity = min(max_draws // chains, fitting)
    return {
        "kind": partition.kind,
        "rows": len(x),
        "inputs": x.shape[1],
        "outputs": y.shape[1],
        "rows_predict": len(x_predict),
        "chains": chains,
        "atoms": partition.num_atoms,
        "capacity": max(int(capacity), _LEAST_DRAWS),
        "state": {
            name: [value.shape.as_list(), value.dtype.name]
            for name, value in state._asdict().items()
        },
    }
