"""Weights of rows: a row of weight w against w copies of it, in every model."""

import batteries
import keras
import numpy as np
import pytest
import tensorflow as tf
import toys

import tfp_fnspace as fns
from tfp_fnspace.layers.scaler import RunningMoments
from tfp_fnspace.math.regression import LinearRegression

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 4))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] + X[:, 2]], axis=1) + 0.1 * RNG.normal(size=(8, 2))
WHOLE = np.array([1.0, 3.0, 1.0, 2.0, 4.0, 1.0, 2.0, 2.0])
PARTS = np.array([0.5, 1.7, 0.2, 2.3, 1.1, 0.9, 3.3, 0.4])
COPIES = np.repeat(np.arange(8), WHOLE.astype(int))
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1])


class Batches(keras.callbacks.Callback):
    """Acts at batches, which makes `fit` use Keras's loop."""

    def on_train_batch_end(self, batch, logs=None):
        pass


class WeightsInItems(keras.utils.PyDataset):
    """Batches of four rows with weights."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        rows = slice(4 * index, 4 * index + 4)
        return X[rows], Y[rows], PARTS[rows]


def assert_same_weights(ours, theirs, **tolerance):
    for a, b in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), err_msg=a.path, **tolerance)


# Moments -----------------------------------------------------------------------------------------


def test_moments_count_weights_as_copies():
    values = np.where(RNG.random((8, 3, 2)) < 0.2, np.nan, RNG.normal(size=(8, 3, 2)))
    ours, copies, parts = (RunningMoments(2) for _ in range(3))
    for rows in (slice(0, 3), slice(3, 8)):
        ours.update(values[rows], WHOLE[rows])
        parts.update(values[rows], PARTS[rows])
    copies.update(values[COPIES])
    for name in ("count", "mean", "sum_of_squares", "low", "high"):
        np.testing.assert_allclose(getattr(ours, name), getattr(copies, name), rtol=1e-12)
    for d in range(2):
        column, weights = values[..., d].ravel(), np.repeat(PARTS, 3)
        seen = ~np.isnan(column)
        variance = np.cov(column[seen], aweights=weights[seen], ddof=0)
        np.testing.assert_allclose(parts.sum_of_squares[d] / parts.count[d], variance, rtol=1e-12)


def test_a_regression_counts_weights_as_copies():
    ours, copies = LinearRegression(np.ones(4), 2), LinearRegression(np.ones(4), 2)
    ours.update(X, Y, WHOLE)
    copies.update(X[COPIES], Y[COPIES])
    for a, b in zip(ours.posterior(0.3), copies.posterior(0.3), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    assert ours.best_noise_scale(1e-3) == pytest.approx(copies.best_noise_scale(1e-3), rel=1e-9)


# Evaluation --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    model = batteries.variational_model()
    model.compile(metrics=[fns.metrics.CalibrationError(), "mse", fns.metrics.PinballLoss(0.9)])
    model.fit(X, Y, epochs=2, verbose=0)
    return model


@pytest.mark.slow
def test_scores_are_weighted_means(fitted):
    mean = fitted.predict(X)["mean"]
    density = fitted.predict_distribution(X).log_prob(Y)
    found = fitted.evaluate(X, Y, sample_weight=PARTS, verbose=0, return_dict=True)
    square = np.average((Y - mean) ** 2, axis=0, weights=PARTS).mean()
    assert found["rmse"] == pytest.approx(np.sqrt(square), rel=1e-5)
    assert found["mean_squared_error"] == pytest.approx(square, rel=1e-5)
    nll = -np.average(density, weights=PARTS)
    assert found["nll"] == found["loss"] == pytest.approx(nll, rel=1e-5)


@pytest.mark.slow
def test_scores_of_weights_are_those_of_copies(fitted):
    copies = fitted.evaluate(X[COPIES], Y[COPIES], verbose=0, return_dict=True)
    options = {"verbose": 0, "return_dict": True}
    dataset = tf.data.Dataset.from_tensor_slices((X, Y, WHOLE)).batch(3)
    for found in (
        fitted.evaluate(X, Y, sample_weight=WHOLE, batch_size=3, **options),
        fitted.evaluate(dataset, **options),
        fitted.test_on_batch(X, Y, sample_weight=WHOLE, return_dict=True),
    ):
        assert found == pytest.approx(copies, rel=1e-5)


@pytest.mark.slow
def test_scores_of_classes_are_those_of_copies():
    metrics = [fns.metrics.BrierScore(), "sparse_categorical_accuracy"]
    model = batteries.variational_model(num_outputs=3, likelihood=fns.likelihoods.Categorical())
    model.compile(metrics=metrics)
    model.fit(X, LABELS, verbose=0)
    options = {"verbose": 0, "return_dict": True}
    copies = model.evaluate(X[COPIES], LABELS[COPIES], **options)
    assert model.evaluate(X, LABELS, sample_weight=WHOLE, **options) == pytest.approx(copies)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [keras.metrics.AUC, keras.metrics.Precision])
def test_binary_metrics_of_keras_take_weights(metric):
    model = batteries.variational_model(num_outputs=1, likelihood=fns.likelihoods.Bernoulli())
    model.compile(metrics=[metric()])
    model.fit(X, LABELS > 0, verbose=0)
    options = {"verbose": 0, "return_dict": True}
    copies = model.evaluate(X[COPIES], LABELS[COPIES] > 0, **options)
    assert model.evaluate(X, LABELS > 0, sample_weight=WHOLE, **options) == pytest.approx(copies)


@pytest.mark.slow
def test_validation_is_weighted(fitted):
    options = {"verbose": 0, "return_dict": True}
    dataset = tf.data.Dataset.from_tensor_slices((X, Y, WHOLE)).batch(3)
    for data in ((X, Y, WHOLE), dataset):
        history = fitted.fit(X, Y, validation_data=data, verbose=0).history
        expected = fitted.evaluate(X, Y, sample_weight=WHOLE, **options)
        assert history["val_nll"][0] == pytest.approx(expected["nll"], rel=1e-4)
    history = fitted.fit(X, Y, sample_weight=WHOLE, validation_split=0.25, verbose=0).history
    held_out = fitted.evaluate(X[6:], Y[6:], sample_weight=WHOLE[6:], **options)
    assert history["val_nll"][0] == pytest.approx(held_out["nll"], rel=1e-4)


# Models that are trained by gradients ------------------------------------------------------------


def of_kernels():
    """A deep kernel process without random matrices, whose bound has no draws."""
    return batteries.diwp_model(hidden="none", start=fns.diwp.Start(rows="greedy"))


#: Models whose draws do not depend on the number of rows.
EXACT = {
    "variational": batteries.variational_model,
    "SIP": batteries.ALL_BY_GRADIENTS["SIP"],
    "VIP": batteries.vip_model,
    "AADM": batteries.aadm_model,
    "AVB": lambda: batteries.aadm_model(fns.sip.AVBModel),
    "DIWP": of_kernels,
}


def prepared(make, x, y, weights=None):
    """Returns a model in the units of the data and at its start, which is not counted as a step."""
    model = make()
    names = [name for name in model.optimizer_names.values() if name != "optimizer"]
    others = {name: keras.optimizers.SGD(0.01) for name in names}
    model.compile(optimizer=keras.optimizers.SGD(0.01), **others)
    model.fit(x, y, sample_weight=weights, batch_size=len(x), verbose=0)
    return model


def slow_but(names, fast):
    """Returns names as parameters, of which those that are not fast are marked slow."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", slow_but(EXACT, ["variational", "VIP"]))
@pytest.mark.slow
def test_steps_on_weights_are_those_on_copies(name):
    ours = prepared(EXACT[name], X, Y, WHOLE)
    theirs = prepared(EXACT[name], X[COPIES], Y[COPIES])
    for a, b in zip(ours.units.scalers, theirs.units.scalers, strict=True):
        np.testing.assert_allclose(a.mean.numpy(), b.mean.numpy(), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(a.stddev.numpy(), b.stddev.numpy(), rtol=1e-10)
    theirs.set_weights(ours.get_weights())  # the same start
    start = [weight.numpy() for weight in ours.trainable_variables]
    options = {"epochs": 3, "verbose": 0}
    history = ours.fit(X, Y, sample_weight=WHOLE, batch_size=8, **options).history
    of_copies = theirs.fit(X[COPIES], Y[COPIES], batch_size=16, **options).history
    for key, values in history.items():
        np.testing.assert_allclose(values, of_copies[key], rtol=1e-3, atol=1e-4, err_msg=key)
    moved = 0.0
    for a, b, before in zip(
        ours.trainable_variables, theirs.trainable_variables, start, strict=True
    ):
        moved = max(moved, np.max(np.abs(a - before), initial=0.0))
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5, err_msg=a.path)
    assert moved > 1e-3


@pytest.mark.parametrize(
    "name", slow_but([*EXACT, "fBNN", "fBNN_closed_form", "DIWP_random"], ["VIP", "AADM"])
)
@pytest.mark.slow
def test_the_term_of_a_row_is_weighted(name):
    """The data term is linear in the weights, and is the plain one for weights of one."""
    make = {**batteries.ALL_BY_GRADIENTS, **EXACT, "DIWP_random": batteries.diwp_model}[name]
    model = prepared(make, X, Y)
    inputs = model.units.scaled(tf.constant(X))
    targets = model.units.target_scaler(tf.constant(Y))
    num_rows = tf.constant(8.0)

    def term(weights=None):
        given = {} if weights is None else {"row_weights": tf.constant(weights, tf.float32)}
        entries = model.objective(inputs, targets, num_rows, (0, 7), **given)[1]
        return float(entries["log_likelihood"])

    of_rows = [8.0 * term(row) for row in np.eye(8)]
    assert np.ptp(of_rows) > 1e-2
    assert np.mean(of_rows) == pytest.approx(term(), rel=1e-4)
    assert np.mean(PARTS * of_rows) == pytest.approx(term(PARTS), rel=1e-4)


@pytest.mark.parametrize("kl_weight", ["data", "batch"])
@pytest.mark.slow
def test_the_divergence_of_an_fbnn_is_scaled_by_the_weights(kl_weight):
    model = batteries.fbnn_model(kl_weight=kl_weight)
    history = model.fit(X, Y, sample_weight=PARTS, batch_size=8, verbose=0).history
    (elbo,), (data,), (kl,) = (history[key] for key in ("elbo", "log_likelihood", "kl_estimate"))
    assert (data - elbo) * np.sum(PARTS) == pytest.approx(kl, rel=1e-4)


def gradients(model, rows, weights, total):
    with tf.GradientTape() as tape:
        inputs = model.units.scaled(tf.constant(X[rows]))
        targets = model.units.target_scaler(tf.constant(Y[rows]))
        scaled = tf.constant(weights[rows] / np.mean(weights), tf.float32)
        loss, _ = model.objective(inputs, targets, total, (0, 0), row_weights=scaled)
    return [g.numpy() for g in tape.gradient(loss, model.trainable_variables) if g is not None]


def test_gradients_of_batches_add_up_to_that_of_all_rows():
    model = prepared(batteries.vip_model, X, Y, PARTS)
    total = tf.constant(np.sum(PARTS), tf.float32)
    batches = [[0, 3, 6], [1, 2, 7], [4, 5]]
    parts = [[len(b) / 8 * g for g in gradients(model, b, PARTS, total)] for b in batches]
    for whole, *several in zip(gradients(model, [*range(8)], PARTS, total), *parts, strict=True):
        np.testing.assert_allclose(sum(several), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_all_ways_to_pass_weights_agree():
    models = [batteries.variational_model() for _ in range(5)]
    options = {"epochs": 2, "verbose": 0}
    dataset = tf.data.Dataset.from_tensor_slices((X, Y, PARTS)).batch(4)

    def batches():
        while True:
            yield from dataset.as_numpy_iterator()

    for model in models:
        model.adapt(X, Y, sample_weight=PARTS)
        model.compile(num_rows=8, optimizer=keras.optimizers.SGD(0.01))
    arrays = {"sample_weight": PARTS / np.mean(PARTS), "shuffle": False, "batch_size": 4}
    models[0].fit(X, Y, **arrays, **options)
    models[1].fit(X, Y, callbacks=[Batches()], **arrays, **options)
    scaled = dataset.map(lambda x, y, w: (x, y, w / np.mean(PARTS)))
    models[2].fit(scaled, **options)
    models[3].fit(
        ((x, y, w / np.mean(PARTS)) for x, y, w in batches()), steps_per_epoch=2, **options
    )
    for _ in range(2):
        for x, y, w in scaled:
            models[4].train_on_batch(x, y, sample_weight=w)
    names = [[w.numpy() for w in model.trainable_variables] for model in models]
    for others in names[1:]:
        for a, b in zip(names[0], others, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_finite_stream_knows_its_mean_weight():
    of_arrays, *of_streams = (batteries.variational_model() for _ in range(3))
    of_arrays.fit(X, Y, sample_weight=PARTS, batch_size=4, shuffle=False, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y, PARTS)).batch(4)
    for model, stream in zip(of_streams, (dataset, WeightsInItems()), strict=True):
        model.fit(stream, verbose=0)
        assert_same_weights(model, of_arrays, rtol=1e-5, atol=1e-6)
        assert model.counters.mean_weight.numpy() == pytest.approx(np.mean(PARTS))
    model.fit(X, Y, verbose=0)
    assert model.counters.mean_weight.numpy() == 1.0


# TAGI --------------------------------------------------------------------------------------------

TAGI = {
    "fixed noise": {},
    "learnt noise": {"likelihood": fns.likelihoods.Gaussian(0.3, trainable=True)},
    "varying noise": {
        "likelihood": fns.likelihoods.HeteroscedasticGaussian(),
        "num_outputs": 4,
    },
    "full covariance": {"covariance": "full"},
}


@pytest.mark.parametrize("name", TAGI)
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.slow
def test_tagi_in_one_batch_learns_weights_as_copies(name, missing):
    y = Y.copy()
    if missing:
        y[[1, 4], [0, 1]] = np.nan
    options = TAGI[name]
    likelihood = options.get("likelihood", fns.likelihoods.Gaussian(0.3))
    models = []
    for _ in range(2):
        fresh = type(likelihood).from_config(likelihood.get_config())
        models.append(batteries.tagi_model(**{**options, "likelihood": fresh}))
    ours, theirs = models
    history = ours.fit(X, y, sample_weight=WHOLE, batch_size=8, epochs=2, verbose=0).history
    copies = theirs.fit(X[COPIES], y[COPIES], batch_size=16, epochs=2, verbose=0).history
    for key in history:
        np.testing.assert_allclose(history[key], copies[key], rtol=1e-4, err_msg=key)
    for a, b in zip(ours.parameter_variables, theirs.parameter_variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_tagi_learns_weighted_labels_as_copies():
    trees = [fns.likelihoods.HierarchicalCategorical(3) for _ in range(2)]
    ours, theirs = (
        batteries.tagi_model(likelihood=tree, num_outputs=tree.num_outputs) for tree in trees
    )
    ours.fit(X, LABELS, sample_weight=WHOLE, batch_size=8, verbose=0)
    theirs.fit(X[COPIES], LABELS[COPIES], batch_size=16, verbose=0)
    for a, b in zip(ours.parameter_variables, theirs.parameter_variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("covariance", slow_but(["diagonal", "full_parameters"], ["diagonal"]))
@pytest.mark.slow
def test_the_exact_update_learns_copies_one_by_one(covariance):
    options = {"update": "exact", "covariance": covariance}
    ours, theirs, looped, streamed = (batteries.tagi_model(**options) for _ in range(4))
    arrays = {"sample_weight": WHOLE, "shuffle": False, "verbose": 0}
    ours.fit(X, Y, **arrays)
    theirs.fit(X[COPIES], Y[COPIES], shuffle=False, verbose=0)
    looped.fit(X, Y, callbacks=[Batches()], batch_size=3, **arrays)
    streamed.fit(tf.data.Dataset.from_tensor_slices((X, Y, WHOLE)).batch(5), verbose=0)
    for model in (ours, looped, streamed):
        for a, b in zip(model.parameter_variables, theirs.parameter_variables, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"whole numbers, since update='exact'.*the first 0\.5"):
        ours.fit(X, Y, sample_weight=PARTS, verbose=0)


@pytest.mark.slow
def test_tagi_batches_of_all_loops_agree():
    models = [batteries.tagi_model() for _ in range(3)]
    options = {"epochs": 2, "verbose": 0}
    models[0].fit(X, Y, sample_weight=PARTS, batch_size=3, shuffle=False, **options)
    models[1].fit(
        X, Y, sample_weight=PARTS, batch_size=3, shuffle=False, callbacks=[Batches()], **options
    )
    models[2].fit(tf.data.Dataset.from_tensor_slices((X, Y, PARTS)).batch(3), **options)
    for model in models[1:]:
        for a, b in zip(model.parameter_variables, models[0].parameter_variables, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_cross_validated_noise_counts_weights():
    """Rows with other noise decide about it by their weights."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 4))
    scales = np.where(np.arange(60) % 2, 0.1, 2.0)
    y = x[:, :2] + scales[:, np.newaxis] * rng.normal(size=(60, 2))
    found = []
    for weights in (None, np.ones(60), np.where(scales > 1.0, 0.01, 1.0)):
        model = batteries.tagi_model(noise="cross_validate", standardize=False)
        model.fit(x, y, sample_weight=weights, epochs=3, batch_size=10, verbose=0)
        found.append(float(np.mean(model.likelihood.scale)))
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    assert found[2] < 0.6 * found[0]


# Classes -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_class_weight_multiplies_the_weights_of_rows():
    def model():
        likelihood = fns.likelihoods.Categorical()
        return batteries.variational_model(num_outputs=3, likelihood=likelihood)

    classes = {0: 2.0, 2: 0.5}
    product = PARTS * np.array([2.0, 1.0, 0.5])[LABELS]
    ours, theirs, alone, streamed = (model() for _ in range(4))
    ours.fit(X, LABELS, sample_weight=PARTS, class_weight=classes, verbose=0)
    theirs.fit(X, LABELS, sample_weight=product, verbose=0)
    assert_same_weights(ours, theirs)
    alone.fit(X, LABELS, class_weight=classes, batch_size=8, shuffle=False, verbose=0)
    pairs = tf.data.Dataset.from_tensors((X, LABELS))
    streamed.fit(pairs, class_weight=classes, verbose=0)
    assert_same_weights(alone, streamed, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ([1.0, 2.0, 1.0], r"`class_weight` must be a dict.*Received: class_weight=\[1"),
        ({3: 1.0}, r"integers from 0 to 2 as keys. Received: class_weight with the key 3"),
        ({"a": 1.0}, r"integers from 0 to 2 as keys. Received: class_weight with the key 'a'"),
        ({1: 0.0}, r"`class_weight\[1\]` must be a positive finite number"),
        ({1: np.nan}, r"`class_weight\[1\]` must be a positive finite number"),
    ],
)
def test_bad_class_weights_are_refused(class_weight, message):
    model = batteries.variational_model(num_outputs=3, likelihood=fns.likelihoods.Categorical())
    with pytest.raises(ValueError, match=message):
        model.fit(X, LABELS, class_weight=class_weight, verbose=0)


def test_class_weight_needs_labels():
    with pytest.raises(ValueError, match=r"`class_weight` is for classifiers.*Gaussian"):
        batteries.variational_model().fit(X, Y, class_weight={0: 1.0}, verbose=0)


# Refusals ----------------------------------------------------------------------------------------

BAD = {
    "nan": (
        np.where(np.arange(8) == 3, np.nan, 1.0),
        ValueError,
        r"1 others, the first nan in row 3",
    ),
    "infinite": (np.where(np.arange(8) == 3, np.inf, 1.0), ValueError, r"the first inf in row 3"),
    "negative": (np.where(np.arange(8) == 2, -1.0, 1.0), ValueError, r"the first -1 in row 2"),
    "zero": (
        np.where(np.arange(8) < 2, 0.0, 1.0),
        ValueError,
        r"leave out rows of weight zero.*2 others",
    ),
    "zeros": (np.zeros(8), ValueError, r"positive numbers.*8 others, the first 0 in row 0"),
    "large": (np.full(8, 1e10), ValueError, r"positive numbers up to 1e\+09"),
    "short": (np.ones(7), ValueError, r"shape \(8,\), a weight for each row.*shape \(7,\)"),
    "columns": (np.ones((8, 2)), ValueError, r"shape \(8,\), a weight for each row"),
    "number": (2.0, ValueError, r"shape \(8,\), a weight for each row.*shape \(\)"),
    "words": (["a"] * 8, TypeError, r"sample_weight` must be an array of"),
}


@pytest.fixture(scope="module")
def untrained():
    model = batteries.tagi_model()
    model.adapt(X, Y)
    return model


@pytest.mark.parametrize("name", BAD)
def test_bad_weights_are_refused_with_one_error(untrained, name):
    weights, kind, message = BAD[name]
    uses = [
        lambda: untrained.fit(X, Y, sample_weight=weights, verbose=0),
        lambda: untrained.train_on_batch(X, Y, sample_weight=weights),
        lambda: untrained.evaluate(X, Y, sample_weight=weights, verbose=0),
        lambda: untrained.test_on_batch(X, Y, sample_weight=weights),
        lambda: untrained.fit(X, Y, validation_data=(X, Y, weights), verbose=0),
    ]
    for use in uses:
        with pytest.raises(kind, match=message):
            use()
    assert not untrained.counters.has_steps


@pytest.mark.parametrize("name", ["nan", "zero"])
def test_bad_weights_in_a_dataset_are_refused(untrained, name):
    weights, kind, message = BAD[name]
    dataset = tf.data.Dataset.from_tensors((X, Y, weights))
    for use in (untrained.fit, untrained.evaluate):
        with pytest.raises(kind, match=rf"`batch sample_weight` must.*{message}.*, in batch 0"):
            use(dataset, verbose=0)


def test_weights_beside_a_dataset_are_refused(untrained):
    dataset = tf.data.Dataset.from_tensors((X, Y))
    for use in (untrained.fit, untrained.evaluate):
        with pytest.raises(ValueError, match=r"A dataset yields \(x, y, sample_weight\) batches"):
            use(dataset, sample_weight=WHOLE, verbose=0)


@pytest.mark.slow
def test_a_method_that_does_not_know_weights_refuses_them():
    def model():
        return toys.LinearModel(4, 2, fns.likelihoods.Gaussian(0.3), standardize=True, seed=0)

    linear = model()
    for name, value in {"sample_weight": WHOLE, "class_weight": {0: 1.0}}.items():
        with pytest.raises(ValueError, match=rf"`{name}` is not supported by LinearModel"):
            linear.fit(X, Y, verbose=0, **{name: value})
        linear.adapt(X, Y)
        with pytest.raises(ValueError, match=rf"`{name}` is not supported by LinearModel"):
            linear.train_on_batch(X, Y, **{name: value})
    with pytest.raises(ValueError, match=r"this model does not learn from weights"):
        model().fit(tf.data.Dataset.from_tensors((X, Y, WHOLE)), verbose=0)
    with pytest.raises(ValueError, match=r"this model does not learn from weights"):
        model().fit(WeightsInItems(), verbose=0)
    linear.fit(X, Y, verbose=0)
    copies = linear.evaluate(X[COPIES], Y[COPIES], verbose=0)
    assert linear.evaluate(X, Y, sample_weight=WHOLE, verbose=0) == pytest.approx(copies, rel=1e-5)
