"""fBNN and Bayes by Backprop on the UCI regression sets."""

import keras

from tfp_fnspace import layers, likelihoods
from tfp_fnspace.methods.fbnn.measurement import Box
from tfp_fnspace.methods.fbnn.model import FBNNModel
from tfp_fnspace.methods.fbnn.variational_model import VariationalModel
from tfp_fnspace.processes.fitted import LITTLE_NOISE, MUCH_NOISE, fitted_prior

#: Data sets that get a wider network.
_LARGE = ("naval", "power", "protein")

#: Data sets on which the divergence is in closed form, and what is different there.
_CLOSED_FORM_SETS = {
    "yacht": {"steps": 300},
    "naval": {},
    "power": {"max_prior_rows": 2000},
    "protein": {},
}

_BAYES_BY_BACKPROP = {
    "activation": "relu",
    "output_posterior": "factorized",
    "epochs": 2000,
    "learning_rate": 1e-3,
    "num_samples": 10,
    "min_scale": 0.05,
}

_FBNN = {
    "activation": "tanh",
    "output_posterior": "full",
    "batch_size": 100,
    "steps": 10000,
    "longer": 3,
    "learning_rate": 3e-3,
    "num_samples": 100,
    "min_scale": 0.005,
    "measurement": 20,
    "injected_noise": 0.01,
    "kl_weight": "batch",
    "max_prior_rows": 1000,
}

#: Their settings; noise in units of the least that the model may learn.
_CLOSED_FORM = {
    "kl": "closed_form",
    "units": [2000],
    "activation": "random cosines",
    "batch_size": 1000,
    "steps": 50,
    "learning_rate": 5e-3,
    "min_scale": 0.005,
    "measurement": 100,
    "margin": 0.0,
    "injected_noise": 0.2,
    "kl_weight": "data",
    "max_prior_rows": 1000,
}


def gaussian_network(num_inputs, units, prior, seed):
    """Random cosines whose products are the kernel of a prior, and a random layer of one output."""
    inputs = keras.Input((num_inputs,))
    features = layers.RandomFourierFeatures(units, prior.kernel(), seed=seed)
    last = layers.VariationalDense(1, posterior="conditioned", prior="standard")
    return inputs, last(features(inputs))


def network(
    num_inputs,
    units,
    activation="relu",
    prior="fan_in",
    output_posterior="factorized",
    hidden_posterior="factorized",
):
    """A network of variational layers with one output, symbolic inputs and outputs."""
    inputs = keras.Input((num_inputs,))
    hidden, options = inputs, {"activation": activation, "prior": prior}
    for width in units:
        hidden = layers.VariationalDense(width, posterior=hidden_posterior, **options)(hidden)
    return inputs, layers.VariationalDense(1, posterior=output_posterior, prior=prior)(hidden)


class Recipe:
    """The protocol for the tables, as `registry` asks for it.

    Bayes by Backprop as in the paper: one hidden layer of 50 ReLU units, batches of 20 rows, 2000
    epochs of Adam with 1e-3; 10 draws a step, weights with independent normal priors of variance 1
    over their number of inputs, the noise learnt.

    fBNN: one hidden layer of 50 tanh units, the posterior of the output weights with a full
    covariance, batches of 100 rows and 20 uniform measurement points, 100 functions a step, the
    prior fitted first, the learnt noise no smaller than its; Adam with 3e-3, which falls to a
    hundredth by a cosine in 10,000 steps. Where the prior's noise is little it takes three times as
    many, the posterior of the hidden weights has a full covariance too, and the divergence has half
    the weight of the batch; where it is much that of the data, else that of the batch. On yacht,
    whose noise is a hundredth, and on the large sets the estimated scores are not enough: there the
    hidden layer is 2000 random cosines of the prior (`RandomFourierFeatures`), not trained, the
    divergence is in closed form, the last layer starts from its regression on them (`fit_output`),
    and 300 or 50 steps of 1000 rows and 100 measurement points in the box of the data follow. The
    paper has ReLU, factorised posteriors, 20 rows, 5 points, 1e-3 and 2000 epochs.

    Args:
        functional: Whether it is fBNN.
    """

    def __init__(self, functional):
        self.functional = functional

    def uci_config(self, dataset, seed):
        """Settings for a data set."""
        is_large = dataset in _LARGE
        if self.functional and dataset in _CLOSED_FORM_SETS:
            return {**_CLOSED_FORM, **_CLOSED_FORM_SETS[dataset], "seed": seed}
        config = {"units": [100 if is_large else 50], "seed": seed}
        if not self.functional:
            sizes = {"batch_size": 500, "epochs": 200} if is_large else {"batch_size": 20}
            return {**_BAYES_BY_BACKPROP, **config, **sizes}
        return {**_FBNN, **config}

    def uci_fit(self, config, x, y):
        """Builds and fits the model."""
        keras.utils.set_random_seed(config["seed"])
        if config.get("kl") == "closed_form":
            return _fit_closed_form(config, x, y)
        least, chosen, options, hidden = config["min_scale"], {}, {}, "factorized"
        if self.functional:
            prior = fitted_prior(x, y, config["max_prior_rows"], config["seed"])
            noise = float(prior.noise_scale)
            weight, least = _kl_weight(config, noise), max(least, noise)
            if noise < LITTLE_NOISE:
                hidden = "full"
            chosen = {
                "prior_noise_scale": noise,
                "hidden_posterior": hidden,
                "kl_weight": weight,
            }
            options = {
                "prior": prior,
                "measurement": Box(config["measurement"]),
                "injected_noise": config["injected_noise"],
                "kl_weight": weight,
            }
        likelihood = likelihoods.Gaussian(2.0 * least, trainable=True, min_scale=least)
        cls = FBNNModel if self.functional else VariationalModel
        options.update(likelihood=likelihood, num_samples=config["num_samples"])
        parts = network(
            x.shape[1],
            config["units"],
            config["activation"],
            output_posterior=config["output_posterior"],
            hidden_posterior=hidden,
        )
        model = cls(parts, seed=config["seed"], **options)
        rate, steps = config["learning_rate"], -(-len(x) // config["batch_size"])  # of an epoch
        if self.functional:
            longer = config["longer"] if noise < LITTLE_NOISE else 1
            epochs = -(-config["steps"] * longer // steps)
            rate = keras.optimizers.schedules.CosineDecay(rate, epochs * steps, alpha=0.01)
        else:
            epochs = config["epochs"]
        model.compile(optimizer=keras.optimizers.Adam(rate))
        model.fit(x, y, batch_size=config["batch_size"], epochs=epochs, verbose=0)
        chosen["noise_scale"] = float(keras.ops.convert_to_numpy(model.likelihood.scale))
        return model, chosen


def _fit_closed_form(config, x, y):
    """As `Recipe.uci_fit`, for a network whose functions are Gaussian."""
    prior = fitted_prior(x, y, config["max_prior_rows"], config["seed"], "float64")
    noise = float(prior.noise_scale)
    least = max(config["min_scale"], noise)
    model = FBNNModel(
        gaussian_network(x.shape[1], config["units"][0], prior, config["seed"]),
        prior,
        likelihoods.Gaussian(2.0 * least, trainable=True, min_scale=least),
        Box(config["measurement"], margin=config["margin"]),
        kl="closed_form",
        kl_weight=config["kl_weight"],
        injected_noise=config["injected_noise"] * least,
        fit_output=True,
        seed=config["seed"],
    )
    epochs = -(-config["steps"] // -(-len(x) // config["batch_size"]))
    rate = keras.optimizers.schedules.CosineDecay(
        config["learning_rate"], config["steps"], alpha=0.01
    )
    model.compile(optimizer=keras.optimizers.Adam(rate))
    model.fit(x, y, batch_size=config["batch_size"], epochs=epochs, verbose=0)
    scale = float(keras.ops.convert_to_numpy(model.likelihood.scale))
    return model, {"prior_noise_scale": noise, "noise_scale": scale}


def _kl_weight(config, noise):
    """The weight of the divergence: where it is not set to a number, by how much noise there is."""
    if config["kl_weight"] != "batch":
        return config["kl_weight"]
    if noise > MUCH_NOISE:
        return "data"
    return 0.5 / config["batch_size"] if noise < LITTLE_NOISE else "batch"


fbnn = Recipe(functional=True)
bayes_by_backprop = Recipe(functional=False)
