"""`model.check`: what it says, and that the model stays as it is."""

import batteries
import keras
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tfp_fnspace as fns
from tfp_fnspace.model.check_up import PeakMemory

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = np.stack([X[:, 0] + 0.3 * RNG.normal(size=60), 20.0 + 5.0 * X[:, 1]], axis=1)


def state(model):
    return [weight.numpy() for weight in model.weights] if model.has_shapes else []


@pytest.mark.slow
@pytest.mark.parametrize("kind", batteries.KINDS)
def test_nothing_is_wrong_and_nothing_changes(kind):
    model = batteries.ALL_MODELS[kind]()
    before = state(model)
    found = model.check(X, Y)
    assert found.warnings == []
    text = str(found)
    assert "60 rows" in text and "2 target columns" in text and "Nothing looks wrong." in text
    assert "s for an epoch of" in text and "After three epochs" in text
    assert model.has_shapes == bool(before)
    for old, new in zip(before, state(model), strict=True):
        assert_array_equal(old, new)
    assert not (model.has_shapes and model.counters.has_steps)


@pytest.mark.slow
def test_a_check_does_not_change_the_fit():
    checked, other = batteries.variational_model(), batteries.variational_model()
    checked.check(X, Y)
    for model in (checked, other):
        batteries.fit(model, X, Y, epochs=2)
    assert_array_equal(checked.predict(X)["mean"], other.predict(X)["mean"])


def test_fitted_model_is_looked_at_as_it_is():
    model = batteries.tagi_model()
    model.fit(X, Y, epochs=3, verbose=0)
    before = state(model)
    text = str(model.check(X, Y))
    assert "Predictions after its training so far" in text
    for old, new in zip(before, state(model), strict=True):
        assert_array_equal(old, new)


def network(num_outputs=1, num_inputs=4):
    inputs = keras.Input((num_inputs,))
    return inputs, fns.layers.VariationalDense(num_outputs)(inputs)


def warnings_of(x, y, num_outputs=1, **options):
    model = fns.fbnn.VariationalModel(network(num_outputs, x.shape[1]), seed=0, **options)
    return "\n".join(model.check(x, y).warnings)


@pytest.mark.slow
def test_columns_that_are_odd():
    x = X.copy()
    x[:, 1] = 7.0
    x[3, 2] = 1e6
    found = warnings_of(np.tile(x, (10, 1)), np.tile(Y[:, 0], 10))
    assert "Input column 1: all values are equal" in found
    assert "Input column 2: a value is over 20 standard deviations" not in found  # ten of them
    found = warnings_of(np.concatenate([np.tile(X, (10, 1)), x[3:4]]), np.tile(Y[:, 0], 11)[:601])
    assert "Input column 2: a value is over 20 standard deviations from the mean" in found


@pytest.mark.slow
def test_names_of_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(c=1.0)
    assert "Input column 'c': all values are equal" in warnings_of(frame, Y[:, 0])


@pytest.mark.slow
def test_scales_without_standardisation():
    found = warnings_of(X * [1.0, 1.0, 1e3, 1.0], Y[:, :1] * 1e3, standardize=False)
    assert "Input column 2: the scale is far from 1" in found
    assert "The target: the standard deviation is" in found
    assert "narrower than the targets" in found
    assert warnings_of(X, Y[:, :1], standardize=False) == ""
    assert "wider than the targets" in warnings_of(X, Y[:, :1] * 0.01, standardize=False)


@pytest.mark.slow
def test_targets_of_another_kind():
    counts = np.tile(np.arange(6.0), 10)
    assert "The target takes 6 whole values only" in warnings_of(X, counts)
    assert warnings_of(X, counts, likelihood=fns.likelihoods.Poisson()) == ""
    heavy = np.exp(RNG.normal(size=600))
    heavy[7] = 1e4
    found = warnings_of(RNG.normal(size=(600, 4)), heavy)
    assert "over 20 standard deviations" in found and "StudentT, LogNormal or Gamma" in found
    assert "all values are equal" in warnings_of(X, np.full(60, 2.5))


def test_labels():
    labels = np.array([0, 1] * 29 + [2, 2])
    likelihood = fns.likelihoods.Categorical()
    assert "Of label 2 there are fewer than 5 rows" in warnings_of(
        X, labels, 3, likelihood=likelihood
    )
    found = fns.fbnn.VariationalModel(network(3), likelihood=likelihood, seed=0).check(X, labels)
    assert "mean probabilities 0." in str(found)


def test_few_rows():
    assert "fewer rows, 60, than inputs, 80" in warnings_of(RNG.normal(size=(60, 80)), Y[:, 0])


def test_weights_that_nothing_reaches():
    inputs = keras.Input((4,))
    hidden = fns.layers.VariationalDense(3, activation="relu", name="dead")(inputs)
    outputs = fns.layers.VariationalDense(1)(0.0 * keras.ops.stop_gradient(hidden))
    model = fns.fbnn.VariationalModel((inputs, outputs), seed=0, kl_weight=0.0)
    assert "No gradient reaches the weights" in "\n".join(model.check(X, Y[:, 0]).warnings)


def test_loss_that_is_not_finite():
    inputs = keras.Input((4,))
    outputs = fns.layers.VariationalDense(1)(keras.ops.log(inputs - 100.0))
    found = fns.fbnn.VariationalModel((inputs, outputs), seed=0).check(X, Y[:, 0]).warnings
    assert any("not finite" in text for text in found)


def test_bad_data_are_errors():
    model = batteries.tagi_model()
    with pytest.raises(ValueError, match="`check` must be given arrays"):
        model.check(iter([(X, Y)]), None)
    with pytest.raises(ValueError, match="`x` must be finite"):
        model.check(np.where(X > 1.0, np.nan, X), Y)


def test_peak_memory():
    peak = PeakMemory()
    if peak.grown() is None:
        pytest.skip("the peak of a process is known on Linux only")
    held = np.ones(30_000_000)
    assert held.sum() == 3e7
    del held
    assert 2.0e8 < peak.grown() < 4.0e8
