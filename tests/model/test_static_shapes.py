"""What a TPU asks of a step: one program of static shapes, without calls of the host."""

import re

import batteries
import numpy as np
import pytest
import tensorflow as tf
from exhaustive import sample_of

X = np.random.default_rng(0).normal(size=(28, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1).astype("float32")
MODELS = {"TAGI": batteries.tagi_model, **batteries.ALL_BY_GRADIENTS}


def program_of(function, *arguments):
    """Returns what XLA is given for tensors of these shapes, as text."""
    compiled = tf.function(function, jit_compile=True, autograph=False)
    return compiled.experimental_get_compiler_ir(*arguments)(stage="hlo")


def dynamic_shapes(program):
    """Returns the shapes with a dimension that only has a bound."""
    return re.findall(r"\w+\[[\d,]*<=[\d,<=]*\]", program)


#: Written as a call, and computed by XLA itself on every device.
OWN_CALLS = {"Eigh"}


def host_calls(program):
    """Returns the calls and transfers of a program that leave the device."""
    return set(re.findall(r'custom_call_target="([^"]*)"', program)) - OWN_CALLS | set(
        re.findall(r"\b(infeed|outfeed|send|recv)\(", program)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(MODELS, ["DIWP", "SIP", "TAGI", "fBNN"]))
def test_steps_on_fixed_batches_have_static_shapes_only(name):
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8, drop_remainder=True)
    model = MODELS[name]()
    model.fit(data, epochs=1, verbose=0)
    x, y = next(iter(data))
    for program in (
        program_of(lambda x, y: model.train_step((x, y)), x, y),
        program_of(model.predictive_moments, x),
    ):
        assert "f32[8,4]" in program
        assert not dynamic_shapes(program)
        assert not host_calls(program)


def test_a_dynamic_shape_and_a_call_of_the_host_are_found():
    x = tf.constant([1.0, -1.0, 2.0])
    assert dynamic_shapes(program_of(lambda x: tf.boolean_mask(x, x > 0.0), x))
    assert not dynamic_shapes(program_of(lambda x: tf.nn.relu(x), x))
    assert host_calls('f32[2]{0} custom-call(), custom_call_target="printed"') == {"printed"}
    assert host_calls("token[] outfeed(f32[2]{0} x)") == {"outfeed"}
