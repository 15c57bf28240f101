"""A loop over models does not look to TensorFlow like a function that is traced again and again."""

import gc
import weakref

import batteries
import numpy as np
import pytest
import tensorflow as tf

X = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
Y = X[:, :2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TAGI", "variational", "stable_process"])
def test_a_loop_over_models_says_nothing_of_retracing_and_keeps_none(name, caplog, monkeypatch):
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    models = []
    for _ in range(6):
        model = batteries.ALL_MODELS[name]()
        batteries.fit(model, X, Y, epochs=1)
        model.predict(X)
        model.evaluate(X, Y, verbose=0)
        model.sample_functions(X, 2)
        models.append(weakref.ref(model))
    assert "retracing" not in caplog.text
    del model
    gc.collect()
    assert [model() for model in models] == [None] * 6


def test_the_warning_is_seen_where_one_function_is_traced_anew(caplog, monkeypatch):
    """So that the test above is one."""
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    function = tf.function(lambda x: x + 1.0)
    for size in range(1, 8):
        function(tf.zeros([size]))
    assert "retracing" in caplog.text
