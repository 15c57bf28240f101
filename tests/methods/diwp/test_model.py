"""`DIWPModel` as a Keras model: sizes, training, prediction, likelihoods, bad input."""

import warnings

import diwp_models
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import diwp, kernels, likelihoods
from tfp_fnspace.boundary.streams import first_batches
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.methods.diwp import model as module
from tfp_fnspace.methods.diwp.layers import base

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(40, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 2.0]
Y = 100.0 + 20.0 * np.sin(X[:, :1]) + GENERATOR.normal(size=(40, 1))
VARIABLE = kernels.SquaredExponential(length_scale=tf.Variable(2.0))
SMALL = {"inducing_points": 8, "depth": 1, "num_samples": 3, "num_eval_samples": 20, "seed": 0}


def make_model(eager=False, **options):
    """Makes a small model, which is eager where little is trained because tracing takes longer."""
    model = diwp_models.make_model(**{**SMALL, **options})
    if eager:
        model.compile(run_eagerly=True)
    return model


def fit(model, x=X, y=Y, epochs=1, batch_size=20, **options):
    return model.fit(x, y, epochs=epochs, batch_size=batch_size, verbose=0, **options)


@pytest.fixture(scope="module")
def fitted():
    model = make_model()
    history = fit(model, epochs=40)
    return model, history.history


# Sizes -------------------------------------------------------------------------------------------


def test_inducing_inputs_start_at_rows_that_are_trained_on():
    model, seen = make_model(eager=True, inducing_points=40), []
    prepare = model.prepare

    def record(inputs, targets, batches):
        prepare(inputs, targets, batches)
        points = model.inducing_inputs_in_user_units()
        values = model.network.layers[-1].posterior.v.numpy()[0]
        seen.append((inputs[0], targets, points, values))

    model.prepare = record
    with pytest.warns(UserWarning, match="32 rows.*instead of 40"):
        fit(model, validation_split=0.2)
    ((inputs, targets, points, values),) = seen
    assert_array_equal(inputs, X[:32])
    assert_array_equal(targets, Y[:32])
    assert_allclose(points, X[:32], rtol=1e-4, atol=1e-4)
    assert_allclose(values * Y[:32].std() + Y[:32].mean(), Y[:32, 0], rtol=1e-3)


def test_greedy_inducing_inputs_are_rows_far_apart():
    """Of 100 rows close together and 5 far from all others, greedy selection finds the 5."""
    random = np.random.default_rng(3)
    far = [[14.0, 5.0], [5.0, 14.0], [5.0, 5.0], [45.0, 45.0], [85.0, 85.0]]
    x = np.concatenate([1e-3 * random.normal(size=(100, 2)), far])
    y = np.sin(x[:, :1])
    chosen = {}
    for init in ("random", "greedy"):
        model = make_model(inducing_points=6, rows=init)
        model.adapt(x, y)
        model.prepare([x], y, [])
        chosen[init] = model.inducing_inputs_in_user_units()
        for z in chosen[init]:
            assert np.min(np.max(np.abs(x - z), axis=1)) < 1e-4
    count = {init: np.sum(np.max(np.abs(z), axis=1) > 1.0) for init, z in chosen.items()}
    assert count["greedy"] == 5 > count["random"]


def test_fewer_rows_than_inducing_points_shrink_them_with_a_warning():
    model = make_model(eager=True, inducing_points=50)
    with pytest.warns(UserWarning, match="40 rows.*instead of 50"):
        fit(model)
    assert model.inducing_inputs_in_user_units().shape == (40, 3)
    assert model.get_config()["network"]["config"]["inducing_points"] == 50
    assert model.get_build_config()["inducing_points"] == 40


@pytest.mark.slow
def test_one_row_and_constant_features_train():
    one = make_model(eager=True)
    with pytest.warns(UserWarning, match="1 rows"):
        history = fit(one, X[:1], Y[:1], epochs=3).history
    assert np.all(np.isfinite(history["loss"]))
    assert_allclose(one.predict(X[:1])["mean"], Y[:1], atol=1.0)
    constant = make_model(eager=True)
    history = fit(constant, np.full((20, 2), 7.0), Y[:20], epochs=3).history
    assert np.all(np.isfinite(history["loss"]))
    outputs = constant.predict(np.full((3, 2), 7.0))
    assert_allclose(outputs["mean"], outputs["mean"][0, 0], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["relu", "squared_exponential"])
def test_duplicates_train_for_long_in_float32(kernel):
    x, y = np.repeat(X[:6], 5, axis=0), np.repeat(Y[:6], 5, axis=0)
    model = make_model(inducing_points=20, kernel=kernel)  # at least 14 of them equal others
    history = fit(model, x, y, epochs=150, batch_size=30).history
    for name in ("loss", "elbo", "log_likelihood", "kl", "jittered"):
        assert len(history[name]) == 150 and np.all(np.isfinite(history[name])), name
    assert_array_equal(history["jittered"], 0.0)  # the fixed jitter is enough
    assert np.mean(history["elbo"][-20:]) > np.mean(history["elbo"][:20])
    assert all(np.all(np.isfinite(value)) for value in model.predict(x).values())


def test_jitter_that_is_added_is_in_the_history_with_a_warning(monkeypatch):
    x, y = np.repeat(X[:4], 5, axis=0), np.repeat(Y[:4], 5, axis=0)
    model = make_model(inducing_points=12, kernel="squared_exponential")
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)  # points that are equal stay equal
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        fit(model, x, y)
    monkeypatch.setitem(base.JITTER, "float32", 0.0)
    with pytest.warns(RuntimeWarning, match="inducing points was not positive .* epoch 1") as said:
        history = fit(model, x, y, epochs=2).history
    assert min(history["jittered"]) > 0.0 and np.all(np.isfinite(history["loss"]))
    assert sum("that predictions use" in str(w.message) for w in said) == 1 and len(said) == 2


class Batches(keras.utils.PyDataset):
    def __init__(self, num_batches):
        super().__init__()
        self._num_batches = num_batches

    def __getitem__(self, index):
        index = index % 8
        return X[5 * index : 5 * index + 5], Y[5 * index : 5 * index + 5]

    @property
    def num_batches(self):
        return self._num_batches


STREAMS = {
    "dataset": lambda: tf.data.Dataset.from_tensor_slices((X, Y)).batch(5),
    "endless dataset": lambda: tf.data.Dataset.from_tensor_slices((X, Y)).batch(5).repeat(),
    "PyDataset": lambda: Batches(8),
    "endless PyDataset": lambda: Batches(None),
    "generator": lambda: ((X[i : i + 5], Y[i : i + 5]) for i in range(0, 40, 5)),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_inducing_points_come_from_as_many_batches_as_it_takes(kind, recwarn):
    model = make_model(eager=True, inducing_points=12, standardize=False)
    model.compile(run_eagerly=True, num_rows=40)
    model.prepare, prepare = lambda *data: seen.append(data[:2]), model.prepare
    seen = []
    history = model.fit(STREAMS[kind](), verbose=0, steps_per_epoch=2)
    ((inputs, targets),) = seen
    assert_array_equal(inputs[0], X[:15].astype("float32"))
    assert_array_equal(targets, Y[:15])
    prepare(inputs, targets, [])
    points = model.inducing_inputs_in_user_units()
    assert len({np.abs(X - point).sum(axis=1).argmin() for point in points}) == 12
    assert model.counters.steps.numpy() == 2 and np.isfinite(history.history["loss"][0])
    assert not [w for w in recwarn if "inducing" in str(w.message)]


def test_no_batch_of_a_generator_is_lost():
    taken, rest = first_batches(STREAMS["generator"](), 12)
    assert len(taken) == 3
    assert_array_equal(np.concatenate([x for x, _ in rest]), X)


def test_sizes_come_from_the_batches_of_a_stream():
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(10)
    model = make_model(eager=True, inducing_points=50)
    with pytest.warns(UserWarning, match="40 rows.*instead of 50"):
        history = model.fit(batches, verbose=0).history
    assert model.num_outputs == 1 and model.input_tensors[0].shape == (None, 3)
    assert len(model.inducing_inputs_in_user_units()) == 40
    assert model.counters.rows.numpy() == 40 and np.isfinite(history["loss"][0])
    with pytest.raises(ValueError, match="at least one batch. Received: x="):
        make_model().fit(batches.take(0), verbose=0)


# The objective -----------------------------------------------------------------------------------


def objective(model, x, y, seed=(1, 2), num_samples=None):
    model.num_samples = num_samples or model.num_samples
    inputs = model.units.scaled(tf.constant(x, tf.float32))
    targets = model.units.target_scaler(tf.constant(y, tf.float32))
    _, parts = model.objective(inputs, targets, 40.0, tf.constant(seed))
    return {name: float(part) for name, part in model.units.logs(parts).items()}


@pytest.mark.slow
def test_history_is_the_bound_per_row_in_the_users_units(fitted):
    model, history = fitted
    for key in ("elbo", "log_likelihood", "kl", "jittered", "loss"):
        assert len(history[key]) == 40 and np.all(np.isfinite(history[key])), key
    assert_allclose(history["elbo"], np.subtract(history["log_likelihood"], history["kl"]), 1e-4)
    assert_array_equal(history["loss"], np.negative(history["elbo"]))
    assert history["elbo"][-1] > history["elbo"][0] + 0.2
    parts = objective(model, X, Y, num_samples=200)
    model.num_samples = 3
    mean, stddev = (model.predict(X)[key] for key in ("mean", "stddev"))
    density = -0.5 * ((Y - mean) / stddev) ** 2 - np.log(stddev * np.sqrt(2.0 * np.pi))
    assert parts["log_likelihood"] <= density.mean() + 0.1  # Jensen, and the right unit
    assert parts["log_likelihood"] > density.mean() - 1.0


def prior_model(**options):
    """Makes an untrained model with a small delta, so that the Gram matrices vary."""
    model = make_model(eager=True, delta=2.0, **options)
    model.adapt(X, Y)
    return model


def test_order_of_rows_does_not_matter(fitted):
    model, _ = fitted
    order = np.random.default_rng(1).permutation(40)
    shuffled = [objective(model, X[o], Y[o], num_samples=3) for o in (np.arange(40), order)]
    model.num_samples = 3
    assert_allclose(shuffled[0]["kl"], shuffled[1]["kl"], rtol=1e-5)
    outputs = model.predict(X)["mean"]
    assert_allclose(model.predict(X[order])["mean"], outputs[order], rtol=1e-5, atol=1e-6)
    model = prior_model()
    first, second = (objective(model, X[o], Y[o], num_samples=4000) for o in (slice(None), order))
    # Over five seeds the differences were up to 0.005, from different noise at the points.
    assert_allclose(first["log_likelihood"], second["log_likelihood"], atol=0.015)


def test_minibatches_estimate_the_bound_without_bias(monkeypatch):
    def difference(model):
        whole = objective(model, X, Y, num_samples=4000)
        halves = [objective(model, X[rows], Y[rows]) for rows in (slice(0, 20), slice(20, 40))]
        mean = {key: np.mean([half[key] for half in halves]) for key in whole}
        assert_allclose(mean["kl"], whole["kl"], rtol=1e-4)
        return mean["log_likelihood"] - whole["log_likelihood"]

    # Over five seeds the difference was up to 0.005. With the size of the batch in the degrees of
    # freedom, as in the authors' program, it was -0.035 to -0.038.
    assert abs(difference(prior_model())) < 0.015
    size_of_batch = lambda layer, it: tf.shape(it)[-1]  # noqa: E731
    monkeypatch.setattr(diwp.InverseWishartProcess, "points_of_a_conditional", size_of_batch)
    assert difference(prior_model()) < -0.025


@pytest.mark.slow
def test_default_learning_rates_are_those_of_section_7():
    model = make_model()
    fit(model, epochs=5)  # ten steps
    rates = model.optimizer.get_config()["learning_rate"]["config"]
    assert rates["boundaries"] == [5] and rates["values"] == [0.01, 0.001]
    assert isinstance(model.optimizer, keras.optimizers.Adam)
    assert float(model.optimizer.learning_rate) == pytest.approx(1e-3)


# The data's bandwidth (figure 7) -----------------------------------------------------------------


def crossings_far_from_the_data(bandwidth, epochs, **options):
    """Counts zero crossings of posterior draws in 7 <= x <= 15 (a mean), for data on [-5, 5]."""
    x = np.linspace(-5.0, 5.0, 40)[:, np.newaxis]
    random = np.random.default_rng([0, int(10 * bandwidth)])
    k = np.exp(-((x - x.T) ** 2) / (2.0 * bandwidth**2)) + 1e-8 * np.eye(40)
    y = np.linalg.cholesky(k) @ random.normal(size=(40, 1)) + 0.1 * random.normal(size=(40, 1))
    model = diwp_models.make_model(
        inducing_points=40,
        kernel="squared_exponential",
        depth=0,
        learn_scale=False,
        constant=False,
        standardize=False,
        likelihood=likelihoods.Gaussian(0.1, dtype="float64"),
        num_samples=5,
        seed=0,
        dtype="float64",
        **options,
    )
    model.compile(optimizer=keras.optimizers.Adam(0.05))
    model.fit(x, y, epochs=epochs, batch_size=40, verbose=0)
    far = np.linspace(7.0, 15.0, 81)[:, np.newaxis]
    draws = model.sample_functions(far, 200, seed=1)[..., 0]
    return np.mean(np.sum(draws[:, 1:] * draws[:, :-1] < 0.0, axis=1))


@pytest.mark.slow
def test_draws_far_from_the_data_have_their_bandwidth():
    options = {"stack": "omega", "delta": 1.0, "epochs": 300}
    short, long = (crossings_far_from_the_data(width, **options) for width in (0.5, 5.0))
    assert short > 2.0 * long  # the truth has 5.1 and 0.5
    same = crossings_far_from_the_data(0.5, epochs=50, hidden="none")
    assert_allclose(same, 8.0 / np.pi, rtol=0.15)  # the kernel's own bandwidth is 1


# Prediction --------------------------------------------------------------------------------------


def test_predictions_do_not_depend_on_the_batch(fitted):
    model, _ = fitted
    whole = model.predict(np.repeat(X, 25, axis=0))  # 1000 rows
    for batch_size in (1, 7):
        for key, value in model.predict(X[:9], batch_size=batch_size).items():
            assert_allclose(value, whole[key][: 9 * 25 : 25], rtol=1e-5)


@pytest.mark.slow
def test_function_samples_are_reproducible_with_the_moments_of_predict(fitted):
    model, _ = fitted
    samples = model.sample_functions(X[:5], 2000, seed=3)
    assert samples.shape == (2000, 5, 1)
    assert_array_equal(samples, model.sample_functions(X[:5], 2000, seed=3))
    assert np.abs(samples - model.sample_functions(X[:5], 2000, seed=4)).max() > 1e-3
    model.num_eval_samples = 2000
    model.reset_functions()
    outputs = model.predict(X[:5])
    model.num_eval_samples = 20
    model.reset_functions()
    spread = outputs["epistemic_stddev"]
    assert np.all(np.abs(samples.mean(axis=0) - outputs["mean"]) < 0.15 * spread)
    assert_allclose(samples.std(axis=0), spread, rtol=0.15)


@pytest.mark.parametrize("hidden", ["inverse_wishart", "none"])
@pytest.mark.slow
def test_distribution_of_a_function_sample_at_a_point_does_not_depend_on_a_far_one(hidden):
    """The ReLU kernel grows with the input; in float32 rounding grows with it."""
    model = make_model(hidden=hidden, eager=True, num_eval_samples=4000, inducing_points=20)
    x = np.linspace(-1.0, 1.0, 20)[:, np.newaxis]
    fit(model, x, np.sin(3.0 * x), epochs=1)
    at = np.array([[0.5]])
    expected = model.predict(at)["epistemic_stddev"][0, 0]
    for far in (1.0, 30.0, 1000.0):
        samples = model.sample_functions(np.concatenate([at, [[far]]]), 4000, seed=2)
        # For normal values both standard errors are 1.1 %.
        assert_allclose(samples[:, 0, 0].std(), expected, rtol=0.08)


def test_predictions_that_are_nan_come_with_a_warning():
    model = make_model(eager=True, standardize=False)
    model.adapt(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.predict(X)
    with pytest.raises(ValueError, match="`x` must be at most 1e.09 .*Received: x with 3 larger"):
        model.predict(np.concatenate([X[:2], np.full((1, 3), 1e20)]))
    posterior = model.network.layers[-1].posterior
    posterior.v.assign(np.nan * posterior.v)
    with pytest.warns(RuntimeWarning, match="predictions are NaN at 3 of 3 rows, the first is 0"):
        model.predict(X[:3])
    with pytest.warns(RuntimeWarning, match="function samples are NaN at 3 of 3 rows"):
        model.sample_functions(X[:3], 2)


@pytest.mark.parametrize("kernel", ["squared_exponential", "relu", "matern52"])
@pytest.mark.parametrize("hidden", ["inverse_wishart", "none"])
@pytest.mark.slow
def test_function_samples_in_float32_are_functions(hidden, kernel):
    """Equal x have equal values, and a grid shows no white noise, whatever rounding does."""
    model = make_model(hidden=hidden, eager=True, kernel=kernel, inducing_points=20)
    x = np.linspace(-2.0, 2.0, 60)[:, np.newaxis]
    fit(model, x, np.sin(3.0 * x), epochs=1)
    grid = np.linspace(-3.0, 3.0, 201)[:, np.newaxis]
    draws = model.sample_functions(np.concatenate([grid, grid[::20]]), 20, seed=2)[..., 0]
    spread = draws.std(axis=0).mean()
    assert np.abs(draws[:, 201:] - draws[:, :201:20]).max() < 1e-2 * spread
    # White noise of standard deviation s has second differences of s sqrt(6).
    noise = np.sqrt(np.mean(np.diff(draws[:, :201], n=2, axis=1) ** 2) / 6.0)
    assert noise < 0.05 * spread


def test_function_samples_come_in_chunks_of_one_size(fitted, monkeypatch):
    model, sizes = fitted[0], []

    def draw(x, num_samples, seed):
        sizes.append(num_samples)
        return tf.random.stateless_normal([num_samples, len(x), 1], seed)

    monkeypatch.setattr(model, "traced", lambda function: draw)
    first = model.sample_functions(X, 10, seed=3)
    assert sizes == [10]
    monkeypatch.setattr(module, "_SAMPLE_NUMBERS", 4 * (40 + 8) ** 2 + 1)
    samples = model.sample_functions(X, 10, seed=3)
    assert sizes[1:] == [4, 4, 4] and samples.shape == (10, 40, 1)
    assert len(np.unique(samples)) == samples.size  # no chunk repeats another
    assert_array_equal(samples[:4], draw(X, 4, as_seed(3)))
    assert first.shape == samples.shape
    monkeypatch.setattr(module, "_SAMPLE_NUMBERS", 1)
    model.sample_functions(X, 2)
    assert sizes[-2:] == [1, 1]


def test_function_samples_at_too_many_points_are_refused(fitted):
    with pytest.raises(ValueError, match="at most 10000 rows.*Received: x with 10001 rows"):
        fitted[0].sample_functions(np.zeros((10_001, 3)), 1)


# Likelihoods and kinds of models -----------------------------------------------------------------

LABELS = (X[:, 0] > 0.0).astype(int) + (X[:, 0] > 0.7)


def test_arguments_of_fit_go_by_position_too():
    model = make_model(eager=True)
    history = model.fit(X, Y, 40, 2, 0, [], 0.0, (X[:5], Y[:5]))
    assert model.counters.steps.numpy() == 2 and len(history.history["val_nll"]) == 2


@pytest.mark.slow
def test_categorical_likelihood_learns_classes():
    model = make_model(likelihood=likelihoods.Categorical(), num_outputs=3)
    model.compile(optimizer=keras.optimizers.Adam(0.05))
    history = fit(model, X, LABELS, epochs=80, batch_size=40).history
    model.compile(run_eagerly=True)  # only few steps remain
    outputs = model.predict(X)
    assert outputs["probabilities"].shape == (40, 3)
    assert_allclose(outputs["probabilities"].sum(axis=1), 1.0, rtol=1e-5)
    accuracy = np.mean(outputs["probabilities"].argmax(axis=1) == LABELS)
    assert accuracy > max(0.85, 0.2 + np.bincount(LABELS).max() / 40)
    assert np.all(np.less(history["elbo"], 0.0))
    assert model.sample_functions(X[:2], 3).shape == (3, 2, 3)


@pytest.mark.slow
def test_other_likelihoods():
    bernoulli = make_model(eager=True, likelihood=likelihoods.Bernoulli())
    fit(bernoulli, X, LABELS > 0, epochs=2)
    assert sorted(bernoulli.predict(X)) == ["entropy", "mutual_information", "probabilities"]
    robust = make_model(eager=True, likelihood=likelihoods.StudentT(df=4.0, scale=0.3))
    fit(robust, epochs=2)
    assert np.all(np.isfinite(robust.evaluate(X[:4], Y[:4], verbose=0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"hidden": "none"},
        {"hidden": "gaussian_process"},
        {"stack": "omega", "depth": 0},
        {"kernel": ["relu", kernels.Matern(1.5)], "constant": False, "delta": 3.0},
        {"whiten": False},
        {"dtype": "float64", "delta": 1e8, "learn_delta": False},
    ],
)
def test_kinds_of_models_train_and_have_configs(options):
    model = make_model(eager=True, **options)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    assert type(copy) is type(model) and copy.get_config() == model.get_config()
    for each in (model, copy):
        each.compile(run_eagerly=True)
        history = fit(each, epochs=2).history
        assert np.all(np.isfinite(history["loss"]))
    assert_array_equal(model.predict(X)["mean"], copy.predict(X)["mean"])
    expected = options.get("dtype", "float32")
    assert model(X).mean.dtype == expected and model.predict(X)["mean"].dtype == "float64"
    if options.get("hidden") == "none":
        assert model(X[:2]).mean.shape == (1, 2, 1)


def test_images_are_not_standardised_and_have_no_scale():
    images = np.random.default_rng(0).uniform(size=(20, 4, 4, 1))
    model = make_model(eager=True)
    fit(model, images, Y[:20])
    assert not model.standardize and not model.network.layers[0].learn_scale
    assert model.inducing_inputs_in_user_units().shape == (8, 4, 4, 1)
    assert model.predict(images)["mean"].shape == (20, 1)


# Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inducing_points": 0}, "`inducing_points` must be a positive integer. Received"),
        ({"depth": -1}, "`depth` must be a non-negative integer. Received: depth=-1"),
        ({"depth": 1.5}, "`depth` must be a non-negative integer. Received: depth=1.5"),
        ({"delta": 0.0}, "`delta` must be a positive finite number. Received: delta=0.0"),
        ({"hidden": "wishart"}, "`hidden` must be one of .*Received: hidden='wishart'"),
        ({"rows": "kmeans"}, "`rows` must be one of .*Received: .*kmeans"),
        ({"stack": "other"}, "`stack` must be one of .*Received: stack='other'"),
        ({"kernel": "other"}, "Received: .*other"),
        ({"kernel": ["relu"] * 3}, "`kernel` must be one kernel.*Received: 3 kernels"),
        ({"kernel": VARIABLE}, "must be constants.*SquaredExponential with the variable length_s"),
        ({"kernel": 2.0 * (kernels.ArcCosine(1) + VARIABLE)}, "with the variable length_scale"),
        ({"num_samples": True}, "`num_samples` must be a positive integer. Received"),
        ({"num_outputs": 0}, "`num_outputs` must be a positive integer. Received"),
        ({"dtype": "float16"}, "`dtype` must be one of .*Received: dtype='float16'"),
        ({"dtype": "bfloat16"}, "`dtype` must be one of .*Received: dtype='bfloat16'"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_model(**options)


@pytest.mark.slow
def test_unfitted_models_and_bad_data_get_one_clear_error():
    model = make_model()
    for call in (model.predict, model.evaluate, model, model.predict_distribution):
        arguments = (X, Y) if call == model.evaluate else (X,)
        with pytest.raises(ValueError, match="not fitted"):
            call(*arguments)
    with pytest.raises(ValueError, match="not fitted"):
        model.sample_functions(X, 3)
    with pytest.raises(ValueError, match="not fitted"):
        model.train_on_batch(X, Y)
    for x, y, message in (
        (X[:5], Y, r"`y` must have shape \(5, 1\).*Received: y of shape \(40, 1\)"),
        (np.where(X > 0.0, X, np.nan), Y, "`x` must be finite. Received: x with"),
        (X[:0], Y[:0], "`x` must have at least one row. Received: x of shape"),
        (X, Y[:, :0], "`y` must have at least one column. Received: y of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(model, x, y)
    with pytest.raises(ValueError, match="2 classes"):
        fit(make_model(likelihood=likelihoods.Categorical()), X, LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(make_model(eager=True))  # good data raise no warning
