"""Networks of mean and variance: a deep ensemble of five, and dropout left on."""

import math

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.benchmark.rivals.base import Rival, held_out
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Tensor

_UNITS, _BATCH_SIZE, _MOST_STEPS = 64, 64, 20_000


def gaussian_nll(y: Tensor, outputs: Tensor) -> Tensor:
    """Returns the negative log density of `y` `[B, M]` for `outputs` `[B, M, 2]`, up to a constant.

    The outputs are means and raw variances; the variance is `softplus(raw) + 1e-4`. The result is
    the mean over rows of the sum over networks.
    """
    mean, variance = outputs[..., 0], tf.nn.softplus(outputs[..., 1]) + 1e-4
    terms = tf.square(y - mean) / variance + tf.math.log(variance)
    return 0.5 * tf.reduce_mean(tf.reduce_sum(terms, axis=-1))


class _SideBySide(keras.layers.Layer):
    """A dense layer for each of M networks, from `[B, M, I]` to `[B, M, O]`."""

    def __init__(self, units, activation=None):
        super().__init__()
        self.units, self.activation = units, keras.activations.get(activation)

    def build(self, input_shape):
        _, members, width = input_shape
        start = keras.initializers.RandomNormal(stddev=(2.0 / width) ** 0.5)
        self.kernel = self.add_weight((members, width, self.units), start)
        self.bias = self.add_weight((members, self.units), "zeros")

    def call(self, inputs):
        values = keras.ops.einsum("bmi,mio->bmo", inputs, self.kernel)
        return self.activation(values + self.bias)


class _MeanAndVariance(Rival):
    """M networks in parallel, each with two hidden layers of 64 ReLU units and two outputs.

    They are trained by Adam with 1e-3 and batches of 64. Each network has its own random tenth held
    out. All stop where the mean of their held-out log densities was best, after at most 20,000
    steps.
    """

    num_members, dropout = 1, 0.0

    def _fit(self, x, y):
        keras.utils.set_random_seed(self.random_state)
        members = range(self.num_members)
        rows = [held_out(len(x), 1000 * self.random_state + m) for m in members]
        (x_train, y_train), (x_valid, y_valid) = (
            (np.stack([x[r[k]] for r in rows], 1), np.stack([y[r[k]] for r in rows], 1))
            for k in (0, 1)
        )
        self._model = self._network(x.shape[1])
        batch_size = min(_BATCH_SIZE, len(x_train))
        steps = len(x_train) // batch_size
        epochs = -(-_MOST_STEPS // steps)
        losses = self._epochs(x_train, y_train, x_valid, y_valid, (steps, batch_size))
        best, at, weights, patience = math.inf, 0, None, max(30, epochs // 50)
        for epoch in range(epochs):
            loss = next(losses)
            if loss < best:
                best, at, weights = loss, epoch, self._model.get_weights()
            elif epoch - at >= patience:
                break
        self._model.set_weights(weights)

    def _epochs(self, x_train, y_train, x_valid, y_valid, batches):
        """Yields the held-out loss after each epoch; Keras's own loop costs more than its steps."""
        model, rng = self._model, np.random.default_rng(self.random_state)
        optimizer, variables = keras.optimizers.Adam(1e-3), model.trainable_variables
        optimizer.build(variables)
        x_train, y_train, x_valid, y_valid = (
            tf.constant(values, tf.float32) for values in (x_train, y_train, x_valid, y_valid)
        )

        def step(rows):
            with tf.GradientTape() as tape:
                outputs = model(tf.gather(x_train, rows), training=True)
                loss = gaussian_nll(tf.gather(y_train, rows), outputs)
            optimizer.apply(tape.gradient(loss, variables), variables)

        def epoch(order):
            tf.while_loop(lambda i: i < batches[0], lambda i: (step(order[i]), i + 1)[1:], (0,))
            return gaussian_nll(y_valid, model(x_valid, training=False))

        epoch = traced(epoch)
        while True:
            order = rng.permutation(len(x_train))[: batches[0] * batches[1]]
            yield float(epoch(tf.constant(order.reshape(batches), tf.int32)))

    def _network(self, num_inputs):
        hidden = inputs = keras.Input((self.num_members, num_inputs))
        for _ in range(2):
            hidden = _SideBySide(_UNITS, "relu")(hidden)
            if self.dropout:
                hidden = keras.layers.Dropout(self.dropout)(hidden)
        return keras.Model(inputs, _SideBySide(2)(hidden))

    def _moments(self, x, training=False):
        """Returns means and standard deviations, `[N, M]` each."""
        inputs = np.repeat(x[:, np.newaxis].astype(np.float32), self.num_members, axis=1)
        outputs = keras.ops.convert_to_numpy(self._model(inputs, training=training))
        outputs = np.asarray(outputs, np.float64)
        return outputs[..., 0], np.sqrt(np.logaddexp(0.0, outputs[..., 1]) + 1e-4)


class DeepEnsemble(_MeanAndVariance):
    """Five networks whose mixture predicts.

    References:
        Lakshminarayanan, Pritzel and Blundell (2017), "Simple and scalable predictive uncertainty
        estimation using deep ensembles".
    """

    num_members = 5

    def _predict(self, x):
        return self._moments(x)


class MCDropout(_MeanAndVariance):
    """One network with dropout of 0.1 after each hidden layer; a mixture of 100 passes predicts.

    References:
        Gal and Ghahramani (2016), "Dropout as a Bayesian approximation". Kendall and Gal (2017),
        "What uncertainties do we need", for the variance that depends on the inputs.
    """

    dropout, num_passes = 0.1, 100

    def _predict(self, x):
        passes = [self._moments(x, training=True) for _ in range(self.num_passes)]
        loc, scale = (np.concatenate(parts, axis=1) for parts in zip(*passes, strict=True))
        return loc, scale
