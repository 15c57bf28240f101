"""The recipe of TAGI: the choice of network, noise and number of epochs for a table."""

import math
from typing import Any

import keras

from tfp_fnspace import likelihoods
from tfp_fnspace.methods.tagi.layers import Dense
from tfp_fnspace.methods.tagi.model import TAGIModel
from tfp_fnspace.trials import Table

#: Fewer rows say too little about varying noise or a second layer.
_ROWS_FOR_MORE = 100

#: With at least this many rows, wider and deeper networks are tried, and no linear model.
_ROWS_FOR_WIDTH = 2000

#: An update is exact for one row; batches save time if there are enough rows.
_ROWS_AND_BATCHES = ((1000, 8), (5000, 16), (50000, 64))
_LARGEST_BATCH = 256

#: `build` uses only the numbers of rows and columns.
BUILDS_FROM_ROWS = False

#: There is no limit to the number of rows.
MOST_ROWS = None


def candidates(table: Table) -> list[dict[str, Any]]:
    """Returns the settings to try, the most promising first."""
    batch_size = next((b for n, b in _ROWS_AND_BATCHES if table.num_rows < n), _LARGEST_BATCH)
    # Each epoch counts the rows once more, so the best number is small; held-out rows choose it.
    common = {"units": 50, "batch_size": batch_size, "epochs": 100, "epochs_between_looks": 1}
    one_layer = {"num_layers": 1, "noise": "constant", **common}
    if table.num_rows < _ROWS_FOR_MORE:
        return [one_layer]
    if table.num_classes is not None:
        return [{**one_layer, "num_layers": number} for number in (2, 1, 0)]
    # One layer underfits many rows, and the noise then absorbs the misfit. Varying noise doubles
    # the cost, and is worth it if the spread or the scale of the targets changes. A network without
    # hidden layers is a linear model, a strong baseline for few rows.
    varying = {**one_layer, "noise": "varying"}
    if table.num_rows >= _ROWS_FOR_WIDTH:
        wide = {**varying, "units": 100}
        return [
            {**wide, "num_layers": 2},
            {**wide, "num_layers": 3},
            {**wide, "num_layers": 2, "noise": "constant"},
            wide,
        ]
    return [
        {**varying, "num_layers": 2},
        {**one_layer, "num_layers": 2},
        varying,
        {**varying, "num_layers": 0},
        one_layer,
    ]


def build(settings: dict[str, Any], table: Table, seed: int) -> TAGIModel:
    """Builds a network of ReLU layers with these settings, without fitting it."""
    inputs = [keras.Input((table.num_inputs,)) for _ in table.inputs]
    hidden = inputs if table.has_variances else inputs[0]
    for _ in range(settings["num_layers"]):
        hidden = Dense(settings["units"], activation="relu")(hidden)
    likelihood, num_outputs = _likelihood(settings, table)
    outputs = Dense(num_outputs)(hidden)
    return TAGIModel(
        inputs if table.has_variances else inputs[0], outputs, likelihood=likelihood, seed=seed
    )


def _likelihood(settings, table):
    """Returns the likelihood, and how many outputs it needs."""
    if table.num_classes is not None:
        tree = likelihoods.HierarchicalCategorical(table.num_classes)
        return tree, tree.num_outputs
    if settings["noise"] == "varying":
        return likelihoods.HeteroscedasticGaussian(0.01), 2 * table.num_outputs
    scales = [0.3] * table.num_outputs
    return likelihoods.Gaussian(scales, trainable=True), table.num_outputs


def scale_noise(model: TAGIModel, factor: float) -> None:
    """Multiplies the standard deviation of the noise, apart from its minimum."""
    shift = 2.0 * math.log(factor)
    if model.likelihood.has_noise_outputs:
        bias = model.tagi_layers[-1].parameters[-1].mean
        values = bias.numpy()
        values[len(values) // 2 :] += shift
        bias.assign(values)
        return
    mean, _ = model.learned_noise.log_variance
    mean.assign_add(mean * 0.0 + shift)
    model.likelihood.assign_scale(model.learned_noise.scale())
