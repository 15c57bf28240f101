"""Training by gradients: a Bayesian linear model with a known posterior, and its runs."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import toys

import tfp_fnspace as fns
from tfp_fnspace.callbacks import EpochCounter
from tfp_fnspace.model import epochs_ahead

NOISE = 0.5


def example_data(num_rows=40):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 3))
    f = np.stack([1.0 + x[:, 0] - 0.5 * x[:, 1], x[:, 2]], axis=1)
    return x.astype("float32"), (f + NOISE * rng.normal(size=f.shape)).astype("float32")


def make(noise=None, **options):
    noise = fns.likelihoods.Gaussian(NOISE) if noise is None else noise
    options = {"standardize": False, "seed": 0, **options}
    return toys.LinearModel(3, 2, noise, **options)


def weights_of(model):
    return [variable.numpy() for variable in model.weights]


def assert_same_weights(ours, theirs):
    for a, b in zip(weights_of(ours), weights_of(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


class Batches(keras.callbacks.Callback):
    """Acts at batches, which makes `fit` use Keras's loop."""

    count = 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1


class Stop(keras.callbacks.Callback):
    """Simulates a power cut at the start of epoch 3."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 3:
            raise InterruptedError("power cut")


# What is learnt ----------------------------------------------------------------------------------


def exact_posterior(x, y):
    features = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    covariance = np.linalg.inv(np.eye(4) + features.T @ features / NOISE**2)
    return (covariance @ features.T @ y / NOISE**2).T, covariance


def test_exact_posterior_and_evidence_are_reached():
    x, y = example_data()
    model = make()
    model.compile(num_rows=40)
    copies = [np.tile(a, (100, 1)) for a in (x, y)]  # an epoch is 100 steps on all rows
    options = {"batch_size": 40, "epochs": 20, "shuffle": False, "verbose": 0}
    history = model.fit(*copies, **options).history
    mean, covariance = exact_posterior(x, y)
    np.testing.assert_allclose(model.mean, mean, atol=1e-3)
    lower = model.cholesky().numpy()
    for ours in lower @ np.swapaxes(lower, 1, 2):
        np.testing.assert_allclose(ours, covariance, atol=2e-4)
    features = np.concatenate([np.ones((40, 1)), x], axis=1)
    total = features @ features.T + NOISE**2 * np.eye(40)
    evidence = -0.5 * np.sum(y * np.linalg.solve(total, y))
    evidence -= 2 * 0.5 * (np.linalg.slogdet(total)[1] + 40 * np.log(2 * np.pi))
    np.testing.assert_allclose(history["elbo"][-1], evidence, rtol=1e-4)
    assert max(history["elbo"]) <= evidence + 1e-4 * abs(evidence)
    np.testing.assert_allclose(
        history["elbo"], np.subtract(history["log_likelihood"], history["kl"]), rtol=1e-5
    )


def test_a_trained_noise_scale_is_found():
    x, y = example_data(400)
    model = make(fns.likelihoods.Gaussian(2.0, trainable=True))
    model.fit(x, y, batch_size=20, epochs=30, verbose=0)
    np.testing.assert_allclose(float(model.likelihood.scale), NOISE, rtol=0.1)


def test_gradients_of_partial_batches_add_up_to_that_of_all_rows(float64):
    """The mean over an epoch's rows of the batches' gradients is the gradient of all rows."""
    x, y = example_data(23)
    model = make()

    def gradients(rows):
        with tf.GradientTape() as tape:
            inputs = [tf.constant(x[rows], "float64")]
            loss, _ = model.objective(inputs, tf.constant(y[rows], "float64"), 23.0, (0, 0))
        return tape.gradient(loss, model.trainable_variables)

    order = model.counters.epoch_order(23)
    batches = [order[i : i + 10] for i in range(0, 23, 10)]
    assert [len(batch) for batch in batches] == [10, 10, 3]
    parts = [[len(b) / 23 * g for g in gradients(b)] for b in batches]
    for whole, *several in zip(gradients(order), *parts, strict=True):
        np.testing.assert_allclose(sum(several), whole, rtol=1e-12, atol=1e-12)


# Runs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: None,
        lambda: keras.optimizers.Adam(
            keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.7), clipnorm=0.5
        ),
        lambda: keras.optimizers.SGD(0.01, momentum=0.9, use_ema=True, ema_overwrite_frequency=4),
    ],
    ids=["default", "schedule_and_clipping", "averages"],
)
@pytest.mark.slow
def test_compiled_epochs_equal_the_loop_over_batches(optimizer):
    x, y = example_data()
    compiled, looped, callback = make(), make(), Batches()
    histories = []
    for model, callbacks in ((compiled, []), (looped, [callback])):
        model.compile(optimizer=optimizer())
        options = {"epochs": 3, "batch_size": 16, "verbose": 0, "callbacks": callbacks}
        options["validation_data"] = (x[:7], y[:7])
        histories.append(model.fit(x, y, **options).history)
    assert callback.count == 3 * 3
    for ours, theirs in zip(weights_of(compiled), weights_of(looped), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    parts = {key for key in histories[0] if not key.startswith("val_")}
    assert parts == {"loss", "elbo", "log_likelihood", "kl"}
    assert set(histories[0]) == set(histories[1]) > parts
    for key, values in histories[0].items():
        np.testing.assert_allclose(values, histories[1][key], rtol=1e-5)
    assert compiled.optimizer.iterations.numpy() == compiled.counters.steps.numpy() == 9


class Scores(keras.callbacks.Callback):
    """Requests the scores of a batch at the end of each epoch."""

    def __init__(self, *batch):
        super().__init__()
        self.batch, self.scores = batch, []

    def on_epoch_end(self, epoch, logs=None):
        self.scores.append(self.model.test_on_batch(*self.batch, return_dict=True))


@pytest.mark.slow
def test_a_callback_may_score_a_batch_within_a_compiled_fit():
    x, y = example_data()
    model, callback = make(), Scores(x[:7], y[:7])
    model.compile()
    model.fit(x, y, epochs=2, batch_size=16, verbose=0, callbacks=[callback])
    after = model.evaluate(x[:7], y[:7], return_dict=True, verbose=0)
    assert callback.scores[1] == pytest.approx(after, rel=1e-5)
    assert callback.scores[0]["nll"] != pytest.approx(after["nll"], rel=1e-5)
    first = model.test_on_batch(x[7:], y[7:], return_dict=True)
    assert first == pytest.approx(model.evaluate(x[7:], y[7:], return_dict=True, verbose=0), 1e-5)


def test_one_trace_serves_all_epochs_batch_sizes_and_rows():
    x, y = example_data()
    model, traces = make(), []
    objective = model.objective
    model.objective = lambda *arguments: traces.append(1) or objective(*arguments)
    model.fit(x, y, epochs=3, batch_size=16, verbose=0)
    model.fit(x, y, epochs=2, batch_size=16, verbose=0)
    model.fit(x[:21], y[:21], epochs=1, batch_size=7, verbose=0)
    first = len(traces)
    assert first == 1
    model.mean.trainable = False
    before = model.mean.numpy()
    model.fit(x, y, epochs=1, verbose=0)
    np.testing.assert_array_equal(model.mean, before)
    assert len(traces) == 2


def test_epochs_ahead_are_told_one_by_one():
    counts = []

    def run(count):
        start = sum(counts)
        counts.append(count)
        return {"loss": np.arange(start, start + count, dtype="float32")}

    epochs = epochs_ahead.EpochsAhead(run, 1000, 1000)
    assert [epochs()["loss"] for _ in range(1000)] == list(range(1000))
    assert counts[:2] == [1, 1] and max(counts) > 10 and sum(counts) == 1000


class _Looks(keras.callbacks.Callback):
    """Keeps a weight after every fifth epoch."""

    allows_ahead, looks_every = True, 5

    def __init__(self):
        super().__init__()
        self.found = []

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.looks_every == 0:
            self.found.append(self.model.mean.numpy())


@pytest.mark.parametrize("first", [0, 3])
def test_who_looks_at_times_sees_the_weights_of_these_times(first, monkeypatch):
    monkeypatch.setattr(epochs_ahead, "_AHEAD_SECONDS", 1e6)
    x, y = example_data()

    def made():
        model = make()
        model.compile(keras.optimizers.Adam(0.01))
        return model

    looks = _Looks()
    options = {"batch_size": 16, "verbose": 0, "initial_epoch": first}
    made().fit(x, y, epochs=12, callbacks=[looks], **options)
    assert len(looks.found) == 2
    for i, found in enumerate(looks.found):
        other = made()
        other.fit(x, y, epochs=5 * (i + 1), **options)
        np.testing.assert_array_equal(found, other.mean)


def test_runs_without_callbacks_are_those_with(monkeypatch):
    monkeypatch.setattr(epochs_ahead, "_AHEAD_SECONDS", 1e6)  # all remaining epochs at once
    x, y = example_data()
    histories, models = [], [make(), make()]
    for model, callbacks in zip(models, ([], [keras.callbacks.Callback()]), strict=True):
        options = {"batch_size": 16, "verbose": 0, "callbacks": callbacks}
        histories.append(model.fit(x, y, epochs=120, **options).history)
    assert_same_weights(*models)
    assert histories[0] == histories[1] and len(histories[0]["loss"]) == 120


def test_an_interrupted_run_counts_what_its_weights_have_seen(monkeypatch):
    monkeypatch.setattr(epochs_ahead, "_AHEAD_SECONDS", 0.0)
    x, y = example_data()
    whole, model = make(), make()
    for each in (whole, model):
        each.compile(optimizer=keras.optimizers.Adam(0.01))
    whole.fit(x, y, epochs=150, batch_size=16, verbose=0)
    monkeypatch.setattr(epochs_ahead, "_AHEAD_SECONDS", 1e6)
    with monkeypatch.context() as patch:
        patch.setattr(EpochCounter, "on_epoch_begin", Stop.on_epoch_begin)
        with pytest.raises(InterruptedError):
            model.fit(x, y, epochs=150, batch_size=16, verbose=0)
    done = int(model.counters.epochs.numpy())
    assert done == 150 and model.counters.steps.numpy() == 3 * done
    assert_same_weights(model, whole)


def test_same_seed_same_run_another_seed_another():
    x, y = example_data()
    runs = []
    for seed in (1, 1, 2):
        model = make(fns.likelihoods.StudentT(4.0, 0.5), seed=seed)
        model.fit(x, y, epochs=2, batch_size=7, verbose=0)
        runs.append(model.mean.numpy())
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 1e-4


@pytest.mark.parametrize("batchwise", [False, True])
@pytest.mark.slow
def test_restored_fit_equals_an_undisturbed_one(tmp_path, batchwise):
    x, y = example_data()
    options = {"epochs": 5, "batch_size": 7, "verbose": 0}
    extra = [Batches()] if batchwise else []
    undisturbed, killed, restored = make(), make(), make()
    undisturbed.fit(x, y, callbacks=extra, **options)

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    with pytest.raises(InterruptedError, match="power cut"):
        killed.fit(x, y, callbacks=[backup(), Stop(), *extra], **options)
    history = restored.fit(x, y, callbacks=[backup(), *extra], **options)
    assert history.epoch == [3, 4]
    assert_same_weights(restored, undisturbed)
    assert restored.optimizer.iterations.numpy() == 30


@pytest.mark.parametrize("optimizer", [None, "adam"])
def test_keras_file_continues_the_run(tmp_path, optimizer):
    x, y = example_data()
    model = make()
    model.compile(optimizer=optimizer)
    model.fit(x, y, epochs=2, batch_size=7, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_same_weights(loaded, model)
    for key, value in model.predict(x).items():
        np.testing.assert_array_equal(loaded.predict(x)[key], value)
    for one in (model, loaded):
        one.fit(x, y, epochs=2, batch_size=7, verbose=0)
    assert_same_weights(loaded, model)
    assert loaded.optimizer.iterations.numpy() == 24


def test_default_optimizer_is_made_for_the_steps_of_the_first_fit():
    x, y = example_data()
    model = make()
    model.compile()
    assert model.optimizer is None
    model.fit(x, y, epochs=3, batch_size=16, verbose=0)
    made = model.optimizer
    assert made.get_config()["learning_rate"]["config"]["decay_steps"] == 9
    model.fit(x, y, epochs=1, verbose=0)
    assert model.optimizer is made


def test_learning_rate_callbacks_act_on_compiled_epochs():
    x, y = example_data()
    model = make()
    model.compile(optimizer=keras.optimizers.SGD(0.01))
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.0)
    before = model.mean.numpy()
    model.fit(x, y, epochs=2, verbose=0, callbacks=[schedule])
    np.testing.assert_array_equal(model.mean, before)


@pytest.mark.parametrize("options", [{"jit_compile": True}, {"run_eagerly": True}])
@pytest.mark.slow
def test_compile_options_change_nothing_but_speed(options):
    x, y = example_data()
    plain, other = make(), make()
    other.compile(**options)
    for model in (plain, other):
        model.fit(x, y, epochs=1, batch_size=16, verbose=0)
    np.testing.assert_allclose(other.mean, plain.mean, rtol=1e-5, atol=1e-6)


class Seen(keras.callbacks.Callback):
    """Collects the epochs whose end a user's callback sees."""

    def __init__(self):
        super().__init__()
        self.epochs = []

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(epoch)


@pytest.mark.parametrize("path", ["compiled", "loop", "dataset"])
@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_run_before_anything_is_saved(path):
    x, y = example_data()
    model, seen = make(), Seen()
    model.compile(optimizer=keras.optimizers.SGD(1e9))
    data = (tf.data.Dataset.from_tensor_slices((x, y)).batch(20),) if path == "dataset" else (x, y)
    callbacks = [seen, Batches()] if path == "loop" else [seen]
    options = {"epochs": 9, "verbose": 0, "callbacks": callbacks, "validation_data": (x, y)}
    message = r"The loss must be finite. Received: loss=(-?inf|nan) in epoch {}. .*learning rate"
    with pytest.raises(FloatingPointError, match="The loss must be finite") as caught:
        model.fit(*data, **options)
    caught.match(message.format(len(seen.epochs) + 1))
    # The epoch's steps count, and so does the epoch.
    assert model.counters.epochs.numpy() == len(seen.epochs) + 1
    assert np.max(np.abs(model.mean)) > 1e6  # the values are those that the run left


def test_terminate_on_nan_ends_the_run_without_an_error():
    x, y = example_data()
    model = make()
    model.compile(optimizer=keras.optimizers.SGD(1e9))
    callbacks = [keras.callbacks.TerminateOnNaN()]
    history = model.fit(x, y, epochs=9, verbose=0, callbacks=callbacks).history
    assert len(history["loss"]) < 9 and not np.isfinite(history["loss"][-1])


# Data --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_dataset_equals_arrays_in_the_same_order():
    x, y = example_data()
    arrays, dataset = make(standardize=True), make(standardize=True)
    arrays.fit(x, y, epochs=2, batch_size=16, shuffle=False, verbose=0)
    dataset.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16), epochs=2, verbose=0)
    np.testing.assert_allclose(arrays.mean, dataset.mean, rtol=1e-5, atol=1e-6)
    assert dataset.counters.rows.numpy() == 40


@pytest.mark.slow
def test_generators_need_the_number_of_rows(tmp_path):
    x, y = example_data()

    def generator():
        while True:
            yield x[:8], y[:8]

    with pytest.raises(ValueError, match="scaled by the number of training rows.*Received: data"):
        make().fit(generator(), steps_per_epoch=2, verbose=0)
    model = make()
    model.compile(num_rows=1000)
    model.fit(generator(), steps_per_epoch=2, epochs=2, verbose=0)
    assert (model.counters.rows.numpy(), model.counters.steps.numpy()) == (1000, 4)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    loaded.fit(generator(), steps_per_epoch=1, verbose=0)
    assert loaded.counters.rows.numpy() == 1000


def test_train_on_batch_continues_with_the_rows_of_fit():
    x, y = example_data()
    model = make()
    with pytest.raises(ValueError, match="scaled by the number of training rows"):
        model.train_on_batch(x, y)
    model.fit(x, y, epochs=1, batch_size=40, verbose=0)
    logs = model.train_on_batch(x[:5], y[:5], return_dict=True)
    assert set(logs) == {"loss", "elbo", "log_likelihood", "kl"}
    assert (model.counters.rows.numpy(), model.counters.steps.numpy()) == (40, 2)


@pytest.mark.slow
def test_train_on_batch_reports_its_batch_alone(tmp_path):
    x, y = example_data()
    model = make()
    model.fit(x, y, epochs=1, batch_size=40, verbose=0)
    model.train_on_batch(x[:5], y[:5])
    model.save(tmp_path / "m.keras")
    expected = keras.models.load_model(tmp_path / "m.keras").train_on_batch(x[5:9], y[5:9])
    assert model.train_on_batch(x[5:9], y[5:9]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_prepare_sees_the_first_data_once():
    x, y = example_data()
    for data in ((x, y), (tf.data.Dataset.from_tensor_slices((x, y)).batch(40),)):
        model, seen = make(), []
        model.prepare = lambda inputs, targets, _, seen=seen: seen.append((inputs, targets))
        model.fit(*data, epochs=1, verbose=0)
        model.fit(*data, epochs=1, verbose=0)
        (((inputs,), targets),) = seen
        np.testing.assert_array_equal(inputs, x)
        np.testing.assert_array_equal(targets, y)


def test_no_batch_of_a_generator_is_lost_to_the_first_look():
    x, y = example_data()
    model = make()
    model.compile(num_rows=40)
    model.fit(((x[i : i + 8], y[i : i + 8]) for i in range(0, 40, 8)), epochs=1, verbose=0)
    assert model.counters.steps.numpy() == 5


@pytest.mark.parametrize("options", [{"loss": "mse"}, {"loss_weights": [1.0]}])
def test_a_loss_is_refused(options):
    with pytest.raises(ValueError, match="takes no `loss.*the objective is the method's"):
        make().compile(**options)


@pytest.mark.parametrize("num_rows", [0, -3, 2.5, True])
def test_bad_number_of_rows(num_rows):
    with pytest.raises(ValueError, match="`num_rows` must be a positive integer. Received: num_r"):
        make().compile(num_rows=num_rows)


# Prediction from mixtures ------------------------------------------------------------------------


def test_predictions_of_draws_are_repeatable_and_independent_of_batches():
    x, y = example_data()
    model = make(draws=True, standardize=True)
    model.fit(x, y, epochs=2, verbose=0)
    whole = model.predict(x)
    for batch_size in (1, 7):
        for key, value in model.predict(x, batch_size=batch_size).items():
            np.testing.assert_allclose(value, whole[key], rtol=1e-4, atol=1e-5)
    total = whole["epistemic_stddev"] ** 2 + whole["aleatoric_stddev"] ** 2
    np.testing.assert_allclose(whole["stddev"] ** 2, total, rtol=1e-5)
    distribution = model.predict_distribution(x)
    assert (distribution.batch_shape, distribution.event_shape) == ((40,), (2,))
    np.testing.assert_allclose(distribution.mean(), whole["mean"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(distribution.stddev(), whole["stddev"], rtol=1e-4)
    scores = model.evaluate(x, y, batch_size=7, return_dict=True, verbose=0)
    for name in ("nll", "crps", "rmse"):
        expected = getattr(fns.metrics, name)(y, distribution)
        np.testing.assert_allclose(scores[name], expected, rtol=1e-4)


def test_draws_have_the_spread_of_the_moments():
    x, y = example_data()
    model = make()
    model.fit(x, y, epochs=2, verbose=0)
    closed = model.predict(x)
    model.draws, model.num_eval_samples = True, 4000
    model.reset_functions()
    drawn = model.predict(x)
    # The bound is 8 standard errors of a standard deviation from 4000 draws, 1 / sqrt(8000) each.
    np.testing.assert_allclose(drawn["epistemic_stddev"], closed["epistemic_stddev"], rtol=0.09)
    offset = (drawn["mean"] - closed["mean"]) / closed["epistemic_stddev"]
    assert np.abs(offset).max() < 8 / np.sqrt(4000)


SERVER = """
import sys
for name in ("keras", "tf_keras", "tfp_fnspace", "tensorflow_probability"):
    sys.modules[name] = None
import numpy as np
import tensorflow as tf
x = np.load(sys.argv[1])
for path in sys.argv[2:]:
    loaded = tf.saved_model.load(path)
    np.savez(path + ".npz", sample=loaded.sample(x, tf.constant([1, 2])), **loaded.serve(x))
"""


@pytest.mark.slow
def test_exported_models_serve_where_the_library_is_missing(tmp_path):
    x, y = example_data()
    labels = y[:, 0] > y[:, 1]
    regression = make(fns.likelihoods.Gaussian(0.5, trainable=True), draws=True)
    classifier = make(fns.likelihoods.Categorical(), draws=True)
    models = {"regression": (regression, y), "classifier": (classifier, labels)}
    np.save(tmp_path / "x.npy", x)
    for name, (model, targets) in models.items():
        model.fit(x, targets, epochs=2, verbose=0)
        model.export(tmp_path / name, num_samples=7)
    arguments = [str(tmp_path / name) for name in ("x.npy", *models)]
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [sys.executable, "-I", "-c", SERVER, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, (model, _) in models.items():
        served, expected = np.load(tmp_path / f"{name}.npz"), model.predict(x)
        assert set(served) - {"sample", "quantiles"} == set(expected)
        assert ("quantiles" in served) == (name == "regression")
        for key, value in expected.items():
            np.testing.assert_allclose(served[key], value, rtol=1e-5, atol=1e-6)
        drawn = model.sample_functions(x, 7, seed=(1, 2))
        np.testing.assert_allclose(served["sample"], drawn, rtol=1e-5, atol=1e-5)
    quantiles = fns.distributions.quantile(regression.predict_distribution(x), [0.05, 0.5, 0.95])
    served = np.load(tmp_path / "regression.npz")["quantiles"]
    np.testing.assert_allclose(served, quantiles, rtol=1e-4, atol=1e-4)
