"""Classes in the contract: labels, metrics, predictions, saved and served models."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import toys
from sklearn import metrics as sklearn

import tfp_fnspace as fns
from tfp_fnspace import metrics
from tfp_fnspace.metrics import of_classes

tfd = tfp.distributions


def example_data(num_rows=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 2)) * [1.0, 100.0] + [0.0, 500.0]
    score = np.stack([x[:, 0], -x[:, 0], (x[:, 1] - 500.0) / 100.0], axis=1)
    return x, np.argmax(score + 0.3 * rng.normal(size=score.shape), axis=1)


def categorical(**options):
    return toys.LinearModel(2, 3, fns.likelihoods.Categorical(), seed=0, **options)


def bernoulli(num_outputs=1, **options):
    return toys.LinearModel(2, num_outputs, fns.likelihoods.Bernoulli(), seed=0, **options)


#: Name -> constructor, and targets made of the labels.
MODELS = {
    "categorical": (categorical, lambda labels: labels),
    "categorical_draws": (lambda: categorical(draws=True), lambda labels: labels[:, np.newaxis]),
    "bernoulli": (bernoulli, lambda labels: (labels == 0).astype("float32")),
    "bernoulli_2": (
        lambda: bernoulli(2, draws=True),
        lambda labels: np.stack([labels == 0, labels == 1], axis=1),
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    """Returns a model that tests only read, its data and the history of its fit."""
    make, targets_of = MODELS[request.param]
    x, labels = example_data()
    model = make()
    history = model.fit(x, targets_of(labels), epochs=20, verbose=0, validation_split=0.2)
    return model, x, targets_of(labels), history.history


def test_inputs_are_standardised_and_labels_are_not(fitted):
    model, *_ = fitted
    np.testing.assert_allclose(model.units.input_scalers[0].mean[1], 500.0, rtol=0.1)
    np.testing.assert_array_equal(model.units.target_scaler.mean, 0.0)
    np.testing.assert_array_equal(model.units.target_unit, 1.0)


def test_a_fit_learns_and_reports(fitted):
    model, x, y, history = fitted
    assert {"loss", "elbo", "kl", "val_accuracy", "val_nll", "val_ece"} <= set(history)
    scores = model.evaluate(x, y, return_dict=True, verbose=0)
    assert set(scores) == {"loss", "accuracy", "nll", "ece"}
    binary = isinstance(model.likelihood, fns.likelihoods.Bernoulli)
    chance = model.num_outputs * np.log(2.0) if binary else np.log(3.0)
    assert scores["accuracy"] > 0.7 and scores["nll"] < 0.9 * chance


def test_predictions(fitted):
    model, x, y, _ = fitted
    outputs = model.predict(x)
    assert set(outputs) == {"probabilities", "entropy", "mutual_information"}
    probabilities = outputs["probabilities"]
    assert probabilities.shape == (60, model.num_outputs)
    assert outputs["entropy"].shape == outputs["mutual_information"].shape == (60,)
    if isinstance(model.likelihood, fns.likelihoods.Categorical):
        np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-5)
        entropy = -(probabilities * np.log(probabilities)).sum(1)
    else:
        entropy = tfd.Bernoulli(probs=probabilities).entropy().numpy().sum(1)
    np.testing.assert_allclose(outputs["entropy"], entropy, rtol=1e-4, atol=1e-6)
    assert np.all(outputs["mutual_information"] >= 0.0)
    assert np.all(outputs["mutual_information"] <= outputs["entropy"])
    assert outputs["mutual_information"].max() > 1e-3
    for key, value in model.predict(x, batch_size=7).items():
        np.testing.assert_allclose(value, outputs[key], rtol=1e-4, atol=1e-5)
    distribution = model.predict_distribution(x)
    assert distribution.batch_shape == (60,)
    scores = model.evaluate(x, y, batch_size=7, return_dict=True, verbose=0)
    functions = {"accuracy": metrics.accuracy, "nll": metrics.nll}
    functions["ece"] = metrics.expected_calibration_error
    for name, function in functions.items():
        np.testing.assert_allclose(scores[name], function(y, distribution), rtol=1e-4, atol=1e-5)


def test_classes_have_no_quantiles(fitted):
    model, x, _, _ = fitted
    with pytest.raises(ValueError, match="Quantiles are for regressions"):
        model.predict_quantiles(x, 0.5)


def test_function_samples_are_logits(fitted):
    model, x, *_ = fitted
    logits = model.sample_functions(x, 4000, seed=1)
    if isinstance(model.likelihood, fns.likelihoods.Categorical):
        expected = tf.nn.softmax(logits).numpy().mean(0)
    else:
        expected = tf.sigmoid(logits).numpy().mean(0)
    # The model averages a probability over its 50 prediction draws, or over Gaussian logits.
    atol = 0.2 if model.draws else 0.04
    np.testing.assert_allclose(model.predict(x)["probabilities"], expected, atol=atol)


@pytest.mark.slow
def test_keras_metrics_see_probabilities():
    x, y = example_data()
    model = categorical()
    model.compile(metrics=[keras.metrics.SparseCategoricalAccuracy("theirs")])
    model.fit(x, y, epochs=2, verbose=0)
    scores = model.evaluate(x, y, return_dict=True, verbose=0)
    np.testing.assert_allclose(scores["theirs"], scores["accuracy"], rtol=1e-6)


@pytest.mark.parametrize("columns", ["one probability", "two"])
def test_metrics_of_two_classes_are_those_of_sklearn(columns):
    """Each likelihood of two classes gives each metric of Keras the column that it takes."""
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, size=(300, 1)), rng.uniform(size=(300, 1))
    p = np.round(0.5 * p + 0.5 * rng.uniform(size=p.shape) ** (1 + y), 3) + 5e-4  # off thresholds
    given = tf.constant(p if columns == "one probability" else np.hstack([1.0 - p, p]), tf.float32)
    one, both, label = p[:, 0], np.hstack([1.0 - p, p]), (p[:, 0] > 0.5).astype(int)
    y_one = y[:, 0]
    keras_metrics = keras.metrics
    expected = [
        (keras_metrics.AUC(num_thresholds=1001), sklearn.roc_auc_score(y_one, one)),
        (keras_metrics.BinaryAccuracy(), sklearn.accuracy_score(y_one, label)),
        (keras_metrics.Precision(), sklearn.precision_score(y_one, label)),
        (keras_metrics.Recall(), sklearn.recall_score(y_one, label)),
        (keras_metrics.BinaryCrossentropy(), sklearn.log_loss(y_one, one)),
        (keras_metrics.TruePositives(), np.sum(label * y_one)),
        (keras_metrics.FalseNegatives(), np.sum((1 - label) * y_one)),
        (keras_metrics.BinaryIoU(), sklearn.jaccard_score(y_one, label, average="macro")),
        (keras_metrics.SparseCategoricalAccuracy(), sklearn.accuracy_score(y_one, label)),
        (keras_metrics.SparseCategoricalCrossentropy(), sklearn.log_loss(y_one, both)),
        (keras_metrics.SparseTopKCategoricalAccuracy(k=2), 1.0),
        (keras_metrics.Accuracy(), sklearn.accuracy_score(y_one, label)),
        (keras_metrics.MeanSquaredError(), sklearn.brier_score_loss(y_one, one)),
        (keras_metrics.MeanAbsoluteError(), np.mean(np.abs(y_one - one))),
        (keras_metrics.R2Score(), sklearn.r2_score(y_one, one)),
        (keras_metrics.MeanIoU(2), sklearn.jaccard_score(y_one, label, average="macro")),
    ]
    for metric, value in expected:
        of_classes.check_class_metric(metric, 2, 1)
        metric.update_state(
            tf.constant(y, tf.float32), of_classes.for_class_metric(metric, given, 1)
        )
        np.testing.assert_allclose(metric.result(), value, rtol=1e-4, err_msg=metric.name)


TWO_CLASSES = {
    "bernoulli": (fns.likelihoods.Bernoulli, 1),
    "categorical": (fns.likelihoods.Categorical, 2),
    "remax": (fns.likelihoods.Remax, 2),
    "tree": (lambda: fns.likelihoods.HierarchicalCategorical(2), 1),
    "ordinal": (lambda: fns.likelihoods.Ordinal(2), 1),
}


@pytest.mark.parametrize("name", TWO_CLASSES)
@pytest.mark.slow
def test_models_of_two_classes_give_metrics_the_probability_of_the_second(name):
    x, labels = example_data()
    y = (labels == 0).astype(int)
    likelihood, num_outputs = TWO_CLASSES[name]
    model = toys.LinearModel(2, num_outputs, likelihood(), seed=0)
    metrics_of_both = [keras.metrics.AUC(num_thresholds=2000), keras.metrics.BinaryAccuracy()]
    model.compile(metrics=[*metrics_of_both, keras.metrics.SparseCategoricalAccuracy()])
    model.fit(x, y, epochs=2, verbose=0)
    found = model.evaluate(x, y, return_dict=True, verbose=0)
    of_one = model.predict(x)["probabilities"][:, -1]
    auc = next(value for key, value in found.items() if key.startswith("auc"))
    np.testing.assert_allclose(auc, sklearn.roc_auc_score(y, of_one), atol=5e-3)
    np.testing.assert_allclose(found["binary_accuracy"], np.mean((of_one > 0.5) == y), rtol=1e-6)
    np.testing.assert_allclose(found["sparse_categorical_accuracy"], found["accuracy"], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "metric", "match"),
    [
        (categorical, "CategoricalAccuracy", "not of one-hot vectors: use SparseCategoricalAcc"),
        (categorical, "F1Score", "not of one-hot vectors: use Precision and Recall"),
        (categorical, "AUC", "AUC must have two classes.*Received: metric AUC of 3 classes"),
        (lambda: bernoulli(2), "SparseCategoricalAccuracy", "one column of labels.*2 columns"),
    ],
)
def test_metrics_that_cannot_be_right_are_refused(make, metric, match):
    with pytest.raises(ValueError, match=match):
        make().compile(metrics=[getattr(keras.metrics, metric)()])
    for logits in (keras.metrics.BinaryCrossentropy, keras.metrics.SparseCategoricalCrossentropy):
        with pytest.raises(ValueError, match="must take probabilities.*from_logits=True"):
            bernoulli().compile(metrics=[logits(from_logits=True)])


def test_early_stopping_knows_the_direction_of_accuracy():
    x, y = example_data()
    callback = keras.callbacks.EarlyStopping("val_accuracy", patience=3)
    categorical().fit(x, y, epochs=1, validation_data=(x, y), callbacks=[callback], verbose=0)
    assert callback.mode == "max"


def test_keras_file_and_export(fitted, tmp_path):
    model, x, y, _ = fitted
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    model.export(tmp_path / "served", num_samples=3)
    served = tf.saved_model.load(str(tmp_path / "served"))
    outputs = served.serve(x.astype("float32"))
    assert set(outputs) == {"probabilities", "entropy", "mutual_information"}
    for key, value in model.predict(x).items():
        np.testing.assert_array_equal(loaded.predict(x)[key], value)
        np.testing.assert_allclose(outputs[key], value, rtol=1e-5, atol=1e-6)
    assert served.sample(x.astype("float32"), tf.constant([1, 2])).shape[0] == 3


# Labels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (3, "`y` must hold integer labels from 0 to 2. Received: y with 1 other values, .* 3"),
        (-1, "`y` must hold integer labels from 0 to 2. Received: .* the first -1"),
        (0.5, "`y` must hold integer labels from 0 to 2. Received: .* the first 0.5"),
        (np.nan, "`y` must be finite"),
    ],
)
def test_bad_labels(bad, message):
    x, y = example_data()
    y = y.astype("float32")
    y[4] = bad
    with pytest.raises(ValueError, match=message):
        categorical().fit(x, y, verbose=0)
    fitted = categorical()
    fitted.adapt(*example_data())
    with pytest.raises(ValueError, match=message):
        fitted.evaluate(x, y, verbose=0)


def test_labels_of_bernoulli_outputs():
    x, y = example_data()
    with pytest.raises(ValueError, match="integer labels from 0 to 1. Received: y with .* first 2"):
        bernoulli().fit(x, y, verbose=0)


def test_one_hot_targets_are_refused():
    x, y = example_data()
    message = r"`y` must have shape \(60, 1\).*Received: y of shape \(60, 3\)"
    with pytest.raises(ValueError, match=message):
        categorical().fit(x, np.eye(3)[y], verbose=0)


def test_bad_labels_of_a_validation_set():
    x, y = example_data()
    with pytest.raises(ValueError, match="`validation y` must hold integer labels from 0 to 2"):
        categorical().fit(x, y, validation_data=(x, y + 1), verbose=0)


@pytest.mark.parametrize("offset", [0, 1])
def test_labels_of_a_dataset(offset):
    x, y = example_data()
    model = categorical()
    model.adapt(x, y)
    model.compile(num_rows=60)
    rows = tf.data.Dataset.from_tensor_slices((x.astype("float32"), y + offset)).batch(7)
    if not offset:
        model.fit(rows, verbose=0)
        assert model.counters.steps.numpy() == 9
        return
    with pytest.raises(ValueError, match="integer labels .*Received: "):
        model.evaluate(rows, verbose=0)


def test_categorical_needs_two_outputs():
    with pytest.raises(ValueError, match="at least 2 classes. Received: 1 output"):
        toys.LinearModel(2, 1, fns.likelihoods.Categorical())


# Metrics -----------------------------------------------------------------------------------------


def reference_ece(confidence, hit, num_bins):
    total = 0.0
    for b in range(num_bins):
        inside = (confidence > b / num_bins) & (confidence <= (b + 1) / num_bins)
        if inside.any():
            total += inside.mean() * abs(hit[inside].mean() - confidence[inside].mean())
    return total


@pytest.mark.parametrize("num_bins", [1, 7, 15])
def test_metrics_of_classes_against_loops(num_bins):
    rng = np.random.default_rng(1)
    probs = rng.dirichlet([0.5, 0.5, 0.5], size=200)
    y = rng.integers(3, size=200)
    distribution = tfd.Categorical(probs=probs)
    hit, confidence = probs.argmax(1) == y, probs.max(1)
    np.testing.assert_allclose(metrics.accuracy(y, distribution), hit.mean())
    ece = metrics.expected_calibration_error(y, distribution, num_bins)
    np.testing.assert_allclose(ece, reference_ece(confidence, hit, num_bins), rtol=1e-6)
    nll = metrics.nll(y[:, np.newaxis], distribution)
    np.testing.assert_allclose(nll, -np.log(probs[range(200), y]).mean(), rtol=1e-6)
    for metric, expected in (
        (metrics.ExpectedCalibrationError(num_bins, dtype="float64"), ece),
        (metrics.Accuracy(dtype="float64"), hit.mean()),
        (metrics.NLL(dtype="float64"), nll),
    ):
        metric = type(metric).from_config(metric.get_config())
        for rows in (slice(0, 13), slice(13, 200)):
            metric.update_state(y[rows].astype("float32"), tfd.Categorical(probs=probs[rows]))
        np.testing.assert_allclose(metric.result(), expected, rtol=1e-6)


def test_metrics_of_binary_outputs_and_missing_labels():
    rng = np.random.default_rng(2)
    p = rng.uniform(size=(50, 2))
    y = rng.integers(2, size=(50, 2)).astype("float64")
    y[3, 1] = np.nan
    distribution = tfd.Independent(tfd.Bernoulli(probs=p), 1)
    seen = ~np.isnan(y)
    hit, confidence = ((p > 0.5) == y)[seen], np.maximum(p, 1 - p)[seen]
    np.testing.assert_allclose(metrics.accuracy(y, distribution), hit.mean())
    ece = metrics.expected_calibration_error(y, distribution, 10)
    np.testing.assert_allclose(ece, reference_ece(confidence, hit, 10), rtol=1e-6)


def test_metrics_of_classes_refuse_other_distributions():
    with pytest.raises(TypeError, match="Scores of classes need tfd.Categorical or .*Received"):
        metrics.accuracy([[0.0]], tfd.Independent(tfd.Normal([[0.0]], 1.0), 1))
    with pytest.raises(ValueError, match="`num_bins` must be a positive integer. Received: num_b"):
        metrics.ExpectedCalibrationError(0)
