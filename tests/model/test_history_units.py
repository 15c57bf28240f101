"""`History` of every model is in the user's units: other units of y change it as they should."""

import batteries
import keras
import numpy as np
import pytest
from exhaustive import sample_of

MODELS = {**batteries.ALL_MODELS, **batteries.ALL_BY_GRADIENTS}
UNITS = np.array([100.0, 0.01 / np.e])

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(24, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)


def history_of(make, unit):
    keras.utils.set_random_seed(0)  # networks that are given to a model start from it
    model = make()
    if isinstance(getattr(model, "optimizer", None), keras.optimizers.Optimizer):
        model.compile(model.optimizer, run_eagerly=True)
    return batteries.fit(model, X, unit * Y + unit, batch_size=12, epochs=2).history


#: Models that take the least time; the others use the same two loops.
FAST = ("TAGI", "variational", "SIP")


@pytest.mark.parametrize("name", sample_of(MODELS, FAST))
@pytest.mark.slow
def test_a_log_density_loses_the_logarithm_of_the_units_and_nothing_else_changes(name):
    ours, theirs = (history_of(MODELS[name], unit) for unit in (1.0, UNITS))
    shift = np.log(UNITS).sum()  # -1
    expected = {"log_likelihood": -shift, "elbo": -shift, "loss": shift}
    assert set(ours) == set(theirs) and {"loss", "log_likelihood"} <= set(ours)
    for key, values in ours.items():
        if key.startswith("discriminator"):  # it amplifies rounding
            continue
        if key in ("rmse", "noise_scale"):  # means over columns, of which the first is large
            assert 20.0 < theirs[key][0] / values[0] < 100.0, key
            continue
        np.testing.assert_allclose(
            theirs[key], np.array(values) + expected.get(key, 0.0), rtol=2e-3, atol=2e-3
        )
