"""Models around fitted models behave as these do with their rows."""

import numpy as np
import pandas
import pytest
import toys

import tfp_fnspace as fns
from tfp_fnspace import calibration, stacking, warping

GENERATOR = np.random.default_rng(0)
FRAME = pandas.DataFrame(GENERATOR.normal(size=(40, 2)), columns=["age", "height"])
Y = pandas.DataFrame({"weight": FRAME["age"] + 0.1 * GENERATOR.normal(size=40)})


def member():
    model = toys.LinearModel(2, 1, fns.likelihoods.Gaussian(0.3), seed=0)
    model.fit(FRAME, Y, epochs=1, verbose=0)
    return model


def warped(model):
    return warping.WarpedModel(model, [0.0], [1.0], [1.0])


def stacked(model):
    return stacking.StackedModel([model, model], [0.5, 0.5])


def calibrated(model):
    return calibration.CalibratedModel(model, calibration.Scaling([1.0]))


WRAPPERS = {"warped": warped, "stacked": stacked, "calibrated": calibrated}


@pytest.mark.parametrize("name", WRAPPERS)
def test_columns_are_those_of_the_member(name):
    model = WRAPPERS[name](member())
    assert (model.column_names, model.target_names) == (["age", "height"], ["weight"])
    with pytest.raises(ValueError, match="in their order.*Received: columns=.*'height', 'age'"):
        model.predict(FRAME[["height", "age"]])


@pytest.mark.parametrize("name", WRAPPERS)
def test_numbers_that_float32_would_round_reach_the_member(name):
    """At 1e8, float32 has multiples of 8 only."""
    x, far = FRAME.to_numpy(), np.array([1e8, 1e6])
    inner = toys.LinearModel(2, 1, fns.likelihoods.Gaussian(0.3), seed=0)
    inner.fit(far + x, Y.to_numpy(), epochs=1, verbose=0)
    predicted = WRAPPERS[name](inner).predict(far + x)["mean"]
    correlation = np.corrcoef(predicted[:, 0], inner.predict(far + x)["mean"][:, 0])[0, 1]
    assert correlation > 0.999  # a warp bends the line a little


@pytest.mark.parametrize("name", WRAPPERS)
def test_exports_take_the_dtype_of_the_member(name):
    inner = fns.stable_process.StableProcessModel(seed=0)
    inner.adapt(FRAME.to_numpy(), Y.to_numpy())
    assert inner.served_dtypes == ["float32"]
    assert WRAPPERS[name](inner).served_dtypes == ["float32"]


@pytest.mark.parametrize("name", WRAPPERS)
def test_functions_are_joint_or_smooth_as_those_of_the_member(name):
    inner = member()
    model = WRAPPERS[name](inner)
    assert (model.draws_jointly, model.draws_smooth_functions) == (False, True)
    inner.draws_jointly, inner.draws_smooth_functions = True, False
    model = WRAPPERS[name](inner)
    assert (model.draws_jointly, model.draws_smooth_functions) == (True, False)
