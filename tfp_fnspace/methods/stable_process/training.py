"""Training of `StableProcessModel`: an epoch is a block of iterations of all chains."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfp_fnspace import interrupts
from tfp_fnspace.boundary import columns
from tfp_fnspace.math.random import fold_in
from tfp_fnspace.methods.stable_process import chains, diagnostics, options, samplers
from tfp_fnspace.methods.stable_process.hyperplanes import Partition
from tfp_fnspace.methods.stable_process.store import ChainStore, sizes_of
from tfp_fnspace.typing import Array, ArrayLike

if TYPE_CHECKING:
    from tfp_fnspace.methods.stable_process.model import StableProcessModel


def checked_x_predict(
    model: "StableProcessModel", x_predict: ArrayLike | None, x: ArrayLike
) -> Array | None:
    """Returns an array `[M, I]` for the argument of `fit`, or `None`."""
    if x_predict is None:
        return None
    if isinstance(model.partition, Partition):
        raise ValueError(
            "`x_predict` goes with a partition that the model makes itself. "
            f"Received: x_predict with partition={model.partition!r}"
        )
    first = not model.has_units
    if first:  # only the columns of x are known
        columns.check_column_names(x_predict, columns.names_to_keep(x), "x_predict")
    return model.checks.inputs(x_predict, "x_predict", first=first)[0]


def warn(model: "StableProcessModel") -> None:
    """Warns if the chains are still in burn-in, or have not converged."""
    epochs = model.store.counter("epochs")
    if epochs <= model.chains.burn_in:
        diagnostics.warn_of_burn_in(epochs, model.chains.burn_in)
    else:
        diagnostics.warn_of_bad_chains(model.diagnostics())


def prepare(
    model: "StableProcessModel",
    inputs: Array,
    targets: Array,
    x_predict: Array | None,
    row_weights: Array | None = None,
) -> None:
    """Gives a model a store for these data, unless it has one.

    Args:
        model: `StableProcessModel`.
        inputs: Array `[N, I]` in the user's units.
        targets: Array `[N, D]` in the user's units.
        x_predict: Array `[M, I]` in the user's units, or `None`.
        row_weights: Array `[N]`, or `None`. A row of weight w has the noise variance `sigma^2 / w`.
    """
    x, y = _scaled(model, inputs, targets)
    if x_predict is not None:
        x_predict = model.units.input_scalers[0](x_predict).numpy()
    shares = None if row_weights is None else 1.0 / row_weights
    if model.store is not None and model.store.has_data(x, y, x_predict):
        is_gaussian = not hasattr(model.likelihood, "df")
        if not is_gaussian or model.store.has_noise_weights(shares):
            return
    x_predict = x[:0] if x_predict is None else x_predict
    partition = chains.make_partition(model, x, x_predict, model.counters.seeds.number())
    problem = chains.make_problem(partition, x, y, model.chains.num_chains)
    seed = _seed(model, "start")
    if model.store is None:
        start = chains.starting_values(model, y.shape[1])
        state = chains.initial_state(model, seed, problem, *start)
    else:
        state = chains.warm_state(model, seed, model.store, problem, partition, x)
    if shares is not None:
        state = state._replace(
            noise_weights=tf.broadcast_to(tf.constant(shares), state.noise_weights.shape)
        )
    arrays = (partition, x, y, x_predict, state)
    config_bytes = len(json.dumps(options.partition_config(model.partition)))
    sizes = sizes_of(*arrays, model.chains.num_chains, model.chains.max_draws, config_bytes)
    with interrupts.held():
        create_store(model, sizes)
        store = model.store
        store.hyperplanes.assign(partition.hyperplanes)
        store.probabilities.assign(partition.probabilities)
        for name, value in {"x": x, "y": y, "x_predict": x_predict}.items():
            getattr(store, name).assign(value)
        store.set_state(state)
        store.clear()


def create_store(model: "StableProcessModel", sizes: dict[str, Any]) -> None:
    """Gives a model an empty store of these sizes."""
    if model.store is not None:
        model._tracker.untrack(model.store)
    model.store = ChainStore(sizes, name="chains")
    model.num_eval_samples = sizes["chains"] * sizes["capacity"]
    model.reset_functions()


def _scaled(model, inputs, targets):
    """Returns arrays in model units, float64."""
    x = model.units.input_scalers[0](inputs).numpy()
    scaler = model.units.target_scaler
    return x, (targets - scaler.mean.numpy()) / scaler.stddev.numpy()


def _seed(model, stream):
    """Returns the seed of a stream after this many iterations."""
    return fold_in(model.counters.seeds.stream(stream), model.counters.steps.numpy())


class Blocks:
    """Runs blocks of iterations of all chains of a model.

    Args:
        model: `StableProcessModel` with a store.
    """

    def __init__(self, model: "StableProcessModel"):
        self.model = model
        # A checkpoint may be restored before the first block.
        self.problem: samplers.Problem | None = None
        self.settings: samplers.Settings | None = None

    def __call__(self) -> dict[str, float]:
        """Runs one block and returns its logs in the user's units."""
        model, store = self.model, self.model.store
        if self.problem is None:
            self.problem = chains.make_problem(
                store.partition, store.x.numpy(), store.y.numpy(), model.chains.num_chains
            )
            self.settings = options.settings_of(model)
            if self.settings.noise_df is None:
                copies = np.sum(1.0 / store.state.noise_weights.numpy()[0] - 1.0)
                self.settings = self.settings._replace(num_copies=float(copies))
        run = chains.compiled_run(
            model.chains.sampler,
            self.settings,
            model.chains.draws_per_epoch,
            model.chains.thin,
        )
        state, new, info = run(_seed(model, "sweeps"), store.state, self.problem)
        with interrupts.held():
            if store.counter("epochs") <= model.chains.burn_in:
                store.clear()
            store.set_state(state)
            store.add(new)
            store.count_epoch()
            model.counters.steps.assign_add(model.chains.sweeps_per_epoch)
        log_likelihood = np.sum(info.log_likelihood) / model.chains.num_chains / store.sizes["rows"]
        noise = np.reshape(new.noise_scale, [-1, model.num_outputs, model.chains.num_chains])
        logs = {
            "loss": -log_likelihood,
            "log_likelihood": log_likelihood,
            "noise_scale": np.mean(noise * model.units.target_unit.numpy()[:, np.newaxis]),
            "alpha": np.mean(new.alpha),
            "nu": np.mean(new.nu),
            "acceptance": np.mean(info.accept_scales),
        }
        return {name: float(value) for name, value in model.units.logs(logs).items()}
