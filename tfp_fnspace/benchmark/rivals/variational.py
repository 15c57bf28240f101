"""Bayes by Backprop with learnt noise, by `VariationalModel`."""

from typing import Self

import keras
import numpy as np

from tfp_fnspace.benchmark.rivals.base import Rival
from tfp_fnspace.layers import VariationalDense
from tfp_fnspace.likelihoods import Gaussian
from tfp_fnspace.methods.fbnn import VariationalModel
from tfp_fnspace.typing import ArrayLike, Distribution

_UNITS, _BATCH_SIZE, _STEPS = 50, 128, 10_000


class BayesByBackprop(Rival):
    """Two hidden layers of 50 ReLU units with factorised posteriors, and constant learnt noise.

    Priors and optimizer are the model's defaults. Training takes 10,000 steps with batches of 128.
    The divergence keeps it from overfitting, so nothing is held out. The model standardises its
    data itself.

    References:
        Blundell et al. (2015), "Weight uncertainty in neural networks".
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        keras.utils.set_random_seed(self.random_state)
        x, y = np.asarray(X, np.float64), np.asarray(y, np.float64).reshape(len(X), 1)
        hidden = inputs = keras.Input((x.shape[1],))
        for _ in range(2):
            hidden = VariationalDense(_UNITS, activation="relu")(hidden)
        outputs = VariationalDense(1)(hidden)
        noise = Gaussian(0.5, trainable=True, min_scale=0.005)
        self._model = VariationalModel((inputs, outputs), likelihood=noise, seed=self.random_state)
        epochs = -(-_STEPS // -(-len(x) // _BATCH_SIZE))
        self._model.fit(x, y, batch_size=_BATCH_SIZE, epochs=epochs, verbose=0)
        return self

    def predict_distribution(self, X: ArrayLike) -> Distribution:
        return self._model.predict_distribution(np.asarray(X, np.float64))
