"""Priors of weights as rules and as data."""

import keras
import numpy as np
import pytest
import tensorflow_probability as tfp

from tfp_fnspace.layers import priors

tfd = tfp.distributions


@pytest.mark.parametrize(
    ("rule", "scale"),
    [("fan_in", 0.5), ("he", 0.5**0.5), ("glorot", 0.1**0.5), ("standard", 1.0)],
)
def test_rules(rule, scale):
    law = priors.distribution(priors.checked(rule), 4, 16, "float64")
    assert law.dtype == "float64"
    np.testing.assert_allclose([law.mean(), law.stddev()], [0.0, scale], rtol=1e-12)
    assert priors.deserialize(priors.serialize(rule)) == rule


LAWS = {
    "Normal": lambda: tfd.Normal(0.5, 2.0),
    "integers": lambda: tfd.Normal(0, 1),
    "Laplace": lambda: tfd.Laplace(0.0, np.float32(0.5)),
    "StudentT": lambda: tfd.StudentT(df=3.0, loc=0.0, scale=1.5),
    "mixture": lambda: tfd.MixtureSameFamily(
        tfd.Categorical(probs=[0.25, 0.75]), tfd.Normal([0.0, 0.0], [0.1, 1.0])
    ),
    "Horseshoe": lambda: tfd.Horseshoe(0.7),
    "variable": lambda: tfd.Normal(0.0, keras.Variable(3.0)),
}


@pytest.mark.parametrize("name", LAWS)
def test_distributions_survive_as_data_in_any_dtype(name):
    original = LAWS[name]()
    prior = priors.checked(original)
    config = priors.serialize(prior)
    values = np.array([-1.3, 0.2, 2.0], "float32")
    for dtype in ("float32", "float64"):
        law = priors.distribution(priors.deserialize(config), 3, 3, dtype)
        assert law.dtype == dtype
        ours = priors.log_prob(law, values.astype(dtype))
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, original.log_prob(values), rtol=1e-5)


def test_other_distributions_work_but_are_not_saved():
    flow = tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfp.bijectors.Scale(2.0))
    law = priors.distribution(priors.checked(flow), 1, 1, "float64")
    expected = tfd.Normal(0.0, 2.0).log_prob([0.5])
    np.testing.assert_allclose(priors.log_prob(law, np.array([0.5])), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="saved by the name.*Received: prior"):
        priors.serialize(flow)


@pytest.mark.parametrize(
    ("prior", "error", "message"),
    [
        ("lecun", ValueError, "prior='lecun'"),
        (1.0, TypeError, "prior=1.0"),
        (tfd.Normal([0.0, 1.0], 1.0), ValueError, r"batch_shape=\(2,\)"),
        (tfd.MultivariateNormalDiag([0.0], [1.0]), ValueError, r"event_shape=\(1,\)"),
        ({"class_name": "os", "parameters": {}}, ValueError, "'os'"),
    ],
)
def test_bad_priors(prior, error, message):
    with pytest.raises(error, match=message):
        priors.checked(prior)
