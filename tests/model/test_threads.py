"""One model in several threads: who waits, who does not, and that nobody waits for ever."""

import threading

import batteries
import keras
import numpy as np
import pytest

X = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)
OPTIONS = {"batch_size": 8, "verbose": 0}


class Paused(keras.callbacks.Callback):
    """Holds a `fit` at the end of its first epoch until it may go on."""

    def __init__(self):
        super().__init__()
        self.is_there, self.may_go_on = threading.Event(), threading.Event()

    def on_epoch_end(self, epoch, logs=None):
        self.is_there.set()
        assert epoch or self.may_go_on.wait(60)


def started(target, *args, **options):
    thread = threading.Thread(target=target, args=args, kwargs=options, daemon=True)
    thread.start()
    return thread


def variational_model():
    """Makes a model whose weights are all its state: the optimizer keeps nothing."""
    model = batteries.variational_model()
    model.compile(keras.optimizers.SGD(0.01))
    return model


@pytest.fixture(scope="module", params=[batteries.tagi_model, variational_model])
def make(request):
    return request.param


@pytest.fixture(scope="module")
def model(make):
    model = make()
    model.fit(X, Y, **OPTIONS)
    return model


@pytest.mark.slow
def test_fit_waits_for_a_fit_in_another_thread(model):
    pause, steps = Paused(), int(model.counters.steps.numpy())
    first = started(model.fit, X, Y, epochs=2, callbacks=[pause], **OPTIONS)
    assert pause.is_there.wait(60)
    second = started(model.fit, X, Y, epochs=2, **OPTIONS)
    second.join(0.3)
    assert second.is_alive()
    assert model.counters.steps.numpy() == steps + 3
    pause.may_go_on.set()
    first.join(60)
    second.join(60)
    assert not first.is_alive() and not second.is_alive()
    assert model.counters.steps.numpy() == steps + 12


@pytest.mark.slow
def test_evaluation_during_a_fit_waits_for_no_end_and_changes_no_history(model):
    start = model.get_weights()
    options = {**OPTIONS, "epochs": 2, "validation_data": (X[:9], Y[:9])}
    expected = model.fit(X, Y, **options).history
    model.set_weights(start)
    pause, found = Paused(), {}
    thread = started(lambda: found.update(model.fit(X, Y, callbacks=[pause], **options).history))
    assert pause.is_there.wait(60)
    scores = [model.evaluate(X[:5], Y[:5], verbose=0) for _ in range(2)]
    assert scores[0] == scores[1]
    assert np.all(np.isfinite(model.predict(X)["stddev"]))
    pause.may_go_on.set()
    thread.join(60)
    assert sorted(found) == sorted(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, err_msg=name)


@pytest.mark.slow
def test_callbacks_of_a_fit_may_evaluate_between_its_batches(model):
    class Batches(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            pass

    class Evaluates(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.evaluate(X[:5], Y[:5], verbose=0)

    start, histories = model.get_weights(), []
    for callback in (Batches(), Evaluates()):
        model.set_weights(start)
        histories.append(model.fit(X, Y, callbacks=[callback], **OPTIONS).history)
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=1e-4, err_msg=name)


def test_two_models_do_not_wait_for_each_other(model, make):
    other, pause = make(), Paused()
    thread = started(model.fit, X, Y, epochs=2, callbacks=[pause], **OPTIONS)
    assert pause.is_there.wait(60)
    other.fit(X, Y, **OPTIONS)
    pause.may_go_on.set()
    thread.join(60)
    assert not thread.is_alive()
