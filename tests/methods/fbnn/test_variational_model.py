"""`VariationalModel`: exact where that is possible, and as a model of the contract."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from test_gpu_ready import devices_of, ops_of

from tfp_fnspace import datasets, likelihoods
from tfp_fnspace.layers.convert import from_keras
from tfp_fnspace.layers.convolutions import VariationalConv2D
from tfp_fnspace.layers.dense import VariationalDense
from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.layers.embedding import VariationalEmbedding
from tfp_fnspace.layers.per_sample import PerSample
from tfp_fnspace.methods.fbnn.variational_model import VariationalModel

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(40, 3)).astype("float32")
Y = (100.0 + 20.0 * np.sin(X[:, :1]) + GENERATOR.normal(size=(40, 1))).astype("float32")
NOISE = 0.5


@pytest.fixture(autouse=True)
def fixed_weights():
    keras.utils.set_random_seed(0)


def network(units=8, num_outputs=1, **options):
    keras.utils.set_random_seed(0)
    layers = [VariationalDense(units, activation="tanh", **options)]
    return keras.Sequential([keras.Input((3,)), *layers, VariationalDense(num_outputs, **options)])


def make(eager=False, net=None, **options):
    small = {"num_samples": 3, "num_eval_samples": 20, "seed": 0}
    model = VariationalModel(network() if net is None else net, **{**small, **options})
    model.compile(optimizer=keras.optimizers.Adam(0.01), run_eagerly=eager)
    return model


def fit(model, x=X, y=Y, epochs=1, batch_size=20, **options):
    return model.fit(x, y, epochs=epochs, batch_size=batch_size, verbose=0, **options)


# What is learnt ----------------------------------------------------------------------------------


def exact_posterior(x, y):
    """Returns mean, covariance and evidence of `f = x w + b`, `w, b ~ N(0, 1)`, in layer order."""
    features = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    covariance = np.linalg.inv(np.eye(4) + features.T @ features / NOISE**2)
    mean = covariance @ features.T @ y / NOISE**2
    total = features @ features.T + NOISE**2 * np.eye(len(x))
    evidence = -0.5 * (y.T @ np.linalg.solve(total, y)).item()
    evidence -= 0.5 * (np.linalg.slogdet(total)[1] + len(x) * np.log(2 * np.pi))
    return mean, covariance, evidence / len(x)


def test_exact_posterior_and_evidence_of_a_linear_model():
    y = X @ [[1.0], [-0.5], [0.2]] + 0.7 + NOISE * GENERATOR.normal(size=(40, 1))
    layer = VariationalDense(1, posterior="full", prior="standard")
    model = VariationalModel(
        keras.Sequential([keras.Input((3,)), layer]),
        likelihood=likelihoods.Gaussian(NOISE),
        num_samples=50,
        num_eval_samples=4000,
        standardize=False,
        seed=0,
    )
    model.compile(num_rows=40)
    copies = [np.tile(a, (50, 1)) for a in (X, y)]  # an epoch is 50 steps on all rows
    history = fit(model, *copies, epochs=40, batch_size=40, shuffle=False).history
    mean, covariance, evidence = exact_posterior(X, y)
    ours = np.concatenate([v.numpy().ravel() for v in layer.posterior.means.values()])
    assert_allclose(ours, mean[:, 0], atol=5e-3)
    lower = layer.posterior.cholesky().numpy()
    assert_allclose(lower @ lower.T, covariance, atol=5e-4)
    assert_allclose(history["elbo"][-1], evidence, atol=2e-3)
    assert max(history["elbo"]) < evidence + 5e-3  # an epoch's estimates are averages of draws
    predicted = model.predict(X)
    features = np.concatenate([X, np.ones((40, 1))], axis=1)
    spread = np.sqrt(np.sum(features @ covariance * features, axis=1))
    assert_allclose(predicted["epistemic_stddev"][:, 0], spread, rtol=0.08)
    assert_allclose(predicted["mean"], features @ mean, atol=6 * spread.max() / 4000**0.5)


@pytest.mark.parametrize("estimator", ["function", "local_reparameterization", "flipout"])
@pytest.mark.slow
def test_estimators_train_to_the_same_fit(estimator):
    options = {"num_eval_samples": 100, "kl_annealing_steps": 0}
    model = make(net=network(estimator=estimator), **options)
    history = fit(model, epochs=150).history
    assert_allclose(history["elbo"], np.subtract(history["log_likelihood"], history["kl"]), 1e-4)
    assert_allclose(history["loss"], np.negative(history["elbo"]), rtol=1e-5)
    assert history["elbo"][-1] > history["elbo"][0]
    scores = model.evaluate(X, Y, return_dict=True, verbose=0)
    assert scores["rmse"] < 0.6 * Y.std()


@pytest.mark.slow
def test_history_is_in_the_users_units():
    """The bound of y in other units differs by the logarithm of the unit."""
    ours, theirs = (fit(make(), X, y, epochs=2).history for y in (Y, 10.0 * Y))
    assert_allclose(np.subtract(ours["elbo"], theirs["elbo"]), np.log(10.0), atol=1e-3)
    assert_allclose(ours["kl"], theirs["kl"], rtol=1e-3)


def objective(model, steps=0):
    model.counters.steps.assign(steps)
    inputs = model.units.scaled(tf.constant(X))
    targets = model.units.target_scaler(tf.constant(Y))
    loss, parts = model.objective(inputs, targets, 40.0, tf.constant([1, 2]))
    return float(loss), {name: float(part) for name, part in parts.items()}


def test_weight_of_the_divergence_and_annealing():
    model = make(kl_weight=0.1, kl_annealing_steps=10)
    model.adapt(X, Y)
    for steps, weight in ((0, 0.01), (4, 0.05), (9, 0.1), (50, 0.1)):
        loss, parts = objective(model, steps)
        assert_allclose(loss, weight * parts["kl"] - parts["log_likelihood"], rtol=1e-5)
        assert_allclose(parts["elbo"], parts["log_likelihood"] - parts["kl"], rtol=1e-5)


def test_divergence_is_that_of_all_layers_over_the_rows():
    model = make()
    model.adapt(X, Y)
    _, parts = objective(model)
    with function_draws(1, 0, prior="relevance") as draws:
        model.network(X)
    assert len(draws.divergences) == 2
    assert_allclose(parts["kl"], float(draws.kl("float32")) / 40.0, rtol=1e-5)


# Prediction --------------------------------------------------------------------------------------


def test_function_samples_are_coherent_across_calls_and_batches():
    model = make()
    fit(model)
    whole = model.sample_functions(X, 7, seed=3)
    assert whole.shape == (7, 40, 1)
    parts = [model.sample_functions(X[rows], 7, seed=3) for rows in (slice(0, 5), slice(5, 40))]
    assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-5)
    assert np.abs(model.sample_functions(X, 7, seed=4) - whole).max() > 1e-2
    predicted = model.predict(X)
    for batch_size in (1, 7):
        for key, value in model.predict(X[:9], batch_size=batch_size).items():
            assert_allclose(value, predicted[key][:9], rtol=1e-4)
    values = model.units.target_scaler.inverse(model(X)).numpy()
    assert values.shape == (20, 40, 1)
    assert_allclose(values.mean(axis=0), predicted["mean"], rtol=1e-4, atol=1e-6)
    assert_allclose(values.std(axis=0), predicted["epistemic_stddev"], rtol=1e-3)


def test_classes_and_images():
    images = GENERATOR.uniform(size=(40, 6, 6, 1)).astype("float32")
    inputs = keras.Input((6, 6, 1))
    hidden = VariationalConv2D(3, 3, activation="relu", estimator="flipout")(inputs)
    hidden = PerSample(keras.layers.Flatten())(hidden)
    net = keras.Model(inputs, VariationalDense(3)(hidden))
    model = make(net=net, likelihood=likelihoods.Categorical())
    assert not model.standardize
    fit(model, images, GENERATOR.integers(0, 3, 40), epochs=2)
    outputs = model.predict(images)
    assert_allclose(outputs["probabilities"].sum(axis=1), 1.0, rtol=1e-5)
    assert np.all(outputs["mutual_information"] > 0.0)


def test_indices_and_several_inputs():
    words, numbers = keras.Input((5,), dtype="int32", name="words"), keras.Input((3,), name="x")
    hidden = VariationalEmbedding(9, 4)(words)
    hidden = PerSample(keras.layers.GlobalAveragePooling1D())(hidden)
    hidden = keras.layers.Activation("tanh")(hidden)
    outputs = keras.layers.Add()([VariationalDense(1)(hidden), VariationalDense(1)(numbers)])
    model = make(net=([words, numbers], outputs))
    assert not model.standardize
    fit(model, [GENERATOR.integers(0, 9, (40, 5)), X], Y)
    assert model.predict([np.full((2, 5), 8), X[:2]])["mean"].shape == (2, 1)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (lambda: likelihoods.Bernoulli(), (Y > 100.0).astype("float32")),
        (lambda: likelihoods.StudentT(df=4.0, scale=0.3), Y),
        (lambda: likelihoods.Gaussian(0.3, trainable=True), Y),
    ],
)
@pytest.mark.slow
def test_likelihoods(likelihood, y):
    model = make(likelihood=likelihood())
    fit(model, y=y)
    assert np.all(np.isfinite(model.evaluate(X[:5], y[:5], verbose=0)))
    assert model.predict_distribution(X[:3]).batch_shape == [3]


# Keras -------------------------------------------------------------------------------------------


def assert_same_predictions(first, second):
    for key, value in first.predict(X).items():
        assert_array_equal(value, second.predict(X)[key])


@pytest.mark.slow
def test_keras_file_keeps_all_and_training_goes_on(tmp_path):
    model = make(net=network(posterior="low_rank"), kl_annealing_steps=7, kl_weight=0.5)
    fit(model, epochs=2)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras", safe_mode=True)
    assert_same_predictions(loaded, model)
    assert_array_equal(*[m.sample_functions(X, 3, seed=1) for m in (model, loaded)])
    configs = [{**m.get_config(), "network": None} for m in (loaded, model)]
    assert configs[0] == configs[1]
    for each in (model, loaded):
        fit(each)
    assert_same_predictions(loaded, model)


@pytest.mark.slow
def test_same_seed_same_run():
    runs = []
    for seed in (1, 1, 2):
        model = make(seed=seed)
        fit(model, epochs=2)
        runs.append(model.network.get_weights()[0])
    assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 1e-5


def test_compiled_epochs_equal_the_loop_over_batches():
    compiled, eager = make(), make(eager=True)
    histories = [fit(model, epochs=2).history for model in (compiled, eager)]
    for key, values in histories[0].items():
        assert_allclose(values, histories[1][key], rtol=1e-3, atol=1e-4)


def prepared(**options):
    model = make(**options)
    model.adapt(X, Y)
    model.begin(40, 10)
    return model


@pytest.mark.parametrize("estimator", ["function", "local_reparameterization", "flipout"])
def test_every_op_has_a_gpu_kernel(estimator):
    if not tf.test.is_built_with_cuda():
        pytest.skip("this build of TensorFlow has no GPU kernels to list")
    model = prepared(net=network(estimator=estimator))
    found = ops_of(lambda x, y: model.train_step((x, y)), (tf.constant(X), tf.constant(Y)))
    found |= ops_of(lambda x: model.predict_step((x,)), (tf.constant(X),))
    assert {"MatMul", "BatchMatMulV2"} & found
    assert not {op for op in found if not {"GPU", "DEFAULT"} & devices_of(op)}


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
@pytest.mark.slow
def test_mixed_precision(policy):
    dtype = "float64" if policy == "float64" else "float32"
    net = keras.Sequential(
        [
            keras.Input((3,), dtype=dtype),
            VariationalDense(8, activation="tanh", dtype=policy),
            VariationalDense(1, dtype=policy),
        ]
    )
    model = make(net=net, dtype=dtype)
    history = fit(model, epochs=2).history
    assert np.all(np.isfinite(history["loss"]))
    assert model(X).dtype == dtype and model.predict(X)["mean"].dtype == "float64"


# Trained networks --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    """Returns new rows' scores of a trained network, and of its conversion before and after."""
    images, labels = load_digits(return_X_y=True)
    train, test = (images[:1300], labels[:1300]), (images[1300:], labels[1300:])
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(64, "relu"), keras.layers.Dense(10)]
    network = keras.Sequential([keras.Input((64,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile("adam", loss, metrics=["accuracy"])
    network.fit(*train, epochs=20, verbose=0)
    model = VariationalModel(from_keras(network), likelihood=likelihoods.Categorical(), seed=0)
    model.adapt(*train)
    model.compile()
    before = model.evaluate(*test, verbose=0, return_dict=True)
    model.fit(*train, epochs=20, verbose=0)
    after = model.evaluate(*test, verbose=0, return_dict=True)
    return network.evaluate(*test, verbose=0), before, after


@pytest.mark.slow
def test_a_converted_network_is_the_network(digits):
    (nll, accuracy), before, _ = digits
    assert_allclose([before["accuracy"], before["nll"]], [accuracy, nll], atol=0.01)


def test_a_converted_network_is_no_worse_after_training(digits):
    (nll, accuracy), _, after = digits
    assert after["accuracy"] > accuracy - 0.01
    assert after["nll"] < 1.1 * nll


@pytest.mark.slow
def test_a_converted_regression_predicts_what_the_network_does(tmp_path):
    """Predictions are in the user's units, although the model's are different."""
    x = 5.0 + 3.0 * X
    layers = [keras.layers.Dense(4, "relu"), keras.layers.Dense(1)]
    network = keras.Sequential([keras.Input((3,)), *layers])
    layers[-1].bias.assign([100.0])
    model = make(net=from_keras(network), likelihood=likelihoods.Gaussian(0.3))
    model.adapt(x, Y)
    expected = network.predict(x, verbose=0)
    assert_allclose(model.predict(x)["mean"], expected, atol=0.1)
    assert model.standardize and model.predict(x)["aleatoric_stddev"][0] > 4.0
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_allclose(loaded.predict(x)["mean"], model.predict(x)["mean"], rtol=1e-6)
    assert loaded.in_users_units
    in_model_units = from_keras(network)
    in_model_units.in_users_units = False
    model = make(net=in_model_units)
    model.adapt(x, Y)
    assert np.abs(model.predict(x)["mean"] - expected).mean() > 100.0


@pytest.mark.parametrize("last", [{"activation": "softmax"}, {}])
def test_probabilities_are_no_logits(last):
    layers = [keras.layers.Dense(3, **last)] + ([] if last else [keras.layers.Softmax()])
    network = from_keras(keras.Sequential([keras.Input((3,)), *layers]))
    with pytest.raises(ValueError, match="must end in logits.*Received: layer"):
        VariationalModel(network, likelihood=likelihoods.Categorical())


# Defaults ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_optimizer_and_the_warm_up_follow_from_the_steps():
    model = VariationalModel(network(), seed=0, num_samples=3)
    model.compile()
    fit(model, epochs=6)
    rates = model.optimizer.get_config()["learning_rate"]["config"]
    assert rates["decay_steps"] == 12 and model.annealing.steps.numpy() == 1000
    fit(model, epochs=6)
    assert_allclose(model.optimizer.learning_rate, 1e-3, rtol=1e-6)
    given = make()
    given.adapt(X, Y)
    given.begin(40, 6000)
    assert given.annealing.steps.numpy() == 2000
    fit(given)
    assert_allclose(given.optimizer.learning_rate, 0.01, rtol=1e-6)
    assert given.annealing.steps.numpy() == 1000  # from the first steps that were taken


class Stop(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 3:
            raise InterruptedError("power cut")


@pytest.mark.slow
def test_a_stopped_run_with_defaults_ends_where_another_does(tmp_path):
    whole, stopped, restored = (VariationalModel(network(), seed=0) for _ in range(3))
    fit(whole, epochs=6)

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    with pytest.raises(InterruptedError, match="power cut"):
        fit(stopped, epochs=6, callbacks=[backup(), Stop()])
    fit(restored, epochs=6, callbacks=[backup()])
    fit(stopped, epochs=3)  # the remaining epochs, with the same optimizer
    for model in (stopped, restored):
        for ours, theirs in zip(model.weights, whole.weights, strict=True):
            assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_defaults_find_a_curve_as_a_process_does(data_folder):
    """On accelerations in a crash, a network of fixed scales never leaves its prior."""
    x, y, x_new, y_new = datasets.load("mcycle", data_folder / "dev").split(0)
    inputs = keras.Input((1,))
    hidden = VariationalDense(50, activation="relu")(inputs)
    hidden = VariationalDense(50, activation="relu")(hidden)
    model = VariationalModel((inputs, VariationalDense(1)(hidden)), seed=0)
    model.compile()
    fit(model, x, y, epochs=1500, batch_size=len(x))
    ours = model.evaluate(x_new, y_new, verbose=0, return_dict=True)
    kernel = ConstantKernel() * RBF() + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    process.fit((x - x.mean()) / x.std(), y[:, 0])
    mean, stddev = process.predict((x_new - x.mean()) / x.std(), return_std=True)
    theirs = -np.mean(stats.norm.logpdf(y_new[:, 0], mean, stddev))
    assert ours["nll"] < theirs + 0.4  # the prior alone has 1.2
    assert ours["crps"] < 0.4 * np.abs(y_new - y.mean()).mean()


# Bad input ---------------------------------------------------------------------------------------


def plain(*layers):
    return keras.Sequential([keras.Input((3,)), *layers])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"net": 3}, TypeError, "network=3"),
        ({"net": plain(keras.layers.Dense(1))}, ValueError, "variational layers.*Received"),
        ({"net": plain(VariationalDense(1), keras.layers.Flatten())}, ValueError, "function val"),
        ({"kl_weight": -1.0}, ValueError, "kl_weight=-1.0"),
        ({"kl_weight": True}, ValueError, "kl_weight=True"),
        ({"kl_annealing_steps": 1.5}, ValueError, "kl_annealing_steps=1.5"),
        ({"num_samples": 0}, ValueError, "num_samples=0"),
        ({"likelihood": "gaussian"}, TypeError, "likelihood='gaussian'"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)
