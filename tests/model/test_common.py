"""Tests that every layer and every model passes."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf
from exhaustive import sample_of

import tfp_fnspace as fns

LAYERS = batteries.TAGI_LAYERS
MERGING = batteries.TAGI_MERGING_LAYERS
ALL_LAYERS = {**LAYERS, **MERGING}


def example_data(num_rows=23, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, 4)) * [1.0, 10.0, 0.1, 3.0] + [0.0, 5.0, -2.0, 100.0]
    f = np.stack([x[:, 0] + np.sin(x[:, 1]), 50.0 * x[:, 2]], axis=1)
    return x, f + 0.1 * rng.normal(size=f.shape)


def example_moments(name, dtype="float32", num_rows=5):
    rng = np.random.default_rng(1)

    def pair():
        mean, spread = rng.normal(size=(2, num_rows, 6))
        return fns.GaussianMoments(tf.constant(mean, dtype), tf.constant(spread**2, dtype))

    return [pair(), pair()] if name in MERGING else pair()


# Layers


@pytest.mark.parametrize("name", ALL_LAYERS)
def test_layer_config_round_trip(name):
    layer = ALL_LAYERS[name]()
    inputs = example_moments(name)
    layer(inputs)
    config = keras.saving.serialize_keras_object(layer)
    copy = keras.saving.deserialize_keras_object(config)
    assert copy.get_config() == layer.get_config()
    copy(inputs)
    copy.set_weights(layer.get_weights())
    for ours, theirs in zip(layer(inputs), copy(inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("policy", ["float32", "float64", "mixed_float16"])
@pytest.mark.parametrize("name", ALL_LAYERS)
def test_layer_dtype_policy(name, policy):
    layer = ALL_LAYERS[name]()
    layer = type(layer).from_config({**layer.get_config(), "dtype": policy})
    expected = "float64" if policy == "float64" else "float32"
    inputs = example_moments(name, expected)
    mean, variance = layer(inputs)
    assert mean.dtype == variance.dtype == expected
    symbolic = tf.nest.map_structure(
        lambda t: keras.KerasTensor((None, *t.shape[1:]), dtype=expected), inputs
    )
    for tensor, actual in zip(layer(symbolic), (mean, variance), strict=True):
        assert tensor.dtype == expected
        assert tensor.shape == (None, *actual.shape[1:])


@pytest.mark.parametrize("name", ALL_LAYERS)
def test_layer_is_the_same_under_xla_and_with_unknown_batch_size(name):
    layer = ALL_LAYERS[name]()
    inputs = example_moments(name)
    expected = layer(inputs)
    specs = tf.nest.map_structure(lambda t: tf.TensorSpec((None, 6), t.dtype), inputs)
    for jit_compile in (False, True):
        function = tf.function(layer, input_signature=[specs], jit_compile=jit_compile)
        for ours, theirs in zip(function(inputs), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ALL_LAYERS)
def test_layer_variances_are_not_negative_and_grow_from_known_inputs(name):
    layer = ALL_LAYERS[name]()
    inputs = example_moments(name)
    _, variance = layer(inputs)
    known = tf.nest.map_structure(lambda t: t, inputs)
    known = [pair[0] for pair in known] if name in MERGING else known[0]
    outputs = layer(known)
    assert np.all(np.asarray(variance) >= 0.0)
    if isinstance(outputs, fns.GaussianMoments):
        grows = np.asarray(outputs.variance) <= np.asarray(variance) + 1e-6
        assert np.all(grows) or name in batteries.TAGI_LAYERS_WITH_ROW_STATISTICS
    else:
        assert not layer.parameters


@pytest.mark.parametrize("name", ALL_LAYERS)
def test_layer_sampled_forward_is_reproducible_and_one_function_per_draw(name):
    layer = ALL_LAYERS[name]()
    layer(example_moments(name))
    rows = tf.random.stateless_normal((3, 5, 6), (1, 2))
    rows = tf.concat([rows, rows[:, :2]], axis=1)  # rows 5 and 6 repeat rows 0 and 1
    inputs = [rows, rows] if name in MERGING else rows
    first, again = layer.sample(inputs, seed=(3, 4)), layer.sample(inputs, seed=(3, 4))
    assert first.shape[:2] == (3, 7)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first[:, 5:], first[:, :2], rtol=2e-5, atol=1e-5)  # float32
    if layer.parameters:
        assert np.abs(first - layer.sample(inputs, seed=(3, 5))).max() > 1e-3


#: One layer of each kind: activations differ in a function, which the tests above call.
IN_A_MODEL = ["Dense_exact_tanh", "relu", "exact_tanh", "Reshape", "user_bilinear"]
IN_A_MODEL += ["user_elementwise", *(name for name in LAYERS if name.startswith("chain"))]
IN_A_MODEL += MERGING


@pytest.mark.parametrize("name", sample_of(ALL_LAYERS, IN_A_MODEL))
@pytest.mark.slow
def test_layer_in_a_model_trains_saves_and_loads(name, tmp_path):
    x, y = example_data()
    model = batteries.tagi_model(ALL_LAYERS[name], merging=name in MERGING)
    model.fit(x, y, epochs=2, batch_size=8, verbose=0)
    before = model.predict(x)
    assert all(np.all(np.isfinite(value)) for value in before.values())
    model.save(tmp_path / "model.keras")
    after = keras.models.load_model(tmp_path / "model.keras").predict(x)
    for key, value in before.items():
        np.testing.assert_array_equal(after[key], value)


# Models


@pytest.fixture(params=batteries.MODELS)
def make_model(request):
    return batteries.MODELS[request.param]


#: Options of `fit` in most tests, which spend most of their time on tracing and compiling.
FIT = {"epochs": 2, "batch_size": 8}


#: A TAGI model is one with either update, and fBNN covers what Bayes by Backprop is.
CONTRACT = [name for name in batteries.ALL_MODELS if name not in ("TAGI_exact", "variational")]


@pytest.fixture(scope="module", params=sample_of(batteries.ALL_MODELS, CONTRACT))
def make_any_model(request):
    return batteries.ALL_MODELS[request.param]


#: For shared code: one model learns from moments, one by gradients, one from all rows.
SHARED = sample_of(batteries.ALL_MODELS, ["TAGI", "SIP", "stable_process"])
shared = pytest.mark.parametrize("make_any_model", SHARED, indirect=True)


@pytest.fixture(scope="module")
def fitted(make_any_model):
    """Returns a model fitted with `FIT`, for tests that do not change it, and its data."""
    x, y = example_data()
    model = make_any_model()
    batteries.fit(model, x, y, **FIT)
    return model, x, y


def copy_of(model, folder):
    """Returns the model from its file."""
    model.save(folder / "copy.keras")
    return keras.models.load_model(folder / "copy.keras")


def test_model_is_a_keras_and_a_function_space_model(make_any_model):
    model = make_any_model()
    assert isinstance(model, keras.Model)
    assert isinstance(model, fns.FunctionSpaceModel)


@shared
@pytest.mark.slow
def test_scores_from_many_threads_are_those_of_one(fitted):
    model, x, y = fitted
    parts = [(x[i : i + 4], y[i : i + 4] + 1000.0 * i) for i in range(4)]
    expected = [model.evaluate(*part, verbose=0) for part in parts]

    def scores(i):
        evaluate = model.test_on_batch if i % 3 == 0 else partial(model.evaluate, verbose=0)
        return evaluate(*parts[i % 4])

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(scores, range(16)))
    np.testing.assert_allclose(found, [expected[i % 4] for i in range(16)], rtol=1e-4)


def test_predict_gives_four_arrays_whose_variances_add_up(fitted):
    model, x, _ = fitted
    outputs = model.predict(x)
    assert sorted(outputs) == ["aleatoric_stddev", "epistemic_stddev", "mean", "stddev"]
    assert all(isinstance(v, np.ndarray) and v.shape == (23, 2) for v in outputs.values())
    total = outputs["epistemic_stddev"] ** 2 + outputs["aleatoric_stddev"] ** 2
    np.testing.assert_allclose(outputs["stddev"] ** 2, total, rtol=1e-5)


def test_predictions_do_not_depend_on_batches(fitted):
    model, x, _ = fitted
    whole = model.predict(x)
    for batch_size in (1, 7, 1000):
        for key, value in model.predict(x, batch_size=batch_size).items():
            np.testing.assert_allclose(value, whole[key], rtol=1e-5, atol=1e-5)
    dataset = tf.data.Dataset.from_tensor_slices(x).batch(5)
    np.testing.assert_allclose(model.predict(dataset)["mean"], whole["mean"], rtol=1e-5, atol=1e-5)


def test_predictions_of_arrays_are_those_of_keras(fitted, capsys):
    """Without callbacks, arrays take a shorter way than Keras's."""
    model, x, _ = fitted
    seen = []
    counter = keras.callbacks.LambdaCallback()
    counter.on_predict_batch_end = lambda batch, logs=None: seen.append(batch)
    found = model.predict(x, batch_size=10), model.predict(x, batch_size=10, callbacks=[counter])
    assert seen == [0, 1, 2] and capsys.readouterr().out == ""
    for key, value in model.predict(x, batch_size=10, verbose=1).items():
        np.testing.assert_array_equal(value, found[0][key])
        np.testing.assert_array_equal(value, found[1][key])
    assert "3/3" in capsys.readouterr().out


@shared
def test_batches_that_are_no_number_of_rows_are_refused(fitted):
    model, x, _ = fitted
    methods = [model.predict, model.predict_distribution]
    if model.num_eval_samples is not None:
        methods.append(partial(model.predict_distribution, joint=True))
    if hasattr(model, "input_gradient"):
        methods.append(model.input_gradient)
    for method in methods:
        for bad in (0, 2.5, "8", [8]):
            with pytest.raises(ValueError, match=r"`batch_size` must be a positive .* Received: "):
                method(x, batch_size=bad)


def test_predict_distribution_matches_predict(fitted):
    model, x, _ = fitted
    distribution, outputs = model.predict_distribution(x), model.predict(x)
    assert distribution.batch_shape == (23,) and distribution.event_shape == (2,)
    np.testing.assert_allclose(distribution.mean(), outputs["mean"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(distribution.stddev(), outputs["stddev"], rtol=1e-5)


def test_quantiles_are_those_of_the_distribution(fitted):
    model, x, _ = fitted
    levels, stddev = [0.05, 0.5, 0.95], model.predict(x)["stddev"][..., np.newaxis]
    expected = fns.distributions.quantile(model.predict_distribution(x), levels)
    found = model.predict_quantiles(x, levels, batch_size=10)
    assert found.shape == (23, 2, 3)
    np.testing.assert_allclose((found - expected) / stddev, 0.0, atol=1e-4)
    assert model.predict_quantiles(x, 0.5).shape == (23, 2, 1)
    with pytest.raises(ValueError, match=r"`levels` must lie strictly in \(0, 1\)"):
        model.predict_quantiles(x, [0.5, 1.0])


def test_joint_distribution_of_the_points_has_the_distribution_of_each(fitted):
    model, x, _ = fitted
    if model.num_eval_samples is None and not hasattr(model, "stored_values"):
        with pytest.raises(ValueError, match="`joint` must be False for .* joint=True"):
            model.predict_distribution(x, joint=True)
        return
    jointly, each = model.predict_distribution(x, joint=True), model.predict_distribution(x)
    assert jointly.batch_shape == () and jointly.event_shape == (23, 2)
    assert jointly.sample(3, seed=0).shape == (3, 23, 2)
    draws, stddev = np.asarray(jointly.components_distribution.mean()), np.asarray(each.stddev())
    # Draws of functions are those of the marginal distribution, or S others.
    assert np.all(np.abs(jointly.mean() - each.mean()) < 6.0 * stddev / np.sqrt(len(draws)))
    noise = stddev**2 - model.predict(x)["epistemic_stddev"] ** 2
    weights = jointly.mixture_distribution.probs_parameter()
    ours = np.tensordot(weights, jointly.components_distribution.variance(), 1)
    np.testing.assert_allclose(ours, noise, rtol=1e-3)
    again = model.predict_distribution(x, joint=True)
    np.testing.assert_array_equal(again.components_distribution.mean(), draws)


def test_evaluate_aggregates_over_unequal_batches(fitted):
    model, x, y = fitted
    scores = model.evaluate(x, y, batch_size=7, return_dict=True, verbose=0)
    distribution = model.predict_distribution(x)
    for name, function in {"rmse": fns.metrics.rmse, "nll": fns.metrics.nll}.items():
        np.testing.assert_allclose(scores[name], function(y, distribution), rtol=1e-5)
    np.testing.assert_allclose(scores["crps"], fns.metrics.crps(y, distribution), rtol=1e-5)
    coverage = fns.metrics.interval_coverage(y, distribution, 0.9)
    np.testing.assert_allclose(scores["coverage_90"], coverage, rtol=1e-6)
    assert scores["loss"] == scores["nll"]


@shared
def test_user_metrics_see_distributions_or_their_means(fitted, tmp_path):
    model, x, y = fitted
    model = copy_of(model, tmp_path)
    model.compile(metrics=[fns.metrics.IntervalWidth(0.5), "mae"])
    scores = model.evaluate(x, y, return_dict=True, verbose=0)
    distribution = model.predict_distribution(x)
    np.testing.assert_allclose(
        scores["width_50"], fns.metrics.interval_width(y, distribution, 0.5), rtol=1e-4
    )
    expected = np.mean(np.abs(np.asarray(distribution.mean()) - y))
    np.testing.assert_allclose(scores["mean_absolute_error"], expected, rtol=1e-5)


@pytest.mark.slow
def test_units_change_nothing_but_units(make_any_model, fitted):
    plain, x, y = fitted
    scale, shift = np.array([10.0, 0.01]), np.array([-3.0, 7.0])
    changed = make_any_model()
    batteries.fit(changed, 4.0 * x - 1.0, y * scale + shift, **FIT)
    ours, theirs = changed.predict(4.0 * x - 1.0), plain.predict(x)
    np.testing.assert_allclose(ours["mean"], theirs["mean"] * scale + shift, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours["stddev"], theirs["stddev"] * scale, rtol=1e-3)
    nll = [
        m.evaluate(a, b, return_dict=True, verbose=0)["nll"]
        for m, a, b in ((plain, x, y), (changed, 4.0 * x - 1.0, y * scale + shift))
    ]
    np.testing.assert_allclose(nll[1] - nll[0], np.log(scale).sum(), rtol=1e-2)


@shared
@pytest.mark.slow
def test_duplicate_and_constant_columns_and_duplicate_rows_work(make_any_model):
    x, y = example_data()
    x = np.stack([x[:, 0], x[:, 0], np.full(23, 7.7), x[:, 3]], axis=1)
    x, y = np.concatenate([x, x]), np.concatenate([y, y])
    y[:, 1] = 3.0
    model = make_any_model()
    batteries.fit(model, x, y, **FIT)
    assert all(np.all(np.isfinite(value)) for value in model.predict(x).values())
    assert model.units.input_scalers[0].stddev.numpy()[2] == 1.0
    assert model.units.target_scaler.stddev.numpy()[1] == 1.0


def test_same_seed_same_run_in_one_fit_or_two(make_any_model, fitted):
    once, x, y = fitted
    twice = make_any_model()
    for _ in range(2):
        batteries.fit(twice, x, y, **{**FIT, "epochs": 1})
    np.testing.assert_array_equal(once.predict(x)["mean"], twice.predict(x)["mean"])


@shared
@pytest.mark.slow
def test_another_seed_another_run(make_any_model, fitted):
    model, x, y = fitted
    other = make_any_model(seed=model.seed + 1)
    batteries.fit(other, x, y, **FIT)
    assert np.abs(model.predict(x)["mean"] - other.predict(x)["mean"]).max() > 1e-3


def test_compiled_epochs_equal_the_loop_over_batches(make_model):
    x, y = example_data()

    class Batches(keras.callbacks.Callback):
        count = 0

        def on_train_batch_end(self, batch, logs=None):
            self.count += 1

    compiled, looped, callback = make_model(), make_model(), Batches()
    history = compiled.fit(x, y, epochs=3, batch_size=10, verbose=0)
    other = looped.fit(x, y, epochs=3, batch_size=10, verbose=0, callbacks=[callback])
    assert callback.count == 3 * 3
    np.testing.assert_allclose(
        compiled.predict(x)["mean"], looped.predict(x)["mean"], rtol=1e-4, atol=1e-4
    )
    assert {"loss", "log_likelihood"} < set(history.history)
    for key in history.history:
        np.testing.assert_allclose(history.history[key], other.history[key], rtol=1e-4)
    assert compiled.counters.steps.numpy() == looped.counters.steps.numpy() == 9
    assert compiled.counters.epochs.numpy() == looped.counters.epochs.numpy() == 3


def test_dataset_input_equals_arrays_in_the_same_order(make_model):
    x, y = example_data()
    arrays, dataset = make_model(), make_model()
    arrays.fit(x, y, epochs=2, batch_size=10, shuffle=False, verbose=0)
    batches = tf.data.Dataset.from_tensor_slices((x.astype("float32"), y.astype("float32")))
    dataset.fit(batches.batch(10), epochs=2, verbose=0)
    np.testing.assert_allclose(
        arrays.predict(x)["mean"], dataset.predict(x)["mean"], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("option", [{"jit_compile": True}, {"run_eagerly": True}])
@pytest.mark.slow
def test_compile_options_change_nothing_but_speed(make_model, option):
    x, y = example_data()
    batches = tf.data.Dataset.from_tensor_slices((x.astype("float32"), y.astype("float32")))
    plain, other = make_model(), make_model()
    other.compile(**option)
    plain.fit(x, y, epochs=1, batch_size=10, shuffle=False, verbose=0)
    other.fit(batches.batch(10), epochs=1, verbose=0)
    np.testing.assert_allclose(
        plain.predict(x)["mean"], other.predict(x)["mean"], rtol=1e-4, atol=1e-4
    )
    scores = [m.evaluate(x, y, return_dict=True, verbose=0)["nll"] for m in (plain, other)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-4)


@pytest.mark.parametrize("policy", ["float64", "mixed_float16"])
@pytest.mark.slow
def test_model_under_dtype_policies(make_any_model, fitted, policy, tmp_path):
    reference, x, y = fitted
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = make_any_model()
        batteries.fit(model, x, y, **FIT)
        outputs_in_model_units = keras.tree.flatten(model(tf.constant(x, tf.float32)))
        outputs = model.predict(x)
    finally:
        keras.config.set_dtype_policy(before)
    expected = "float64" if policy == "float64" else "float32"
    assert all(part.dtype == expected for part in outputs_in_model_units)
    assert all(value.dtype == "float64" for value in outputs.values())  # the user's units
    if policy == "mixed_float16":
        in_half = isinstance(model, batteries.IN_HALF_PRECISION)
        if in_half:  # Keras scales the loss, and skips steps whose gradients overflow
            reference = copy_of(reference, tmp_path)
            reference.set_weights(model.get_weights())
        difference = np.abs(outputs["mean"] - reference.predict(x)["mean"]) / outputs["stddev"]
        # Nothing else may have passed through half precision: for DIWP's inputs alone this would
        # give 0.009. Keras scales the loss of every model by a power of two, after which TensorFlow
        # groups products in another order.
        assert np.max(difference) <= (0.05 if in_half else 1e-4)
        assert np.any(difference > 1e-4) == in_half


@pytest.mark.slow
@shared
def test_early_stopping_on_validation_nll(make_any_model):
    x, y = example_data(60)
    model = make_any_model()
    stop = keras.callbacks.EarlyStopping("val_nll", patience=2, restore_best_weights=True)
    history = batteries.fit(
        model, x, y, epochs=120, batch_size=5, validation_split=0.3, callbacks=[stop]
    )
    best = min(history.history["val_nll"])
    assert len(history.history["val_nll"]) < 120
    scores = model.evaluate(x[42:], y[42:], return_dict=True, verbose=0)
    np.testing.assert_allclose(scores["nll"], best, rtol=1e-5)


@shared
@pytest.mark.slow
def test_compile_options_survive_saving(fitted, tmp_path):
    model, x, y = fitted
    model = copy_of(model, tmp_path)
    model.compile(jit_compile=True)
    model.save(tmp_path / "m.keras")
    assert keras.models.load_model(tmp_path / "m.keras").jit_compile is True
    model.compile(metrics=[fns.metrics.IntervalCoverage(0.5), "mse"], jit_compile=False)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert loaded.jit_compile is False
    ours = model.evaluate(x, y, return_dict=True, verbose=0)
    assert loaded.evaluate(x, y, return_dict=True, verbose=0) == ours
    assert "coverage_50" in ours and "mean_squared_error" in ours


@pytest.mark.slow
def test_loaded_model_continues_the_same_run(make_any_model, fitted, tmp_path):
    model, x, y = fitted
    loaded, undisturbed = copy_of(model, tmp_path), make_any_model()
    batteries.fit(loaded, x, y, **{**FIT, "epochs": 1})
    batteries.fit(undisturbed, x, y, **{**FIT, "epochs": 3})
    np.testing.assert_array_equal(loaded.predict(x)["mean"], undisturbed.predict(x)["mean"])


def test_function_samples_are_reproducible_and_coherent_across_calls(fitted):
    model, x, _ = fitted
    samples = model.sample_functions(x, 5, seed=(1, 2))
    assert samples.shape == (5, 23, 2)
    np.testing.assert_array_equal(samples, model.sample_functions(x, 5, seed=(1, 2)))
    if not isinstance(model, batteries.COHERENT_WITHIN_A_CALL):
        np.testing.assert_allclose(
            samples[:, 3:9], model.sample_functions(x[3:9], 5, seed=(1, 2)), rtol=1e-4, atol=1e-5
        )
    assert np.abs(samples - model.sample_functions(x, 5, seed=(1, 3))).max() > 1e-3


def test_building_one_model_leaves_its_siblings_usable(make_any_model):
    make_any_model()

    class Sibling(fns.FunctionSpaceModel):
        def __init__(self, width):
            super().__init__()
            self.width = width

        def call(self, x):
            return x * self.width

    assert Sibling(3)(np.ones((2, 1), "float32")).shape == (2, 1)
    assert Sibling.__bases__ == (fns.FunctionSpaceModel,)
    assert fns.FunctionSpaceModel.__bases__ == (keras.Model,)  # not that of functional models
