"""The user's units are float64: a model's results map exactly as its data do."""

import batteries
import numpy as np
import pytest
import tensorflow as tf
from exhaustive import sample_of

import tfp_fnspace as fns
from tfp_fnspace.layers.scaler import RunningMoments, Standardizer


def on_a_grid(rng, shape):
    """Draws normal numbers in steps of 1/1024; adding 1e8 to them does not round."""
    return np.round(rng.normal(size=shape) * 1024) / 1024


RNG = np.random.default_rng(0)
X, X_NEW = on_a_grid(RNG, (24, 4)), on_a_grid(RNG, (5, 4))
Y = on_a_grid(RNG, (24, 2)) / 2 + X[:, :2]

# These are powers of two, so that the maps round nothing: 7.9e-31, 1.5e20 and 1.3e30.
SMALL, LARGE, HUGE = 2.0**-100, 2.0**67, 2.0**100
X_UNITS, X_ZEROS = np.array([SMALL, LARGE, HUGE, 1.0]), np.array([0.0, 0.0, 0.0, 1e6])
Y_UNITS, Y_ZEROS = np.array([SMALL, LARGE]), np.array([0.0, 1e8 * LARGE])
LOG_UNITS = np.log(Y_UNITS).sum()


def in_other_units(x, y):
    return x * X_UNITS + X_ZEROS, y * Y_UNITS + Y_ZEROS


def fitted(make_model, x, y):
    model = make_model()
    history = batteries.fit(model, x, y, batch_size=8, epochs=2, validation_data=(x, y)).history
    return model, history


METHODS = [name for name in batteries.KINDS if name != "variational"]


@pytest.fixture(scope="module", params=sample_of(METHODS, ["TAGI", "stable_process", "SIP"]))
def pair(request):
    """Returns a model and the same in other units, each with its data and its history."""
    make_model = batteries.ALL_MODELS[request.param]
    return [(*fitted(make_model, *data), *data) for data in [(X, Y), in_other_units(X, Y)]]


NAMES = ["TAGI_learnt", *batteries.KINDS]


@pytest.mark.parametrize("name", sample_of(NAMES, ["TAGI_learnt", "DIWP"]))
@pytest.mark.slow
def test_a_given_noise_is_in_the_units_that_it_says(name):
    """Noise is in standard deviations of targets by default, else in their units, in all models."""
    y = np.array([5000.0, 0.0]) + np.array([1000.0, 3.0]) * Y
    options, method = {"trainable": name.endswith("learnt")}, name.removesuffix("_learnt")
    for likelihood, expected in (
        (fns.likelihoods.Gaussian(0.05, **options), 0.05 * y.std(axis=0)),
        (fns.likelihoods.Gaussian([90.0, 0.2], units="user", **options), [90.0, 0.2]),
        (fns.likelihoods.Gaussian(2.0, units="user", **options), [2.0, 2.0]),
    ):
        model = batteries.ALL_MODELS[method](likelihood=likelihood)
        if method == "stable_process":
            batteries.fit(model, X, y, epochs=3)
        else:
            model.adapt(X, y)
        found = model.predict(X_NEW)["aleatoric_stddev"]
        np.testing.assert_allclose(found, np.broadcast_to(expected, (5, 2)), rtol=1e-4)


def test_units_of_a_noise_are_one_of_two():
    with pytest.raises(ValueError, match="`units`.*Received: units='metres'"):
        fns.likelihoods.Gaussian(0.3, units="metres")


@pytest.mark.slow
def test_predictions_are_those_in_other_units(pair):
    (model, *_), (other, *_) = pair
    x_new, _ = in_other_units(X_NEW, Y[:5])
    expected, found = model.predict(X_NEW), other.predict(x_new)
    assert all(values.dtype == np.float64 for values in found.values())
    mean = (found["mean"] - Y_ZEROS) / Y_UNITS
    np.testing.assert_allclose(mean, expected["mean"], atol=1e-5 * expected["stddev"].min())
    for name in ("stddev", "epistemic_stddev", "aleatoric_stddev"):
        np.testing.assert_allclose(found[name] / Y_UNITS, expected[name], rtol=1e-5)
    functions = (other.sample_functions(x_new, 2) - Y_ZEROS) / Y_UNITS
    np.testing.assert_allclose(functions, model.sample_functions(X_NEW, 2), atol=1e-5)
    distributions = model.predict_distribution(X_NEW), other.predict_distribution(x_new)
    y_new = Y[:5].astype(np.float32)  # observations often are float32
    densities = [
        distributions[0].log_prob(y_new),
        distributions[1].log_prob(in_other_units(X_NEW, Y[:5])[1]) + LOG_UNITS,
    ]
    np.testing.assert_allclose(*densities, rtol=1e-5, atol=1e-5)


def test_scores_are_those_in_other_units(pair):
    (model, history, x, y), (other, other_history, other_x, other_y) = pair
    expected = model.evaluate(x, y, verbose=0, return_dict=True)
    found = other.evaluate(other_x, other_y, verbose=0, return_dict=True)
    assert found["nll"] == pytest.approx(expected["nll"] + LOG_UNITS, abs=1e-4)
    assert found["coverage_90"] == expected["coverage_90"]
    # Of the two columns, only the one in the larger unit counts.
    second, distribution = np.where([False, True], y, np.nan), model.predict_distribution(x)
    rmse, crps = (
        float(fns.metrics.rmse(second, distribution)),
        float(fns.metrics.crps(second, distribution)),
    )
    assert found["rmse"] == pytest.approx(rmse * LARGE / np.sqrt(2.0), rel=1e-4)
    assert found["crps"] == pytest.approx(crps * LARGE / 2.0, rel=1e-4)
    assert other_history["val_nll"][-1] == pytest.approx(found["nll"], abs=1e-4)
    assert np.all(np.isfinite([value[-1] for value in other_history.values()]))
    if not isinstance(model, fns.stable_process.StableProcessModel):  # its history has no units
        shift = np.subtract(other_history["log_likelihood"], history["log_likelihood"])
        np.testing.assert_allclose(shift, -LOG_UNITS, rtol=1e-4)


@pytest.mark.parametrize("method", ["TAGI", "variational"])
@pytest.mark.slow
def test_a_float64_stream_is_centred_before_it_is_rounded(method):
    make_model = batteries.ALL_MODELS[method]
    x, y = X + 1e8, Y * 0.5 + 1e8
    model, streamed = make_model(), make_model()
    batteries.fit(model, x, y, batch_size=8, epochs=1, shuffle=False)
    streamed.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(8), verbose=0)
    expected, found = model.predict(x), streamed.predict(x)
    np.testing.assert_allclose(found["mean"] - 1e8, expected["mean"] - 1e8, atol=1e-5)
    stream = tf.data.Dataset.from_tensor_slices(x).batch(5)
    np.testing.assert_allclose(streamed.predict(stream)["mean"], found["mean"], rtol=1e-13)


@pytest.mark.slow
def test_numbers_that_float64_holds_and_float32_does_not():
    x, y = X * 1e-46, Y * 1e-46
    reference, model = batteries.tagi_model(), batteries.tagi_model()
    for each, data in [(reference, (X, Y)), (model, (x, y))]:
        batteries.fit(each, *data, shuffle=False)
    expected, found = reference.predict(X), model.predict(x)
    np.testing.assert_allclose(found["stddev"] * 1e46, expected["stddev"], rtol=1e-5)
    # TensorFlow takes a denormal number for zero, and so does NumPy in its threads.
    tiny_x, tiny_y = (X * 1e-40).astype(np.float32), (Y * 1e-40).astype(np.float32)
    for data in [(tiny_x, tiny_y), (tf.data.Dataset.from_tensors((tiny_x, tiny_y)),)]:
        model = batteries.tagi_model()
        model.fit(*data, shuffle=False, verbose=0)
        for x in (tiny_x, tf.data.Dataset.from_tensors(tiny_x)):
            mean = model.predict(x)["mean"] * 1e40
            np.testing.assert_allclose(mean, expected["mean"], atol=1e-3)


@pytest.fixture(scope="module")
def tagi():
    model = batteries.tagi_model()
    batteries.fit(model, X, Y)
    return model


@pytest.mark.parametrize("method", ["predict", "sample_functions", "predict_on_batch"])
def test_inputs_too_far_away_are_refused(tagi, method):
    arguments = (2,) if method == "sample_functions" else ()
    rule = "`x` must be within 1e.09 standard deviations .* Received: x=1e.20 in column 1, where"
    with pytest.raises(ValueError, match=rule):
        getattr(tagi, method)(np.where(np.arange(4) == 1, 1e20, X), *arguments)


def test_targets_too_far_away_are_refused(tagi):
    with pytest.raises(ValueError, match=r"`y` must be within 1e.09 .* Received: y=-1e.20"):
        tagi.fit(X, np.where(np.arange(24)[:, np.newaxis] == 3, -1e20, Y))
    with pytest.raises(
        ValueError, match=r"`validation x` must be within .* Received: validation x"
    ):
        tagi.fit(X, Y, validation_data=(X + 1e20, Y))


BEYOND = {
    "spread": (X, Y * 1e-120, r"`y` must have columns .* Received: standard deviations=\[.*e-120"),
    "inputs": (X * 1e-120, Y, r"`x` must have columns .* in columns \[0, 1, 2, 3\]"),
    "size": (X, Y * 1e120, r"`y` must be at most 1e.100 in magnitude. Received: y with 48 larger"),
}


@pytest.mark.parametrize("case", BEYOND)
def test_what_cannot_be_held_is_refused_before_training(case):
    x, y, message = BEYOND[case]
    for make_model in (batteries.tagi_model, batteries.stable_model):
        with pytest.raises(ValueError, match=message):
            make_model().fit(x, y, epochs=1)


def test_model_units_have_a_limit_where_nothing_standardises():
    model = batteries.tagi_model(standardize=False)
    rule = "must be at most 1e.09 in magnitude, as nothing standardises it. Received"
    with pytest.raises(ValueError, match=f"`x` {rule}: x with 96 larger"):
        model.fit(X + 1e20, Y)
    with pytest.raises(ValueError, match=f"`y` {rule}: y with 48 larger"):
        model.fit(X, Y + 1e20)


def standardized(column):
    values = np.asarray(column)[:, np.newaxis]
    moments, scaler = RunningMoments(1), Standardizer()
    scaler.build(values.shape)
    moments.update(values)
    scaler.adapt(moments)
    return scaler, scaler(values).numpy()[:, 0]


def test_a_column_is_constant_if_only_rounding_makes_it_vary():
    for column in ([1e8] * 5, [0.1 + 0.2, 0.3, 0.3], [1e-310] * 3):
        scaler, values = standardized(column)
        assert scaler.stddev.numpy() == 1.0
        np.testing.assert_allclose(values, 0.0, atol=1e-15)
    noise = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    for scale in (1e-6, 1e-3):  # 1e8 has steps of 1.5e-8
        scaler, values = standardized(1e8 + scale * noise)
        np.testing.assert_allclose(values, noise / np.sqrt(2.0), rtol=2e-2)
        assert values.dtype == np.float32
        np.testing.assert_allclose(scaler.inverse(values), 1e8 + scale * noise, rtol=1e-15)


@pytest.mark.slow
def test_a_large_column_is_constant_within_what_rounding_makes_of_it():
    # Sums of 20 equal numbers are rounded: here by 1e67 of 3e83, although the scale was 1.
    for number in (3e83, -3e83, 0.1):
        scaler, values = standardized([number] * 20)
        np.testing.assert_array_equal(values, 0.0)
        scaler.check_near(np.full([1, 1], number), "x")
    low = 3e83
    scaler, values = standardized([low, np.nextafter(low, 1e100)] * 10)
    assert np.all(np.abs(values) <= 1.0)
    x = np.where(np.arange(4) == 1, 3e83, X)
    model = batteries.tagi_model()
    batteries.fit(model, x, Y, validation_data=tf.data.Dataset.from_tensors((x, Y)))
    reference = batteries.tagi_model()
    batteries.fit(reference, np.where(np.arange(4) == 1, 0.0, X), Y)
    expected = reference.predict(np.where(np.arange(4) == 1, 0.0, X))["mean"]
    np.testing.assert_allclose(model.predict(x)["mean"], expected, rtol=1e-6)


@pytest.mark.slow
def test_export_changes_units_in_float64(tmp_path):
    x, y = X, Y * 30.0 + 2.46e6
    model = batteries.tagi_model()
    batteries.fit(model, x, y)
    model.export(tmp_path / "served")
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    served = loaded.serve(tf.constant(x, tf.float32))
    expected = model.predict(x)
    assert all(values.dtype == tf.float32 for values in served.values())
    np.testing.assert_allclose(served["mean"], expected["mean"], rtol=1e-7)
    np.testing.assert_allclose(served["stddev"], expected["stddev"], rtol=1e-5)
    other = batteries.tagi_model()
    other.adapt(X, Y * 1e50)
    with pytest.raises(ValueError, match=r"`export` .*float32.* Received: "):
        other.export(tmp_path / "other")
