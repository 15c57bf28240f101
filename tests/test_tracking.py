"""Tools that watch `fit`: MLflow with a real store on the disk, TensorBoard, W&B; and tuners."""

import csv
import os

import batteries
import keras
import numpy as np
import pandas as pd
import pytest
from exhaustive import sample_of

from tfp_fnspace.model import epochs_ahead, gradient

X = np.random.default_rng(0).normal(size=(12, 4))
Y = X[:, :2] + 1.0
NEW = pd.DataFrame(X[::-1] + 0.1, columns=list("abcd"))

#: One model of each method.
FIVE = ("TAGI", "fBNN", "DIWP", "SIP", "stable_process")


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory):
    """Returns the module, which stores in a database and a folder of this test alone."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("mlflow.tensorflow")
    pytest.importorskip("tensorboard")  # autolog writes its logs
    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.create_experiment("tests", artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment("tests")
    yield mlflow
    mlflow.tensorflow.autolog(disable=True)
    mlflow.set_tracking_uri(before)
    mlflow.tracking.fluent._active_experiment_id = None  # it belongs to the other store
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)


def logged(mlflow, run_id, name):
    """Returns what a store has of a metric, in the order of the epochs."""
    history = mlflow.MlflowClient().get_metric_history(run_id, name)
    return [metric.value for metric in sorted(history, key=lambda metric: metric.step)]


def check_run(mlflow, run_id, history, first="loss"):
    """Checks that a store has each number of a `History`, and the optimizer."""
    assert first in history.history
    for name, values in history.history.items():
        np.testing.assert_allclose(logged(mlflow, run_id, name), values, rtol=1e-6)
    params = mlflow.get_run(run_id).data.params
    has_rate = isinstance(history.model.optimizer, keras.optimizers.Optimizer)
    assert has_rate or params["opt_name"] == "none"
    assert ("opt_learning_rate" in params) == has_rate


def check_loaded(mlflow, uri, model):
    """Checks that a model from a store predicts a frame as the model does."""
    served, expected = mlflow.pyfunc.load_model(uri).predict(NEW), model.predict(NEW)
    assert set(served) == set(expected) > {"mean", "stddev"}
    for name, values in expected.items():
        np.testing.assert_allclose(served[name], values, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIVE)
def test_mlflow_logs_stores_and_loads(name, mlflow, monkeypatch):
    model = batteries.ALL_MODELS[name]()
    with mlflow.start_run() as run:
        callback = mlflow.tensorflow.MlflowCallback()
        history = batteries.fit(model, X, Y, epochs=3, callbacks=[callback])
        signature = mlflow.models.infer_signature(X, model.predict(X))
        requirements = {"pip_requirements": ["tfp_fnspace"]}  # otherwise it looks for them
        info = mlflow.tensorflow.log_model(model, name="m", signature=signature, **requirements)
    check_run(mlflow, run.info.run_id, history)
    check_loaded(mlflow, info.model_uri, model)

    monkeypatch.setattr("mlflow.models.infer_pip_requirements", lambda *_, **__: ["tfp_fnspace"])
    mlflow.tensorflow.autolog(silent=True)
    try:
        history = batteries.fit(model, X, Y, epochs=2)
    finally:
        mlflow.tensorflow.autolog(disable=True)
    run_id = mlflow.last_active_run().info.run_id
    assert run_id != run.info.run_id
    check_run(mlflow, run_id, history)
    names = [artifact.path for artifact in mlflow.MlflowClient().list_artifacts(run_id)]
    assert {"model_summary.txt", "tensorboard_logs"} <= set(names)
    found = mlflow.search_logged_models(
        filter_string=f"source_run_id = '{run_id}'", output_format="list"
    )
    check_loaded(mlflow, found[0].model_uri, model)


@pytest.mark.parametrize("name", ["TAGI", pytest.param("fBNN", marks=pytest.mark.slow)])
def test_autolog_leaves_the_fit_as_it_is(name, mlflow):
    plain, watched = batteries.ALL_MODELS[name](), batteries.ALL_MODELS[name]()
    expected = batteries.fit(plain, X, Y, epochs=4).history
    mlflow.tensorflow.autolog(silent=True, log_models=False)
    try:
        found = batteries.fit(watched, X, Y, epochs=4, validation_data=(X, Y)).history
        assert "val_nll" in found
    finally:
        mlflow.tensorflow.autolog(disable=True)
    assert logged(mlflow, mlflow.last_active_run().info.run_id, "val_nll") == found["val_nll"]
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)
    for ours, theirs in zip(plain.get_weights(), watched.get_weights(), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)


# Compiled epochs ---------------------------------------------------------------------------------


class WandbMetricsLogger(keras.callbacks.Callback):
    """What W&B's callback of this name reads, without its package."""

    __module__ = "wandb.integration.keras.callbacks.metrics_logger"

    def __init__(self, logging_batch_wise=False):
        super().__init__()
        self.logging_batch_wise, self.rates = logging_batch_wise, []

    def on_train_batch_end(self, batch, logs=None):
        pass

    def on_epoch_end(self, epoch, logs=None):
        self.rates.append(self.model.optimizer.learning_rate)


class Unknown(keras.callbacks.Callback):
    """A user's callback, which may look at the weights."""


class MlflowCallback(keras.callbacks.Callback):
    """What MLflow's callback of this name reads, without its package."""

    __module__ = "mlflow.tensorflow.callback"
    log_every_epoch = True

    def on_train_begin(self, logs=None):
        self.config = self.model.optimizer.get_config()

    def on_batch_end(self, batch, logs=None):
        pass


def calls_of(monkeypatch, callbacks, optimizer=None):
    """Returns how often a compiled function ran for 12 epochs; 3 calls are 1, 1 and 10 epochs."""
    made = []

    class Recorded(epochs_ahead.EpochsAhead):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(epochs_ahead, "_AHEAD_SECONDS", 1e6)
    monkeypatch.setattr(gradient, "EpochsAhead", Recorded)
    model = batteries.variational_model()
    if optimizer is not None:
        model.compile(optimizer)
    batteries.fit(model, X, Y, epochs=12, callbacks=callbacks)
    return made[0].calls if made else None


def test_loggers_let_epochs_be_computed_at_once(monkeypatch, tmp_path):
    path = tmp_path / "log.csv"
    loggers = [keras.callbacks.CSVLogger(path), MlflowCallback(), WandbMetricsLogger()]
    assert calls_of(monkeypatch, loggers) == 3
    with open(path) as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == list(range(12))


@pytest.mark.slow
def test_others_see_the_weights_of_their_epoch(monkeypatch):
    assert calls_of(monkeypatch, [Unknown()]) == 12
    # By batches there are no compiled epochs.
    assert calls_of(monkeypatch, [WandbMetricsLogger(logging_batch_wise=True)]) is None


def test_a_rate_that_is_logged_is_that_of_its_epoch(monkeypatch):
    schedule = keras.optimizers.schedules.InverseTimeDecay(0.1, 1, 1.0)
    logger = WandbMetricsLogger()
    assert calls_of(monkeypatch, [logger], keras.optimizers.SGD(schedule)) == 12
    # One step an epoch, after each of which the rate is that of the next.
    np.testing.assert_allclose(logger.rates, 0.1 / (1.0 + np.arange(1, 13)), rtol=1e-5)
    again = [MlflowCallback()]  # it does not log the rate of an epoch
    assert calls_of(monkeypatch, again, keras.optimizers.SGD(schedule)) == 3


@pytest.mark.slow
def test_tensorboard_is_a_logger_without_histograms(monkeypatch, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing import event_accumulator

    assert calls_of(monkeypatch, [keras.callbacks.TensorBoard(tmp_path)]) == 3
    events = event_accumulator.EventAccumulator(
        str(tmp_path / "train"), size_guidance={event_accumulator.TENSORS: 0}
    )
    events.Reload()
    assert len(events.Tensors("epoch_loss")) == 12
    looks = keras.callbacks.TensorBoard(tmp_path, histogram_freq=1)
    assert calls_of(monkeypatch, [looks]) == 12


# Models without an optimizer ---------------------------------------------------------------------


@pytest.mark.parametrize("name", sample_of(["TAGI", "stable_process"], ["TAGI"]))
@pytest.mark.slow
def test_no_optimizer_says_so_and_leaves_no_trace(name, tmp_path):
    model = batteries.ALL_MODELS[name]()
    batteries.fit(model, X, Y, epochs=2, callbacks=[MlflowCallback(), WandbMetricsLogger()])
    optimizer = model.optimizer
    assert not isinstance(optimizer, keras.optimizers.Optimizer)
    assert optimizer.get_config() == {"name": "none"}
    assert optimizer.learning_rate is None
    assert int(optimizer.iterations.numpy()) == int(model.counters.steps.numpy()) > 0
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    for key, value in model.predict(X).items():
        np.testing.assert_array_equal(loaded.predict(X)[key], value)
    lines = []
    model.summary(print_fn=lambda line, *_, **__: lines.append(line))
    assert lines  # the summary of Keras counts the weights of an optimizer
