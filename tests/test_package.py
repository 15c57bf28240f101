"""The package as a whole: what an import costs and gives, and several devices."""

import subprocess
import sys

import pytest

import tfp_fnspace as fns

IMPORTS = """
import time
import tensorflow, tensorflow_probability
tensorflow_probability.distributions.Normal, tensorflow.keras.Model
begin = time.perf_counter()
import tfp_fnspace
print(time.perf_counter() - begin)
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.slow
def test_import_is_light():
    loaded = run(
        "import sys, tensorflow, tensorflow_probability; before = set(sys.modules)\n"
        "import tfp_fnspace\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new & {'matplotlib', 'sklearn', 'pandas', 'scipy'}))"
    )
    assert loaded == "[]"


@pytest.mark.slow
def test_methods_are_modules_under_short_names():
    code = (
        "from tfp_fnspace.tagi import Dense; import tfp_fnspace.tagi as short\n"
        "import tfp_fnspace.methods.tagi as full; print(short is full and Dense is full.Dense)"
    )
    assert run(code) == "True"


def test_public_names_have_docstrings():
    for module in (fns, fns.tagi, fns.likelihoods, fns.metrics, fns.datasets, fns.plotting):
        assert module.__doc__
        for name in getattr(module, "__all__", []):
            assert getattr(module, name).__doc__, f"{module.__name__}.{name}"


DEVICES = """
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import sys
import keras
import numpy as np
import tfp_fnspace as fns

def make():
    inputs = keras.Input((3,))
    hidden = fns.tagi.Dense(5, activation="relu")(inputs)
    outputs = fns.tagi.Dense(2)(hidden)
    return fns.tagi.TAGIModel(
        inputs, outputs, likelihood=fns.likelihoods.Gaussian(0.3), standardize=False, seed=0
    )

rng = np.random.default_rng(0)
x, y = rng.normal(size=(24, 3)).astype("float32"), rng.normal(size=(24, 2)).astype("float32")
one = make()
first = one.fit(x, y, epochs=2, batch_size=8, verbose=0).history
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    two = make()
    two.compile()
second = two.fit(x, y, epochs=2, batch_size=8, verbose=0).history
for a, b in zip(one.parameter_variables, two.parameter_variables, strict=True):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
for key in first:
    np.testing.assert_allclose(first[key], second[key], rtol=1e-4)
np.testing.assert_allclose(two.predict(x)["mean"], one.predict(x)["mean"], rtol=1e-4, atol=1e-5)
print("equal")
"""


@pytest.mark.slow
def test_two_replicas_learn_what_one_learns():
    assert run(DEVICES) == "equal"
