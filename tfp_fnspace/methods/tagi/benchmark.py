"""TAGI's protocol on the UCI regression sets (section 4.2 of the paper)."""

import itertools

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import likelihoods
from tfp_fnspace.datasets import k_fold
from tfp_fnspace.methods.tagi.layers import Activation, Dense
from tfp_fnspace.methods.tagi.model import TAGIModel
from tfp_fnspace.metrics import nll
from tfp_fnspace.tracing import traced


def uci_config(dataset, seed):
    """The paper's settings: one ReLU layer, 40 epochs, batch 10, noise by 5-fold CV from 1.

    The paper linearises ReLU. Where several rules are listed under `moments`, each is
    cross-validated, and the one with the best held-out log-likelihood is used. The data set
    `"protein"` gets 100 units, others 50. Arguments and result are those of `registry`.
    """
    return {
        "units": 100 if dataset == "protein" else 50,
        "epochs": 40,
        "batch_size": 10,
        "moments": ["linearized", "exact"],
        "noise": "cross_validate",
        "initial_noise_scale": 1.0,
        "update": "capped",
        "seed": seed,
    }


def uci_fit(config, x, y):
    """Builds and fits a model for each rule of moments, as `registry` asks for it."""
    candidates = {}
    for moments in config["moments"]:
        model = _build(config, moments, x.shape[1], y.shape[1])
        model.fit(x, y, epochs=config["epochs"], batch_size=config["batch_size"], verbose=0)
        held_out = max(score for _, score in model.noise_scores)
        candidates[held_out] = (model, moments)
    held_out = max(candidates)
    model, moments = candidates[held_out]
    chosen = {
        "moments": moments,
        "noise_scale": float(model.likelihood.scale.numpy()),
        "held_out_log_likelihood": held_out,
    }
    return model, chosen


def _build(config, moments, num_inputs, num_outputs):
    inputs = keras.Input((num_inputs,))
    hidden = Dense(config["units"], activation=Activation("relu", moments=moments))(inputs)
    return TAGIModel(
        inputs,
        Dense(num_outputs)(hidden),
        likelihood=likelihoods.Gaussian(scale=config["initial_noise_scale"]),
        noise=config["noise"],
        update=config["update"],
        seed=config["seed"],
    )


class Heteroscedastic:
    """The same network with a second output for the noise, which AGVI learns."""

    def uci_config(self, dataset, seed):
        """As `uci_config` above, but with the number of epochs cross-validated too.

        The noise has to be learnt with the function, and too many epochs fit it to residuals that
        are too small: 5-fold cross-validation within the training rows scores every epoch up to
        `most_epochs`, for each rule of moments and each smallest standard deviation of the noise.
        """
        return {
            "units": 100 if dataset == "protein" else 50,
            "most_epochs": 80,
            "batch_size": 10,
            "moments": ["linearized", "exact"],
            "min_scale": [0.01, 0.1],
            "update": "capped",
            "num_folds": 5,
            "seed": seed,
        }

    def uci_fit(self, config, x, y):
        """Scores each candidate by epoch, and fits the best with its number of epochs."""
        candidates = {}
        for chosen in itertools.product(config["moments"], config["min_scale"]):
            model = _build_heteroscedastic(config, *chosen, x.shape[1], y.shape[1])
            model.compile()
            model.adapt(x, y)
            scores = _held_out_by_epoch(model, config, *model._check_data(x, y))
            candidates[float(scores.max())] = (model, *chosen, int(scores.argmax()) + 1)
        held_out = max(candidates)
        model, moments, min_scale, epochs = candidates[held_out]
        model.fit(x, y, epochs=epochs, batch_size=config["batch_size"], verbose=0)
        return model, {
            "moments": moments,
            "min_scale": min_scale,
            "epochs": epochs,
            "held_out_log_likelihood": held_out,
        }


heteroscedastic = Heteroscedastic()


def _build_heteroscedastic(config, moments, min_scale, num_inputs, num_outputs):
    inputs = keras.Input((num_inputs,))
    hidden = Dense(config["units"], activation=Activation("relu", moments=moments))(inputs)
    return TAGIModel(
        inputs,
        Dense(2 * num_outputs)(hidden),
        likelihood=likelihoods.HeteroscedasticGaussian(min_scale),
        update=config["update"],
        seed=config["seed"],
    )


def _held_out_by_epoch(model, config, inputs, targets):
    """Mean held-out log-likelihood over the folds after 1, 2, ... epochs; the model is reset."""
    learner = model.epoch_learner(inputs, targets, config["batch_size"])
    score = traced(lambda x, y: nll(y, model.predictive(x)), reduce_retracing=True)
    initial = [variable.numpy() for variable in model.parameter_variables]
    totals = np.zeros(config["most_epochs"])

    def reset():
        for variable, value in zip(model.parameter_variables, initial, strict=True):
            variable.assign(value)

    for train, held_out in k_fold(len(targets), config["num_folds"], seed=model.fold_seed()):
        reset()
        x, y = tf.constant(inputs[0][held_out]), tf.constant(targets[held_out])
        for epoch in range(config["most_epochs"]):
            learner(train[model.epoch_order(len(train), True, epoch)].astype(np.int32))
            value = -len(held_out) * float(score(x, y))
            totals[epoch] += value if np.isfinite(value) else -np.inf
    reset()
    return totals / len(targets)
