"""Refusals of the stable process's samplers and model, and the size of a model's file."""

import os
import warnings

import numpy as np
import pytest
import stable_models
import tensorflow as tf

from tfp_fnspace.methods.stable_process import hyperplanes, samplers, store
from tfp_fnspace.methods.stable_process.samplers import ChainState, Settings

X = np.linspace(-2.0, 2.0, 6)[:, np.newaxis]
Y = np.where(X > 0.0, 2.0, -1.0)
PARTITION = hyperplanes.exact(X)
SIGNS, Q = PARTITION.signs(X), PARTITION.probabilities
TARGETS = np.repeat(Y.T, 2, axis=0)


def make_model(**options):
    """Makes a model whose sampler compiles quickly, because nothing here depends on the sampler."""
    small = {"num_chains": 2, "sweeps_per_epoch": 20, "burn_in": 0, "partition": "exact"}
    small |= {"sampler": "metropolis", "seed": 3}
    return stable_models.make_model(**{**small, **options})


def fit(model, epochs=1, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The chains")
        return model.fit(X, Y, epochs=epochs, verbose=0, **options)


# Samplers ----------------------------------------------------------------------------------------

BAD_ARRAYS = {
    "nan": (
        {"targets": TARGETS * np.nan},
        r"`targets` must be finite\. .* 12 NaN .* at \[0, 0\]",
    ),
    "infinite": ({"targets": TARGETS + np.inf}, r"`targets` must be finite"),
    "rows": ({"targets": TARGETS[:, :4]}, r"shape \[B, 6\].*Received: targets\.shape=\(2, 4\)"),
    "rank": ({"targets": Y[:, 0]}, r"`targets` must have shape.*targets\.shape=\(6,\)"),
    "no_chains": ({"targets": TARGETS[:0]}, r"B at least 1.*targets\.shape=\(0, 6\)"),
    "atoms": ({"signs": SIGNS[:, :3]}, r"`probabilities` must have shape \[3\]\. Received: .*\(6,"),
    "no_rows": ({"signs": SIGNS[:0]}, r"`signs` must have shape \[N, L\].*\(0, 6\)"),
    "zero_sign": ({"signs": 0 * SIGNS}, r"`signs` must be -1 or \+1\. Received: signs with 36"),
    "negative_q": ({"probabilities": -Q}, r"`probabilities` must be positive with sum 1\. Rec"),
    "sum_of_q": ({"probabilities": 2.0 * Q}, r"`probabilities` must be positive.*with sum 2,"),
    "nan_q": ({"probabilities": Q * np.nan}, r"`probabilities` must be positive.*smallest nan"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_problems_are_checked(case):
    arrays, message = BAD_ARRAYS[case]
    with pytest.raises(ValueError, match=message):
        samplers.make_problem(**{"signs": SIGNS, "probabilities": Q, "targets": TARGETS, **arrays})


def test_targets_must_be_numbers():
    with pytest.raises(TypeError, match=r"`targets` must be an array of real numbers\. Received"):
        samplers.make_problem(SIGNS, Q, "a")


@pytest.fixture(scope="module")
def problem():
    return samplers.make_problem(SIGNS, Q, TARGETS)


def make_state(problem, **options):
    options = {"seed": [1, 2], "alpha": 1.1, "nu": 1.0, "noise_variance": 0.1, **options}
    return samplers.initial_state(problem=problem, **options)


BAD_STARTS = {
    "alpha_zero": ({"alpha": 0.0}, r"`alpha` must be in \(0, 2\]\. Received: alpha=0"),
    "alpha_large": ({"alpha": [1.0, 2.5]}, r"`alpha` must be in \(0, 2\]\. Received: alpha=2\.5"),
    "alpha_nan": ({"alpha": np.nan}, r"`alpha` must be in \(0, 2\]\. Received: alpha=nan"),
    "chains": ({"alpha": [1.0] * 3}, r"shape \[2\], one for each chain\. Received: alpha.*\(3,\)"),
    "nu": ({"nu": 0.0}, r"`nu` must be positive and finite\. Received: nu=0"),
    "nu_infinite": ({"nu": np.inf}, r"`nu` must be positive and finite\. Received: nu=inf"),
    "noise": ({"noise_variance": -1.0}, r"`noise_variance` must be positive.*noise_variance=-1"),
    "seed": ({"seed": [1, 2, 3]}, r"`seed` must be an integer or two integers\. Received"),
}


@pytest.mark.parametrize("case", BAD_STARTS)
def test_starts_are_checked(problem, case):
    options, message = BAD_STARTS[case]
    with pytest.raises(ValueError, match=message):
        make_state(problem, **options)


def test_a_start_is_drawn_from_an_integer_seed_and_single_precision(problem):
    alpha = tf.constant([1.0, 1.5])
    first, second = (make_state(problem, seed=3, alpha=alpha) for _ in range(2))
    np.testing.assert_array_equal(first.log_scales, second.log_scales)
    np.testing.assert_array_equal(first.alpha, [1.0, 1.5])


BAD_SETTINGS = {
    "infer_noise": ({"infer_noise": "yes"}, r"`infer_noise` must be a boolean\. Rec.*='yes'"),
    "noise_prior": ({"noise_prior": "flat"}, r"`noise_prior` must be one of.*'flat'"),
    "noise_df": ({"noise_df": 0.0}, r"`noise_df` must be a positive finite number.*=0\.0"),
    "alpha_range": ({"alpha_range": (0.0, 3.0)}, r"`alpha_range` must be an interval.*3\.0\)"),
    "one_end": ({"alpha_range": 1.0}, r"`alpha_range` must be an interval.*alpha_range=1\.0"),
    "outside": ({"alpha_range": (1.5, 2.0)}, r"`state\.alpha` must be inside.*state\.alpha=1\.1"),
    "nu_prior": ({"nu_prior": (0.0, 0.0)}, r"`nu_prior` must be the mean and the positive"),
    "proposals": ({"proposals": 0}, r"`proposals` must be a positive integer.*=0"),
    "relocations": ({"relocations": -1}, r"`relocations` must be a non-negative integer.*=-1"),
    "adapt_for": ({"adapt_for": 1.5}, r"`adapt_for` must be a non-negative integer.*=1\.5"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_settings_are_checked_by_what_runs(problem, case):
    options, message = BAD_SETTINGS[case]
    state, settings = make_state(problem), Settings(**options)
    with pytest.raises(ValueError, match=message):
        samplers.run([1, 2], state, problem, settings, count=1, thin=1)
    with pytest.raises(ValueError, match=message):
        kernel = samplers.StableProcessKernel(problem, settings)
        kernel.bootstrap_results(state)


BAD_RUNS = {
    "count": ({"count": 0}, ValueError, r"`count` must be a positive integer.*count=0"),
    "thin": ({"thin": 0}, ValueError, r"`thin` must be a positive integer.*thin=0"),
    "seed": ({"seed": "a"}, ValueError, r"`seed` must be an integer or two.*seed='a'"),
    "problem": ({"problem": None}, TypeError, r"`problem` must be a Problem\. Received: .*NoneT"),
    "settings": ({"settings": {}}, TypeError, r"`settings` must be a Settings\. Received: .*dict"),
    "state": ({"state": None}, TypeError, r"`state` must be a ChainState or a list of its parts"),
    "name": ({"one_step": "hmc"}, TypeError, r"`one_step` must be a function.*one_step='hmc'"),
}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_runs_are_checked(problem, case):
    options, error, message = BAD_RUNS[case]
    state = make_state(problem)
    good = {"seed": [1, 2], "state": state, "problem": problem, "settings": Settings()}
    with pytest.raises(error, match=message):
        samplers.run(**{**good, "count": 1, "thin": 1, **options})


def test_state_of_another_problem_is_refused(problem):
    other = make_state(samplers.make_problem(SIGNS, Q, TARGETS[:1]))
    message = r"`state\.u` must have shape \(2, 6\) for this problem\. Received: .*=\(1, 6\)"
    with pytest.raises(ValueError, match=message):
        samplers.run([1, 2], other, problem, Settings(), count=1, thin=1)
    kernel = samplers.StableProcessKernel(problem, Settings())
    with pytest.raises(ValueError, match=message):
        kernel.bootstrap_results(list(other))
    with pytest.raises(TypeError, match=r"`state` must be a ChainState or a list of its parts"):
        kernel.bootstrap_results(list(other)[:3])


def test_hyperplanes_of_a_partition_must_be_finite():
    with pytest.raises(ValueError, match=r"`hyperplanes` must be finite.*with 12 other values"):
        hyperplanes.Partition(PARTITION.hyperplanes * np.nan, Q, "exact")


# The model ---------------------------------------------------------------------------------------

BAD_OPTIONS = {
    "standardize": ({"standardize": "yes"}, r"`standardize` must be True, False or None.*'yes'"),
    "partition": ({"partition": {}}, r"`partition` must be one of.*partition=\{\}"),
    "burn_in": ({"burn_in": "a"}, r"`burn_in` must be a non-negative integer\. Rec.*burn_in='a'"),
    "alpha": ({"alpha": "ab"}, r"`alpha` must be 'infer', a Uniform or in .*alpha='ab'"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_options_are_checked(case):
    options, message = BAD_OPTIONS[case]
    with pytest.raises(ValueError, match=message):
        make_model(**options)


BAD_SEARCHES = {
    "burn_in": ({"burn_in": "a"}, r"`burn_in` must be a non-negative integer\. Rec.*burn_in='a'"),
    "fraction": ({"burn_in": 0.5}, r"`burn_in` must be a non-negative integer.*burn_in=0\.5"),
    "too_long": ({"burn_in": 2}, r"`burn_in` must leave at least one epoch.*burn_in=2 with epoc"),
    "epochs": ({"epochs": 0}, r"`epochs` must be a positive integer\. Received: epochs=0"),
    "alpha_zero": ({"alphas": (0.0, 1.0)}, r"`alphas` must be numbers in \(0, 2\], one.*\(0\.0, 1"),
    "alpha_large": ({"alphas": [2.5]}, r"`alphas` must be numbers in \(0, 2\].*alphas=\[2\.5\]"),
    "alpha_nan": ({"alphas": np.nan}, r"`alphas` must be numbers in \(0, 2\].*alphas=nan"),
    "alpha_word": ({"alphas": ["infer", 1.0]}, r"`alphas` must be numbers.*'infer', 1\.0\]"),
    "no_alphas": ({"alphas": []}, r"`alphas` must be numbers in \(0, 2\], one at least.*\[\]"),
    "nus": ({"nus": np.array([1.0, -1.0])}, r"`nus` must be positive finite numbers.*-1"),
    "nu_infinite": ({"nus": np.inf}, r"`nus` must be positive finite numbers.*nus=inf"),
}


@pytest.mark.parametrize("case", BAD_SEARCHES)
def test_cross_validation_is_checked(case):
    options, message = BAD_SEARCHES[case]
    model = make_model()
    small = {"alphas": 1.0, "nus": 1.0, "num_folds": 2, "epochs": 2, "burn_in": 1}
    with pytest.raises(ValueError, match=message):
        model.cross_validate(X, Y, **{**small, **options})
    assert (model.alpha, model.nu) == (1.1, 1.0)


BAD_FITS = {
    "epochs": ({"epochs": None}, r"`epochs` must be a positive integer\. Received: epochs=None"),
    "initial_epoch": ({"initial_epoch": -1}, r"`initial_epoch` must be a non-negative.*=-1"),
    "split": ({"validation_split": "a"}, r"`validation_split` must leave rows.*='a' with 6 rows"),
    "validation": ({"validation_data": X}, r"`validation_data` must be a pair.*Received: ndarray"),
}


@pytest.mark.parametrize("case", BAD_FITS)
def test_fit_is_checked(case):
    options, message = BAD_FITS[case]
    model = make_model()
    with pytest.raises(ValueError, match=message):
        fit(model, **options)
    assert model.store is None


@pytest.mark.parametrize("method", ["predict_quantiles", "function_quantiles"])
def test_levels_are_checked_before_all_else(method):
    use = getattr(make_model(), method)
    for levels in (np.nan, 0.0, 1.2, [], [[0.1, 0.2]], [0.5, np.inf]):
        with pytest.raises(ValueError, match=r"`levels` must lie strictly in \(0, 1\).*levels="):
            use(X, levels)
    for levels in ("a", [0.1, "b"], {"a": 1.0}, 1j, [[0.1], [0.2, 0.3]]):
        with pytest.raises(TypeError, match=r"`levels` must be an array of real numbers\. Rec"):
            use(X, levels)


# Files -------------------------------------------------------------------------------------------


def sizes_for(num_atoms, chains=8, rows=188):
    """Returns the sizes of a store from shapes alone; the patterns do not matter."""
    wide, narrow = tf.zeros([chains, num_atoms], tf.float64), tf.zeros([chains], tf.float64)
    state = ChainState(
        u=wide,
        log_scales=wide,
        log_noise=narrow,
        noise_weights=tf.zeros([chains, rows], tf.float64),
        alpha=narrow,
        log_nu=narrow,
        log_steps=tf.zeros([chains, 3], tf.float64),
        iteration=tf.constant(0),
    )
    x, y = np.zeros((rows, 2)), np.zeros((rows, 1))
    partition = hyperplanes.sampled(2, num_atoms, seed=0)
    return store.sizes_of(partition, x, y, x[:0], state, chains, max_draws=100_000)


# The exact partition of 188 points in the plane has 17,579 atoms.
@pytest.mark.parametrize("num_atoms", [1000, 2000, 10_000, 17_579])
def test_draws_fill_the_room_that_a_file_has(num_atoms):
    layer = store.ChainStore(sizes_for(num_atoms))
    size = sum(np.prod(w.shape) * np.dtype(w.dtype).itemsize for w in layer.weights)
    assert 0.99 * store.MAX_BYTES < size <= store.MAX_BYTES


def test_a_model_that_cannot_be_small_says_so(monkeypatch):
    monkeypatch.setattr(store, "MAX_BYTES", 400_000)
    with pytest.warns(UserWarning, match=r"2000 atoms and 8 chains takes more than 0\.4 MB even"):
        assert sizes_for(2000)["capacity"] == 4


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.slow
def test_file_and_export_hold_each_draw_once(monkeypatch, tmp_path, given):
    monkeypatch.setattr(store, "MAX_BYTES", 1_000_000)
    partition = hyperplanes.sampled(1, 2000, seed=0) if given else "sampled"
    model = make_model(partition=partition)
    fit(model)
    model.save(tmp_path / "m.keras")
    assert 0.9e6 < os.path.getsize(tmp_path / "m.keras") < 1.05e6
    model.export(tmp_path / "served", num_samples=5)
    exported = sum(f.stat().st_size for f in (tmp_path / "served").rglob("*") if f.is_file())
    assert exported < 1.1e6


@pytest.mark.slow
def test_clients_send_single_precision(tmp_path):
    model = make_model()
    fit(model)
    model.export(tmp_path / "served", num_samples=5)
    serve = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    assert serve.structured_input_signature[1]["x"].dtype == tf.float32
    x = np.random.default_rng(0).uniform(-2.0, 2.0, (50, 1))
    expected = model.predict(np.float32(x))["mean"]
    np.testing.assert_allclose(
        serve(x=tf.constant(x, tf.float32))["mean"], expected, rtol=1e-5, atol=1e-6
    )
