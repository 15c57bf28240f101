"""The stable process on the UCI regression sets: sampled hyperplanes, standardised data."""

import numpy as np

from tfp_fnspace.methods.stable_process.diagnostics import convergence
from tfp_fnspace.methods.stable_process.model import StableProcessModel

#: Options of the model that are taken from the config as they are.
_OPTIONS = (
    "num_atoms",
    "num_chains",
    "sweeps_per_epoch",
    "burn_in",
    "thin",
    "max_draws",
    "noise_prior",
    "seed",
)


def uci_config(dataset, seed):
    """Settings for a data set, as `registry` asks for them; all are the same.

    `hyperparameters` is `"infer"` (alpha and nu with their priors) or `"cross_validate"` (the
    grid of section 3 of the paper).
    """
    return {
        "hyperparameters": "infer",
        "num_atoms": 1000,
        "num_chains": 2,
        "sweeps_per_epoch": 100,
        "burn_in": 5,
        "thin": 5,
        "max_draws": 400,
        "epochs": 15,
        "noise_prior": "variance",
        "seed": seed,
    }


def uci_fit(config, x, y):
    """Builds and fits the model, as `registry` asks for it."""
    options = {name: config[name] for name in _OPTIONS}
    inferred = config["hyperparameters"] == "infer"
    if inferred:
        options.update(alpha="infer", nu="infer")
    model = StableProcessModel(partition="sampled", **options)
    if not inferred:
        model.cross_validate(x, y, epochs=config["epochs"])
    model.fit(x, y, epochs=config["epochs"], verbose=0)
    found = convergence(np.moveaxis(model.store.stored("noise_scale"), 0, 2))
    chosen = {
        name: float(np.median(model.store.stored(name))) for name in ("alpha", "nu", "noise_scale")
    }
    return model, {**chosen, "rhat_of_noise_scale": float(np.max(found.rhat))}
