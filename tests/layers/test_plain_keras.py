"""Layers of this library in plain Keras models: `compile`, `fit`, `evaluate`, `predict`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

import tfp_fnspace as fns
from tests.layers.test_variational_layers import LAYERS, rows_for

tfd = tfp.distributions
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(37, 3)).astype("float32")
Y = (X[:, :2] ** 2).astype("float32")


def divergence(layer):
    """Computes the KL of a factorised Gaussian posterior by TFP."""
    means, variances = layer.posterior.mean_values(), layer.posterior.variances()
    return sum(
        np.sum(tfd.kl_divergence(tfd.Normal(means[k], np.sqrt(variances[k])), prior))
        for k, prior in layer.weight_priors().items()
    )


def sequential(*layers, rows=(3,)):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input(rows), *layers])


def test_the_loss_is_that_of_the_data_and_the_divergence():
    layers = [
        fns.layers.VariationalDense(5, activation="relu", kl_weight=0.3),
        fns.layers.VariationalDense(2, estimator="flipout", kl_weight=0.1),
    ]
    model = sequential(*layers)
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mse"])
    history = model.fit(X, Y, epochs=3, verbose=0).history
    scores = model.evaluate(X, Y, verbose=0)
    expected = 0.3 * divergence(layers[0]) + 0.1 * divergence(layers[1])
    assert_allclose(np.subtract(history["loss"], history["mse"]), expected, rtol=1e-4)
    assert_allclose(scores[0] - scores[1], expected, rtol=1e-4)
    assert len(set(history["mse"])) == 3  # every step draws new weights


@pytest.mark.parametrize("name", LAYERS)
def test_each_layer_adds_its_divergence_once_a_pass(name):
    layer, x = LAYERS[name][0](kl_weight=0.25), rows_for(name, (5,))
    outputs = layer(x)
    (loss,) = layer.losses
    plain = LAYERS[name][0]()
    assert outputs.shape == plain(x).shape[1:]
    assert layer.compute_output_shape((None, *x.shape[1:]))[1:] == outputs.shape[1:]
    assert layer(keras.KerasTensor((None, *x.shape[1:]))).shape[1:] == outputs.shape[1:]
    with fns.layers.function_draws(400, 0, noise="joint") as draws:
        functions = layer(x)
    assert functions.shape == (400, *outputs.shape) and not layer.losses
    if name != "Dense_radial":  # its prior has no closed form with radial weights
        assert_allclose(loss, 0.25 * draws.kl("float32"), rtol=1e-5)


@pytest.mark.slow
def test_a_divergence_without_closed_form_is_right_on_average(assert_mean_close):
    """The loss uses one draw of the weights; the mean over 20,000 draws is the reference."""
    layer, x = LAYERS["Dense_radial"][0](kl_weight=0.25), rows_for("Dense_radial", (5,))
    losses = []
    for _ in range(200):
        layer(x)
        losses.append(float(*layer.losses))
    with fns.layers.function_draws(20_000, 0, noise="joint") as draws:
        layer(x)
    assert np.std(losses) > 0.0
    assert_mean_close(np.array(losses), 0.25 * draws.kl("float32"))


def test_a_layer_that_is_called_twice_counts_once_and_is_one_function():
    layer = fns.layers.VariationalDense(3, kl_weight=1.0)
    inputs = keras.Input((3,))
    model = keras.Model(inputs, [layer(inputs), layer(inputs)])
    first, second = model(X, training=True)
    assert_allclose(first, second)
    assert len(model.losses) == 1
    again = model(X, training=True)[0]
    assert np.abs(again - first).max() > 1e-3 and len(model.losses) == 1


def test_the_posterior_of_a_linear_model_is_recovered():
    n, scale = 64, 0.5
    columns, _ = np.linalg.qr(GENERATOR.normal(size=(n, 2)))
    x = np.sqrt(n) * columns  # the exact posterior of orthogonal inputs has independent weights
    y = x @ [[0.7], [-0.4]] + scale * GENERATOR.normal(size=(n, 1))
    precision = n / scale**2 + 1.0
    mean = x.T @ y / scale**2 / precision
    layer = fns.layers.VariationalDense(
        1,
        use_bias=False,
        prior="standard",
        estimator="local_reparameterization",
        kl_weight=2 * scale**2 / n,
    )
    model = sequential(layer, rows=(2,))
    steps = 600
    rate = keras.optimizers.schedules.CosineDecay(0.05, steps)
    model.compile(keras.optimizers.Adam(rate), "mse", steps_per_execution=50)
    model.fit(np.tile(x, (50, 1)), np.tile(y, (50, 1)), 64, steps // 50, shuffle=False, verbose=0)
    stddev = np.sqrt(layer.posterior.variances()["kernel"])
    assert_allclose(layer.posterior.mean_values()["kernel"], mean, atol=0.2 * precision**-0.5)
    assert_allclose(stddev, precision**-0.5, rtol=0.1)


@pytest.mark.slow
def test_a_converted_network_trains_predicts_and_is_saved(tmp_path):
    plain = sequential(
        keras.layers.Conv2D(2, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Dropout(0.5),
        keras.layers.Flatten(),
        keras.layers.Dense(2),
        rows=(6, 6, 1),
    )
    x = GENERATOR.normal(size=(37, 6, 6, 1)).astype("float32")
    model = fns.layers.from_keras(plain, kl_weight=1 / len(x))
    assert model.output_shape == (None, 2)
    model.compile("adam", "mse", metrics=["mae"])
    history = model.fit(x, Y, validation_split=0.2, epochs=2, verbose=0).history
    assert all(np.isfinite(values).all() for values in history.values())
    first, second = (model.predict(x, verbose=0) for _ in range(2))
    assert first.shape == (37, 2) and np.any(first != second)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    for ours, expected in zip(loaded.weights, model.weights, strict=True):
        assert_allclose(ours.numpy(), expected.numpy())
    assert loaded.layers[-1].kl_weight == 1 / 37


def test_without_a_weight_plain_keras_is_refused():
    model = sequential(fns.layers.VariationalDense(2))
    model.compile("sgd", "mse")
    for verb in (model.fit, model.evaluate, lambda x, y, **kw: model.predict(x, **kw)):
        with pytest.raises(ValueError, match=r"1 / len\(x\)[\s\S]*Received: .* kl_weight=None"):
            verb(X, Y, verbose=0)
    with pytest.raises(ValueError, match="kl_weight=-1"):
        fns.layers.VariationalDense(2, kl_weight=-1)


class WithoutTraining(keras.Model):
    """A model as in most tutorials: its `call` does not ask whether it trains."""

    def __init__(self, layer):
        super().__init__()
        self.first = layer

    def call(self, inputs):
        outputs = self.first(inputs)
        return outputs.mean if isinstance(outputs, tuple) else outputs


class OwnStep(WithoutTraining):
    def call(self, inputs, training=None):
        return super().call(inputs)

    def train_step(self, data):
        return {"loss": tf.reduce_mean((self(data[0]) - data[1]) ** 2)}


@pytest.mark.parametrize("is_built", [True, False])
@pytest.mark.parametrize("model_class", [WithoutTraining, OwnStep])
@pytest.mark.parametrize("make_layer", [fns.layers.VariationalDense, fns.tagi.Dense])
def test_classes_of_users_that_do_not_say_whether_they_train_are_refused(
    make_layer, model_class, is_built
):
    model = model_class(make_layer(2))
    if is_built:
        model(X)
    model.compile("sgd", "mse")
    words = r"(kl_weight=1 / len\(x\)`|use `fns.tagi.TAGIModel)[\s\S]*Received: layer"
    for verb in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match=words):
            verb(X, Y, verbose=0)


def test_a_class_of_a_user_adds_the_divergence():
    layer = fns.layers.VariationalDense(2, kl_weight=0.5)
    model = WithoutTraining(layer)
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mse"])
    history = model.fit(X, Y, verbose=0).history
    loss, mse = model.evaluate(X, Y, verbose=0)
    found = [history["loss"][0] - history["mse"][0], loss - mse]
    assert_allclose(found, 0.5 * divergence(layer), rtol=1e-4)


def test_our_models_count_nothing_twice():
    network = sequential(fns.layers.VariationalDense(2, kl_weight=0.1, name="v"))
    with pytest.raises(ValueError, match=r"plain Keras model: .* Received: layers \['v'\]"):
        fns.fbnn.VariationalModel(network)
    process = fns.processes.VariationalProcess(network, 2)
    assert process.sample(tf.constant(X), 4, seed=0).shape == (4, 37, 2)
    assert not network.losses


def tagi_networks():
    dense = fns.tagi.Dense
    return {
        "with_input": sequential(dense(3, activation="relu"), dense(2)),
        "deferred": keras.Sequential([dense(3, activation="relu"), dense(2)]),
        "diwp": fns.diwp.DIWPModel(fns.diwp.DeepKernel(4, depth=1), num_outputs=2, seed=0),
    }


@pytest.mark.parametrize("kind", ["with_input", "deferred", "diwp"])
@pytest.mark.slow
def test_layers_of_moments_are_refused_in_words(kind):
    network = tagi_networks()[kind]
    if kind == "diwp":
        network.fit(X, Y, epochs=1, verbose=0)
        network = network.network
    network.compile("sgd", "mse")
    for verb in (network.fit, network.evaluate):
        with pytest.raises(ValueError, match=r"use `fns\.\w+\.\w+Model[\s\S]*Received: layer"):
            verb(X, Y, verbose=0)


def test_moments_of_a_network_that_is_not_compiled_can_be_predicted():
    network = tagi_networks()["with_input"]
    assert network.predict(X, verbose=0)[0].shape == (37, 2)
