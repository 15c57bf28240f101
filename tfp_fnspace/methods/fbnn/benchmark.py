"""fBNN and Bayes by Backprop on the UCI regression sets."""

import keras
import numpy as np

from tfp_fnspace import layers, likelihoods, processes
from tfp_fnspace.layers.scaler import RunningMoments, Standardizer
from tfp_fnspace.methods.fbnn.measurement import Box
from tfp_fnspace.methods.fbnn.model import FBNNModel
from tfp_fnspace.methods.fbnn.variational_model import VariationalModel

#: Data sets with so many rows that the prior is fitted to a subset of them.
_LARGE = ("naval", "power", "protein")


def network(num_inputs, units, activation="relu", prior="fan_in"):
    """A network of variational layers with one output, symbolic inputs and outputs."""
    inputs = keras.Input((num_inputs,))
    hidden = inputs
    for width in units:
        hidden = layers.VariationalDense(width, activation=activation, prior=prior)(hidden)
    return inputs, layers.VariationalDense(1, prior=prior)(hidden)


def fitted_prior(x, y, max_rows, seed):
    """A Gaussian process of a squared exponential kernel, a length each input, fitted to data.

    Args:
        x: Training inputs `[N, X]`.
        y: Training targets `[N, 1]`.
        max_rows: The most rows that it is fitted to, drawn at random.
        seed: Of the rows.

    Returns:
        `processes.GaussianProcess` in standardised units.
    """
    x, y = (_standardised(np.asarray(values, np.float32)) for values in (x, y))
    if len(x) > max_rows:
        rows = np.random.default_rng(seed).choice(len(x), max_rows, replace=False)
        x, y = x[rows], y[rows]
    prior = processes.GaussianProcess(processes.ard_squared_exponential(x.shape[1]))
    prior.fit(x, y)
    return prior


def _standardised(values):
    """As the models do it."""
    moments, scaler = RunningMoments(values.shape[1]), Standardizer()
    moments.update(values)
    scaler.build(values.shape)
    scaler.adapt(moments)
    return scaler(values).numpy()


class Recipe:
    """The paper's protocol for small sets, as `registry` asks for it.

    One hidden layer of 50 ReLU units, batches of 20 rows, 2000 epochs of Adam with 1e-3, 100
    functions a step; the observation noise is learnt. fBNN: 5 uniform measurement points beside
    the rows, the prior fitted first, the noise no smaller than 0.05 and than the prior's. Bayes by
    Backprop: weights have independent normal priors of variance 1 over their number of inputs.

    Args:
        functional: Whether it is fBNN.
    """

    def __init__(self, functional):
        self.functional = functional

    def uci_config(self, dataset, seed):
        """Settings for a data set."""
        config = {
            "units": [50],
            "activation": "relu",
            "batch_size": 20,
            "epochs": 2000,
            "learning_rate": 1e-3,
            "num_samples": 100 if self.functional else 10,
            "min_scale": 0.05,
            "seed": seed,
        }
        if dataset in _LARGE:
            config.update(units=[100], batch_size=500, epochs=200)
        if not self.functional:
            return config
        return {
            **config,
            "kl_weight": "data",
            "measurement": 5,
            "injected_noise": 0.01,
            "max_prior_rows": 1000,
        }

    def uci_fit(self, config, x, y):
        """Builds and fits the model."""
        keras.utils.set_random_seed(config["seed"])
        least, chosen, options = config["min_scale"], {}, {}
        if self.functional:
            prior = fitted_prior(x, y, config["max_prior_rows"], config["seed"])
            noise = float(prior.noise_scale)
            least, chosen = max(least, noise), {"prior_noise_scale": noise}
            options = {
                "prior": prior,
                "measurement": Box(config["measurement"]),
                "kl_weight": config["kl_weight"],
                "injected_noise": config["injected_noise"],
            }
        likelihood = likelihoods.Gaussian(2.0 * least, trainable=True, min_scale=least)
        cls = FBNNModel if self.functional else VariationalModel
        parts = network(x.shape[1], config["units"], config["activation"])
        options.update(likelihood=likelihood, num_samples=config["num_samples"])
        model = cls(parts, seed=config["seed"], **options)
        model.compile(optimizer=keras.optimizers.Adam(config["learning_rate"]))
        model.fit(x, y, batch_size=config["batch_size"], epochs=config["epochs"], verbose=0)
        chosen["noise_scale"] = float(keras.ops.convert_to_numpy(model.likelihood.scale))
        return model, chosen


fbnn = Recipe(functional=True)
bayes_by_backprop = Recipe(functional=False)
