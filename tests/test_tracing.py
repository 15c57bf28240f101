"""What is traced for a model: loops over models raise no warnings and leave nothing behind."""

import gc
import logging
import weakref

import batteries
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from elsewhere import run_elsewhere
from exhaustive import sample_of
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from tfp_fnspace import tracing

X = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
Y = X[:, :2]


def _held():
    """Returns the names of the functions and of the custom gradients that TensorFlow has."""
    gc.collect()
    gradients = {name for name in ops.gradient_registry.list() if name.startswith("CustomGradient")}
    names = map(tf.compat.as_str, context.context().list_function_names())
    # TensorFlow makes one for each operation that it runs by itself.
    return gradients | {name for name in names if not name.startswith("__wrapped__")}


def loops_over_models(*loops):
    """Checks that each model is collected, and that nothing traced for it stays.

    Args:
        *loops: Strings, each a name of a model and a count; at the sixth TensorFlow warns.
    """
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    for name, count in (loop.split() for loop in loops):
        models, held = [], []
        for _ in range(int(count)):
            model = batteries.ALL_MODELS[name]()
            if name == "TAGI":
                model.compile(jit_compile=False)  # XLA would take seconds for each
            batteries.fit(model, X, Y, epochs=1)
            model.predict(X)
            model.evaluate(X, Y, verbose=0)
            model.sample_functions(X, 2)
            models.append(weakref.ref(model))
            del model
            held.append(_held())
        assert not any(model() for model in models), name
        # The first model brings chains, which all models share.
        assert held[-1] <= held[0], (name, held[-1] - held[0])
    assert not any("retracing" in message for message in said), said


@tf.custom_gradient
def _seven_times(x):
    """Returns x with the gradient of 7 x; that gradient needs a tensor of the graph."""
    ones = tf.ones_like(x)
    return tf.identity(x), lambda upstream: 7.0 * ones * upstream


def _loop(x):
    softplus = tfp.bijectors.Softplus()
    values = tf.while_loop(
        lambda step, _: step < 3,
        lambda step, values: (step + 1, _seven_times(values)),
        (tf.constant(0), softplus.forward(x)),
    )[1]
    return tf.cond(x > 0.0, lambda: softplus.inverse(_seven_times(values)), lambda: 1.0 * values)


def _value_and_gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    return value, tape.gradient(value, x)


def graphs_are_collected():
    """Checks that traced graphs with custom gradients go when nobody uses them."""
    before = _held()
    function, another = tracing.traced(_loop), tracing.traced(_loop)
    function(tf.constant(2.0)), another(tf.constant(2.0))
    del another
    assert _held() - before
    # The other function's gradients are gone, but not this one's, nor those that only the graph
    # holds.
    value, gradient = _value_and_gradient(function, tf.constant(2.0))
    np.testing.assert_allclose([value, gradient], [2.0, 7.0**4], rtol=1e-5)
    del function
    assert _held() <= before


#: One model for each way to trace: epochs of moments, epochs of gradients, chains that all share.
IN_ALL = ("TAGI 6", "stable_process 6", "variational 2")
OTHERS = (
    "variational 6",
    *(f"{name} 2" for name in batteries.MODELS_BY_GRADIENTS if name != "variational"),
)

ALONE = """
import sys
import test_tracing
test_tracing.graphs_are_collected()
test_tracing.loops_over_models(*sys.argv[1:])
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("loops", sample_of([IN_ALL, OTHERS], [IN_ALL]), ids=["some", "others"])
def test_a_loop_over_models_says_nothing_of_retracing_and_keeps_none(loops):
    """The loop runs in its own process, where no other test holds anything."""
    run_elsewhere(ALONE, *loops)


def test_tensorflow_keeps_custom_gradients():
    """If this changes, the tests above no longer test anything, and `collectable` may go."""
    before = _held()
    tf.function(lambda x: _seven_times(x), autograph=False)(tf.constant(2.0))
    assert _held() - before


def test_the_warning_is_seen_where_one_function_is_traced_anew(caplog, monkeypatch):
    """This shows that the test of loops over models can fail."""
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    function = tf.function(lambda x: x + 1.0)
    for size in range(1, 8):
        function(tf.zeros([size]))
    assert "retracing" in caplog.text
