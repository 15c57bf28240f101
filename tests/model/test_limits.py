"""Bad input gets one clear error at the boundary: the rule, then what was received."""

import os
import re
import subprocess
import sys

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_fnspace as fns

X = np.random.default_rng(0).normal(size=(20, 4))
Y = np.random.default_rng(1).normal(size=(20, 2))


def changed(array, value):
    array = array.copy()
    array[3, 1] = value
    return array


@pytest.fixture(scope="module")
def fitted():
    model = batteries.tagi_model()
    model.fit(X, Y, epochs=1, verbose=0)
    return model


@pytest.fixture(params=batteries.MODELS)
def model(request):
    return batteries.MODELS[request.param]()


@pytest.fixture(params={**batteries.MODELS, **batteries.MODELS_BY_GRADIENTS})
def batch_model(request):
    """Makes models of both kinds that train on batches."""
    return {**batteries.MODELS, **batteries.MODELS_BY_GRADIENTS}[request.param]()


BAD_DATA = {
    "nan_inputs": (
        changed(X, np.nan),
        Y,
        r"`x` must be finite\. Received: .* 1 NaN .* \[3, 1\]",
    ),
    "infinite_inputs": (changed(X, np.inf), Y, r"`x` must be finite\. Received: x with 1 NaN"),
    "too_large": (changed(X, 1e300), Y, r"`x` must be at most 1e\+100 .*Received: x with 1 larger"),
    "infinite_targets": (
        X,
        changed(Y, -np.inf),
        r"`y` must (not be inf|be finite).*: y with 1 (NaN or )?infinite .* the first at \[3, 1\]",
    ),
    "wrong_rank": (X[:, 0], Y, r"`x` must have shape \('N', 4\)\. Received: x of shape \(20,\)"),
    "wrong_width": (X[:, :3], Y, r"`x` must have shape \('N', 4\)\. Received: x of shape \(20, 3"),
    "empty": (X[:0], Y[:0], r"`x` must have at least one row\. Received: x of shape \(0, 4\)"),
    "rows_do_not_match": (X, Y[:19], r"`y` must have shape \(20, 2\).*Received: y of shape \(19"),
    "outputs_do_not_match": (X, Y[:, :1], r"`y` must have shape \(20, 2\).*y of shape \(20, 1\)"),
    "flat_targets": (X, Y[:, 0], r"`y` must have shape \(20, 2\).*Received: y of shape \(20,\)"),
    "column_never_observed": (
        X,
        np.stack([Y[:, 0], np.full(20, np.nan)], axis=1),
        r"at least one observed value in every column\. Received: columns without one=\[1\]",
    ),
}


def models_for(case):
    """Returns models for a case: DIWP allows no missing targets, and adapts its sizes to data."""
    if case == "column_never_observed":
        return batteries.MODELS
    return {**batteries.MODELS, "DIWP": adapted_diwp}


def adapted_diwp():
    model = batteries.diwp_model()
    model.adapt(X, Y)
    return model


@pytest.mark.parametrize(
    ("case", "name"), [(case, name) for case in BAD_DATA for name in models_for(case)]
)
def test_fit_refuses_bad_data_and_loses_nothing(case, name):
    model = models_for(case)[name]()
    x, y, message = BAD_DATA[case]
    before = model.get_weights()
    with pytest.raises(ValueError, match=message):
        model.fit(x, y, verbose=0)
    for ours, theirs in zip(model.get_weights(), before, strict=True):
        if case != "column_never_observed":  # the inputs were fine, and are standardised by now
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("case", ["nan_inputs", "wrong_width", "rows_do_not_match"])
@pytest.mark.parametrize("method", ["evaluate", "train_on_batch"])
def test_other_entries_refuse_bad_data(fitted, method, case):
    x, y, message = BAD_DATA[case]
    with pytest.raises(ValueError, match=message):
        getattr(fitted, method)(x, y)


@pytest.mark.parametrize("method", ["predict", "predict_distribution", "input_gradient"])
def test_prediction_refuses_bad_inputs(fitted, method):
    with pytest.raises(ValueError, match=r"`x` must be finite\. Received: x with 1 NaN"):
        getattr(fitted, method)(changed(X, np.nan))


def test_sample_functions_refuses_bad_inputs(fitted):
    with pytest.raises(ValueError, match=r"`x` must have shape \('N', 4\)"):
        fitted.sample_functions(X[:, :2], 3)


@pytest.mark.parametrize("num_samples", [0, -1, 2.5, True])
def test_sample_functions_refuses_a_bad_number(fitted, num_samples):
    message = rf"`num_samples` must be a positive integer\. Received: num_samples={num_samples}"
    with pytest.raises(ValueError, match=message):
        fitted.sample_functions(X, num_samples)


@pytest.mark.parametrize("seed", [(1, 2, 3), (0.5, 1.0), "a"])
def test_sample_functions_refuses_a_bad_seed(fitted, seed):
    with pytest.raises(ValueError, match=r"`seed` must be an integer or two integers\. Received"):
        fitted.sample_functions(X, 2, seed=seed)


@pytest.mark.parametrize("values", [None, np.array([["a"] * 4]), X.astype(complex)])
def test_inputs_must_be_numbers(fitted, values):
    with pytest.raises(TypeError, match=r"`x` must be an array of (real )?numbers\. Received: x"):
        fitted.predict(values)


def test_validation_data_is_checked_by_name(batch_model):
    message = r"`validation y` must have shape \(20, 2\).*Received: validation y of shape \(19, 2\)"
    with pytest.raises(ValueError, match=message):
        batch_model.fit(X, Y, validation_data=(X, Y[:19]), verbose=0)


@pytest.mark.parametrize("fraction", [0.01, 1.0, 2.0])
def test_validation_split_must_leave_rows(batch_model, fraction):
    if fraction == 0.01:
        fraction = 1.0 - 1e-9
    with pytest.raises(ValueError, match=r"`validation_split` must leave rows on both sides"):
        batch_model.fit(X, Y, validation_split=fraction, verbose=0)


@pytest.mark.parametrize(("name", "value"), [("batch_size", 0), ("batch_size", -3), ("epochs", 0)])
def test_counts_must_be_positive(batch_model, name, value):
    message = rf"`{name}` must be a positive integer\. Received: {name}={value}"
    with pytest.raises(ValueError, match=message):
        batch_model.fit(X, Y, verbose=0, **{name: value})


@pytest.mark.parametrize(
    "use",
    [
        lambda m: m.predict(X),
        lambda m: m.predict_distribution(X),
        lambda m: m.sample_functions(X, 2),
        lambda m: m.evaluate(X, Y, verbose=0),
        lambda m: m.train_on_batch(X, Y),
        lambda m: m.input_gradient(X),
        lambda m: m.export("nowhere"),
    ],
)
def test_unfitted_model_is_refused(model, use):
    with pytest.raises(ValueError, match=r"The model is not fitted: call `fit`, or `adapt"):
        use(model)


def test_adapted_model_predicts_from_its_prior(model):
    model.adapt(X, Y)
    assert np.all(model.predict(X)["epistemic_stddev"] > 0.0)


def test_dataset_without_known_length_needs_adapt(model):
    batches = tf.data.Dataset.from_tensors((X.astype("float32"), Y.astype("float32"))).repeat()
    with pytest.raises(ValueError, match=r"needs data of known finite length: call `model\.adapt"):
        model.fit(batches, steps_per_epoch=2, epochs=1, verbose=0)


def test_dataset_without_known_length_works_after_adapt(model):
    batches = tf.data.Dataset.from_tensors((X.astype("float32"), Y.astype("float32"))).repeat()
    model.adapt(X, Y)
    history = model.fit(batches, steps_per_epoch=2, epochs=2, verbose=0)
    assert history.history["rmse"][1] < history.history["rmse"][0]


def test_dataset_with_arguments_for_arrays_is_refused(model):
    dataset = tf.data.Dataset.from_tensors((X, Y))
    with pytest.raises(ValueError, match=r"A dataset yields \(x, y\) batches itself"):
        model.fit(dataset, Y, verbose=0)


def test_arrays_with_an_argument_for_datasets_are_refused(model):
    with pytest.raises(ValueError, match=r"`steps_per_epoch` is for datasets"):
        model.fit(X, Y, steps_per_epoch=2, verbose=0)


def test_export_format(fitted):
    with pytest.raises(
        ValueError,
        match=r"`format` must be one of \['tf_saved_model', 'onnx', 'litert'\]\. Received: format=",
    ):
        fitted.export("nowhere", format="torch")


def test_export_number_of_samples(fitted):
    with pytest.raises(ValueError, match=r"`num_samples` must be a positive integer"):
        fitted.export("nowhere", num_samples=0)


# Construction


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, [0.1, 0.0], [[0.1]]])
def test_likelihood_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match=r"`scale` must be a positive finite number.*Received: s"):
        fns.likelihoods.Gaussian(scale=scale)


BAD_OPTIONS = {
    "update": ("sgd", r"`update` must be one of \['capped', 'exact'\]\. Received: update='sgd'"),
    "noise": ("guess", r"`noise` must be None, 'cross_validate' or a schedule.*noise='guess'"),
    "seed": (-1, r"`seed` must be a non-negative integer\. Received: seed=-1"),
    "input_stddev": (-0.1, r"`input_stddev` must be a non-negative finite number.*-0\.1"),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_model_options(name):
    value, message = BAD_OPTIONS[name]
    with pytest.raises(ValueError, match=message):
        batteries.tagi_model(**{name: value})


def test_input_stddev_needs_a_value_per_feature():
    message = r"`input_stddev` must have one value per feature, 4\. Received: 3 values"
    with pytest.raises(ValueError, match=message):
        batteries.tagi_model(input_stddev=[0.1, 0.1, 0.1])


BAD_LAYERS = {
    "units": (lambda: fns.tagi.Dense(0), r"`units` must be a positive integer\. Received: units=0"),
    "prior": (lambda: fns.tagi.Dense(3, prior="uniform"), r"`prior` must be.*prior='uniform'"),
    "gain": (lambda: fns.tagi.Dense(3, gain=0.0), r"`gain` must be positive\. Received: gain=0\.0"),
    "bias_variance": (
        lambda: fns.tagi.Dense(3, bias_variance=-1.0),
        r"`bias_variance` must be positive\. Received: bias_variance=-1\.0",
    ),
    "activation": (
        lambda: fns.tagi.Dense(3, activation="gelu"),
        r"`activation` must be one of \['leaky_relu'.*or a function\. Received: activation='gelu'",
    ),
    "moments": (
        lambda: fns.tagi.Activation("relu", moments="sampled"),
        r"`moments` must be one of \['linearized', 'exact'\]\. Received: moments='sampled'",
    ),
    "no_exact_moments": (
        lambda: fns.tagi.Activation("softplus", moments="exact"),
        r"With moments='exact', `activation` must be one of \['relu', 'sigmoid', 'tanh'\]\. Rec",
    ),
    "concatenate_axis": (
        lambda: fns.tagi.Concatenate(axis=0),
        r"`axis` must not be the batch axis\. Received: axis=0",
    ),
}


@pytest.mark.parametrize("case", BAD_LAYERS)
def test_layer_options(case):
    make, message = BAD_LAYERS[case]
    with pytest.raises(ValueError, match=message):
        make()


BAD_CALLS = {
    "add_one": (fns.tagi.Add, [(None, 3)], r"Add merges a list of at least two inputs"),
    "add_shapes": (fns.tagi.Add, [(None, 3), (None, 4)], r"Add needs inputs of one shape"),
    "reshape": (lambda: fns.tagi.Reshape((4,)), (None, 6), r"as many elements as the inputs, 6"),
    "flatten": (fns.tagi.Flatten, (None, None, 6), r"Flatten needs inputs whose axes, except"),
    "dense": (lambda: fns.tagi.Dense(3), (None, None), r"The last axis of the inputs of Dense"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_layer_inputs(case):
    make, shapes, message = BAD_CALLS[case]
    several = isinstance(shapes, list)
    inputs = [keras.Input(s[1:]) for s in shapes] if several else keras.Input(shapes[1:])
    with pytest.raises(ValueError, match=message):
        make()(inputs)


# Graphs


def tagi_of(inputs, outputs):
    return fns.tagi.TAGIModel(inputs, outputs, likelihood=fns.likelihoods.Gaussian(0.1))


def test_ordinary_trainable_layer_is_refused():
    inputs = keras.Input((3,))
    outputs = fns.tagi.Dense(1)(keras.layers.Dense(4)(inputs))
    with pytest.raises(ValueError, match=r"A TAGI network cannot train ordinary Keras layers"):
        tagi_of(inputs, outputs)


def test_ordinary_trainable_layer_in_a_nested_model_is_refused():
    inputs = keras.Input((3,))
    block = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    with pytest.raises(ValueError, match=r"A TAGI network cannot train ordinary Keras layers"):
        tagi_of(inputs, fns.tagi.Dense(1)(block(inputs)))


def test_frozen_ordinary_layer_ahead_of_tagi_layers_is_welcome():
    inputs = keras.Input((4,))
    frozen = keras.layers.Dense(4, trainable=False)
    model = tagi_of(inputs, fns.tagi.Dense(2)(frozen(inputs)))
    before = frozen.get_weights()
    model.fit(X, Y, epochs=1, verbose=0)
    np.testing.assert_array_equal(frozen.get_weights()[0], before[0])


@pytest.mark.parametrize("operation", [keras.layers.ReLU(), lambda t: t * 2.0])
def test_ordinary_operation_on_moments_is_refused(operation):
    inputs = keras.Input((3,))
    mean, variance = fns.tagi.Dense(4)(inputs)
    outputs = fns.tagi.Dense(1)((operation(mean), variance))
    with pytest.raises(ValueError, match=r"Moments pass through TAGI layers only"):
        tagi_of(inputs, outputs)


def test_outputs_must_be_moments():
    inputs = keras.Input((3,))
    mean, _ = fns.tagi.Dense(1)(inputs)
    with pytest.raises(ValueError, match=r"must be the moments that one TAGI layer returns"):
        tagi_of(inputs, mean)


def test_outputs_must_have_rank_two():
    inputs = keras.Input((5, 3))
    with pytest.raises(ValueError, match=r"must have shape \(N, D\) with D known"):
        tagi_of(inputs, fns.tagi.Dense(1)(inputs))


@pytest.mark.parametrize("argument", ["optimizer", "loss", "steps_per_execution"])
def test_compile_takes_no_optimizer(argument):
    value = {"optimizer": "adam", "loss": "mse", "steps_per_execution": 3}[argument]
    with pytest.raises(ValueError, match=rf"TAGI's update is closed form.*Received: {argument}="):
        batteries.tagi_model().compile(**{argument: value})


def test_negative_input_variances_are_refused():
    inputs, variances = keras.Input((4,)), keras.Input((4,))
    model = tagi_of([inputs, variances], fns.tagi.Dense(2)((inputs, variances)))
    with pytest.raises(ValueError, match=r"An input of variances must not be negative\. Received"):
        model.fit([X, changed(np.ones((20, 4)), -2.0)], Y, verbose=0)


def test_wrong_number_of_inputs_is_refused():
    inputs, variances = keras.Input((4,)), keras.Input((4,))
    model = tagi_of([inputs, variances], fns.tagi.Dense(2)((inputs, variances)))
    with pytest.raises(ValueError, match=r"`x` must be a list of 2 arrays, one for each input"):
        model.fit(X, Y, verbose=0)


def test_cross_validation_needs_arrays():
    model = batteries.tagi_model(noise="cross_validate")
    with pytest.raises(ValueError, match=r"noise='cross_validate' needs arrays"):
        model.fit(tf.data.Dataset.from_tensors((X, Y)), verbose=0)


def test_cross_validation_needs_two_rows():
    model = batteries.tagi_model(noise="cross_validate")
    with pytest.raises(ValueError, match=r"noise='cross_validate' needs at least 2 rows"):
        model.fit(X[:1], Y[:1], verbose=0)


@pytest.mark.slow
def test_another_keras_backend_is_one_clear_error():
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(
        [sys.executable, "-c", "import tfp_fnspace"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode != 0
    assert re.match(r"ImportError: tfp_fnspace runs on Keras's TensorFlow backend.*'jax'", last)
