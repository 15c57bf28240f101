"""Layers that Keras has under the same name take its arguments in its order.

What goes by position means the same as in Keras. All else is keyword-only.
"""

import inspect

import keras
import numpy as np
import pytest

import tfp_fnspace as fns

#: Our prefixes of the names of Keras's layers.
PREFIXES = ("Variational", "")


def pairs():
    """Returns {name of a public layer: (our class, Keras's class)}."""
    found = {}
    for package in (fns.layers, fns.tagi, fns.diwp):
        for name in package.__all__:
            ours = getattr(package, name)
            if not (isinstance(ours, type) and issubclass(ours, keras.layers.Layer)):
                continue
            names = (name.removeprefix(prefix) for prefix in PREFIXES)
            theirs = next(
                (getattr(keras.layers, n) for n in names if hasattr(keras.layers, n)), None
            )
            if theirs not in (None, keras.layers.Layer):
                found[f"{package.__name__.split('.')[-1]}.{name}"] = (ours, theirs)
    return found


PAIRS = pairs()


def positional(cls):
    """Returns the names of the arguments that may go by position."""
    parameters = inspect.signature(cls).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def test_the_layers_are_found():
    assert {"layers.VariationalDense", "layers.VariationalConv2D", "tagi.Dense"} < set(PAIRS)
    assert len(PAIRS) > 20


@pytest.mark.parametrize("name", PAIRS)
def test_arguments_by_position_are_the_first_of_keras_in_its_order(name):
    ours, theirs = map(positional, PAIRS[name])
    assert ours == theirs[: len(ours)]


DENSE = [name for name in PAIRS if name.endswith("Dense")]


@pytest.mark.parametrize("name", DENSE)
def test_dense_layers_have_units_activation_and_use_bias_first(name):
    ours, _ = PAIRS[name]
    assert positional(ours) == ["units", "activation", "use_bias"]
    layer = ours(50, "relu", False)
    assert layer.units == 50 and not layer.use_bias
    assert ours.from_config(layer.get_config()).get_config() == layer.get_config()
    layer.build((None, 3))
    assert layer.compute_output_shape((None, 3))[-1] == 50


def test_a_variational_dense_layer_takes_its_activation_by_position():
    layer = fns.layers.VariationalDense(50, "relu")
    outputs = np.asarray(layer(np.ones((4, 3), np.float32)))
    assert outputs.shape == (1, 4, 50) and outputs.min() == 0.0


@pytest.mark.parametrize("cls", [fns.layers.VariationalLayer, fns.tagi.BilinearLayer])
def test_the_options_of_base_classes_are_keywords(cls):
    assert not positional(cls)
