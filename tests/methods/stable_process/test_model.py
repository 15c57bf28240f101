"""The stable process as a model: the contract, the chains across fits, cross-validation."""

import pathlib
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import stable_models
import tensorflow as tf
from elsewhere import ENVIRONMENT
from serving import serve_elsewhere

import tfp_fnspace as fns
from tfp_fnspace.methods.stable_process import draws, hyperplanes
from tfp_fnspace.methods.stable_process.chains import make_problem, warm_state
from tfp_fnspace.methods.stable_process.samplers import Draws, initial_state
from tfp_fnspace.methods.stable_process.samplers.state import log_masses
from tfp_fnspace.methods.stable_process.store import MAX_BYTES, ChainStore, sizes_of

X = np.linspace(-2.0, 2.0, 12)[:, np.newaxis]
F = np.where(X > 0.0, 2.0, -1.0)
Y = F + 0.2 * np.random.default_rng(0).normal(size=F.shape)
X_NEW = np.linspace(-2.5, 2.5, 7)[:, np.newaxis]
#: Options for tests that do not depend on the sampler: it compiles in a tenth of the time.
QUICK = {"sampler": "metropolis"}
KEYS = ("loss", "log_likelihood", "noise_scale", "alpha", "nu", "acceptance")


def make_model(**options):
    """Makes a model; all tests share the compiled code of its chains."""
    small = {"num_chains": 2, "sweeps_per_epoch": 20, "burn_in": 2, "partition": "exact"}
    return stable_models.make_model(**{**small, "seed": 3, **options})


def fit(model, x=X, y=Y, epochs=4, **options):
    """Calls `fit` without its warnings about short chains."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The chains")
        return model.fit(x, y, epochs=epochs, verbose=0, **options)


@pytest.fixture(scope="module")
def fitted():
    model = make_model()
    fit(model)
    return model


def stored(model):
    return model.store.stored("weights")


# The contract ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_history_has_the_parts_of_every_epoch_and_the_scores():
    history = fit(make_model(), validation_data=(X, F)).history
    for key in (*KEYS, "val_loss", "val_nll", "val_rmse", "val_crps", "val_coverage_90"):
        assert len(history[key]) == 4 and np.all(np.isfinite(history[key])), key
    np.testing.assert_array_equal(history["loss"], -np.array(history["log_likelihood"]))
    np.testing.assert_array_equal(history["val_loss"], history["val_nll"])
    np.testing.assert_array_equal(history["alpha"], 1.1)


@pytest.mark.slow
def test_moments_and_quantiles_are_those_of_the_stored_draws(fitted):
    values = fitted.stored_values(X_NEW)[..., 0]  # [N, S]
    outputs = fitted.predict(X_NEW)
    assert all(v.shape == (7, 1) for v in outputs.values())
    np.testing.assert_allclose(outputs["mean"][:, 0], values.mean(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs["epistemic_stddev"][:, 0], values.std(axis=1), rtol=1e-4)
    noise = fitted.store.stored("noise_scale") * Y.std()
    np.testing.assert_allclose(outputs["aleatoric_stddev"] ** 2, np.mean(noise**2), rtol=1e-5)
    medians = fitted.function_quantiles(X_NEW, 0.5)
    assert medians.shape == (7, 1, 1)
    np.testing.assert_allclose(medians[:, 0, 0], np.median(values, axis=1), rtol=1e-6)
    quantiles = fitted.predict_quantiles(X_NEW)
    assert quantiles.shape == (7, 1, 3) and np.all(np.diff(quantiles, axis=-1) > 0.0)


def test_draws_are_the_atoms_weights_on_their_signs(fitted):
    x = (X_NEW - X.mean()) / X.std()
    signs = fitted.store.partition.signs(x)
    expected = np.einsum("dcsl,nl->ncsd", stored(fitted), signs).reshape(7, -1, 1)
    values = fitted.stored_values(X_NEW)
    np.testing.assert_allclose(values, expected * Y.std() + Y.mean(), rtol=1e-4, atol=1e-4)


def test_prediction_sees_the_training_points_as_the_chains_did(fitted):
    signs = draws.atom_signs(fitted, *fitted.units.scaled(tf.constant(X))).numpy()
    np.testing.assert_array_equal(signs, fitted.store.partition.signs(fitted.store.x.numpy()))


def test_inputs_that_float32_cannot_tell_apart_are_kept_apart():
    x = 1e9 + X
    model = make_model()
    fit(model, x=x)
    assert model.store.sizes["atoms"] == 12
    np.testing.assert_allclose(model.predict(x)["mean"], model.predict(x[::-1])["mean"][::-1])
    assert np.ptp(model.predict(x)["mean"]) > 1.0


def test_function_draws_are_a_permutation_of_the_stored_ones(fitted):
    values = fitted.stored_values(X_NEW)
    samples = fitted.sample_functions(X_NEW, values.shape[1] + 3, seed=(1, 2))
    once = samples[: values.shape[1]]
    order = np.lexsort(once[:, :3, 0].T), np.lexsort(values[:3, :, 0])
    np.testing.assert_allclose(once[order[0]], values[:, order[1]].swapaxes(0, 1), rtol=1e-4)
    # Rounding in matrix products depends on the place in a block.
    np.testing.assert_allclose(samples[-3:], samples[:3], rtol=1e-5)
    parts = fitted.sample_functions(X_NEW[2:4], 5, seed=(1, 2))
    np.testing.assert_allclose(parts, samples[:5, 2:4], rtol=1e-5)
    assert np.abs(fitted.sample_functions(X_NEW, 5, seed=4) - samples[:5]).max() > 1e-3


def test_scaling_the_targets_scales_the_predictions(fitted):
    model = make_model()
    fit(model, y=50.0 * Y - 3.0)
    ours, theirs = model.predict(X_NEW), fitted.predict(X_NEW)
    np.testing.assert_allclose(ours["mean"], 50.0 * theirs["mean"] - 3.0, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours["stddev"], 50.0 * theirs["stddev"], rtol=1e-3)


def test_same_seed_same_run_another_seed_another(fitted):
    again, other = make_model(), make_model(seed=4)
    fit(again)
    fit(other)
    np.testing.assert_array_equal(stored(again), stored(fitted))
    assert np.abs(other.predict(X)["mean"] - fitted.predict(X)["mean"]).max() > 1e-3


def test_several_outputs_are_independent_processes():
    likelihood = fns.likelihoods.Gaussian([0.3, 0.4])
    model = make_model(likelihood=likelihood, **QUICK)
    fit(model, y=np.concatenate([Y, -3.0 * Y], axis=1))
    assert stored(model).shape[:2] == (2, 2)
    np.testing.assert_allclose(model.store.stored("noise_scale")[0], 0.3)
    np.testing.assert_allclose(model.store.stored("noise_scale")[1], 0.4)
    outputs = model.predict(X_NEW)
    assert outputs["mean"].shape == (7, 2)
    assert np.corrcoef(outputs["mean"].T)[0, 1] < -0.8
    distribution = model.predict_distribution(X_NEW)
    np.testing.assert_allclose(distribution.mean(), outputs["mean"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(distribution.stddev(), outputs["stddev"], rtol=1e-4)


@pytest.mark.slow
def test_student_t_noise_and_inferred_hyperparameters():
    likelihood = fns.likelihoods.StudentT(1.5, 0.3, trainable=True)
    model = make_model(alpha="infer", nu="infer", likelihood=likelihood)
    fit(model)
    alpha, nu = model.store.stored("alpha"), model.store.stored("nu")
    assert np.all((alpha > 0.2) & (alpha < 2.0)) and len(np.unique(alpha)) > 4
    assert np.all(nu > 0.0) and len(np.unique(nu)) > 4
    assert sorted(model.diagnostics()) == ["alpha", "f", "noise_scale", "nu"]
    assert np.all(np.isinf(model.predict(X)["stddev"]))  # the variance of Student's t with df <= 2
    assert np.all(np.isfinite(model.predict_quantiles(X)))


@pytest.mark.parametrize(
    ("x", "y", "options"),
    [
        # `test_one_point_is_voigt` tests the default sampler with one point.
        (X[:1], Y[:1], QUICK),
        (np.zeros((3, 1)), np.full(3, 7.0), {}),
    ],
    ids=["one_point", "equal_inputs_constant_targets"],
)
@pytest.mark.slow
def test_degenerate_data_work(x, y, options):
    model = make_model(**options)
    fit(model, x=x, y=y, epochs=3)
    assert all(np.all(np.isfinite(value)) for value in model.predict(X_NEW).values())


# The chains across fits --------------------------------------------------------------------------


def test_fit_on_the_same_data_goes_on():
    once, twice = make_model(), make_model()
    fit(once, epochs=5)
    fit(twice, epochs=1)
    fit(twice, epochs=4)
    np.testing.assert_array_equal(stored(once), stored(twice))
    assert once.store.counter("drawn") == 3 * 4


def test_draws_of_the_burn_in_are_replaced():
    model = make_model()
    counts = []
    count = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: counts.append(model.store.counter("stored"))
    )
    fit(model, epochs=5, callbacks=[count])
    assert counts == [4, 4, 4, 8, 12]


def test_saved_model_predicts_and_goes_on_the_same(tmp_path, fitted):
    fitted.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras", safe_mode=True)
    for key, value in fitted.predict(X_NEW).items():
        np.testing.assert_array_equal(loaded.predict(X_NEW)[key], value)
    original = keras.models.load_model(tmp_path / "m.keras")
    fit(original, epochs=2)
    fit(loaded, epochs=1)
    fit(loaded, epochs=1)
    np.testing.assert_array_equal(stored(loaded), stored(original))
    assert loaded.store.counter("epochs") == 6


def test_unfitted_model_and_a_given_partition_are_saved(tmp_path):
    partition = hyperplanes.sampled(1, 5, seed=0)
    model = make_model(partition=partition, alpha="infer", noise_prior="scale")
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert loaded.alpha == fns.stable_process.Uniform() and loaded.noise_prior == "scale"
    assert loaded.chains == model.chains
    np.testing.assert_array_equal(loaded.partition.hyperplanes, partition.hyperplanes)
    assert loaded.partition.kind == "sampled"


def test_restored_fit_equals_an_undisturbed_one(tmp_path):
    def stop(epoch, logs=None):
        if epoch == 3:
            raise InterruptedError("power cut")

    undisturbed, killed, restored = make_model(), make_model(), make_model()
    fit(undisturbed, epochs=5)
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    cut = keras.callbacks.LambdaCallback(on_epoch_begin=stop)
    with pytest.raises(InterruptedError, match="power cut"):
        fit(killed, epochs=5, callbacks=[backup, cut])
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    assert fit(restored, epochs=5, callbacks=[backup]).epoch == [3, 4]
    np.testing.assert_array_equal(stored(restored), stored(undisturbed))


KILLED = """
import os, sys
import keras
sys.path.insert(0, sys.argv[1])
from test_model import QUICK, fit, make_model

def cut(epoch, logs=None):
    if epoch == 3:
        os._exit(9)

model = make_model(**QUICK)
backup = keras.callbacks.BackupAndRestore(sys.argv[2])
fit(model, epochs=5, callbacks=[backup, keras.callbacks.LambdaCallback(on_epoch_begin=cut)])
"""


@pytest.mark.slow
def test_killed_process_is_restored_by_another(tmp_path):
    here, backup = str(pathlib.Path(__file__).parent), str(tmp_path / "backup")
    command = [sys.executable, "-c", KILLED, here, backup]
    done = subprocess.run(command, capture_output=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 9
    undisturbed, restored = make_model(**QUICK), make_model(**QUICK)
    fit(undisturbed, epochs=5)
    callback = keras.callbacks.BackupAndRestore(backup)
    assert fit(restored, epochs=5, callbacks=[callback]).epoch == [3, 4]
    np.testing.assert_array_equal(stored(restored), stored(undisturbed))


@pytest.mark.slow
def test_other_data_start_warm():
    model = make_model(alpha=0.5, **QUICK)
    fit(model)
    before, old = model.store, model.store.state
    x, y = np.concatenate([X, X_NEW[:2]]), np.concatenate([Y, Y[:2]])
    fit(model, x=x, y=y, epochs=1)
    assert model.store is not before and model.store.counter("epochs") == 1
    assert sum(isinstance(layer, ChainStore) for layer in model.layers) == 1
    assert model.predict(X_NEW)["mean"].shape == (7, 1)
    np.testing.assert_allclose(model.units.input_scalers[0].mean, X.mean(), atol=1e-12)
    # With the same data again, every mass finds its atom.
    problem, partition = _problem_of(before)
    seed, x = tf.constant([1, 2]), before.x.numpy()
    state = warm_state(model, seed, before, problem, partition, x)
    np.testing.assert_allclose(state.log_scales, old.log_scales, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(state.log_noise, old.log_noise)
    # With more rows, every mass finds an atom, and the other atoms draw from the prior.
    masses = log_masses(old.log_scales, problem, old.alpha).numpy()
    (problem, partition), x = _problem_of(model.store), model.store.x.numpy()
    state = warm_state(model, seed, before, problem, partition, x)
    found = log_masses(state.log_scales, problem, state.alpha).numpy()
    assert found.shape == (2, 14) and np.all(np.isfinite(found))
    assert np.all(np.isclose(found[:, :, np.newaxis], masses[:, np.newaxis]).any(axis=1))


def _problem_of(store):
    partition = store.partition
    return make_problem(partition, store.x.numpy(), store.y.numpy(), 2), partition


def test_points_to_predict_are_in_the_partition():
    model = make_model(partition="auto", **QUICK)
    fit(model, epochs=3, x_predict=X_NEW)
    assert model.store.sizes["kind"] == "exact"
    assert model.store.sizes["atoms"] == len(np.unique(np.concatenate([X, X_NEW])))
    fit(model, epochs=1)  # these are the same points without saying so
    assert model.store.counter("epochs") == 4


def test_early_stopping_restores_the_best_state():
    model = make_model()
    stop = keras.callbacks.EarlyStopping("val_nll", patience=1, restore_best_weights=True)
    history = fit(model, epochs=20, validation_data=(X, F), callbacks=[stop]).history
    assert len(history["val_nll"]) < 20
    scores = model.evaluate(X, F, return_dict=True, verbose=0)
    np.testing.assert_allclose(scores["nll"], min(history["val_nll"]), rtol=1e-5)


# Stored draws ------------------------------------------------------------------------------------


def make_store(capacity):
    partition = hyperplanes.exact(X)
    problem = make_problem(partition, X, Y, 2)
    state = initial_state(tf.constant([1, 2]), problem, 1.1, 1.0, 0.25)
    store = ChainStore(sizes_of(partition, X, Y, X[:0], state, 2, 2 * capacity))
    store.clear()
    return store


@pytest.mark.parametrize("blocks", [[3, 3, 3, 3, 3], [15], [1] * 15, [7, 8]])
@pytest.mark.parametrize("capacity", [4, 5])
def test_every_second_draw_is_dropped_when_the_places_are_full(blocks, capacity):
    store, done = make_store(capacity), 0
    for block in blocks:
        number = np.arange(done, done + block, dtype=np.float64)[:, np.newaxis] + [[0.0, 100.0]]
        weights = np.broadcast_to(number[..., np.newaxis], (block, 2, 12)).astype("float32")
        store.add(Draws(*(tf.constant(part) for part in (weights, number, number, number))))
        done += block
    expected = np.arange(0, 15, 4)  # the stride doubled twice
    np.testing.assert_array_equal(store.stored("alpha")[0, 0], expected)
    np.testing.assert_array_equal(store.stored("weights")[0, 1, :, 3], expected + 100.0)


def test_large_partitions_keep_fewer_draws():
    state = make_store(4).state
    partition = hyperplanes.sampled(1, 20_000, seed=0)
    sizes = sizes_of(partition, X, Y, X[:0], state, 4, 100_000)
    assert 4 <= sizes["capacity"] < 25_000
    assert 0.9 * MAX_BYTES < sizes["capacity"] * 4 * 20_000 * 4 < MAX_BYTES


# Diagnostics -------------------------------------------------------------------------------------


def test_diagnostics_have_a_number_for_every_point(fitted):
    found = fitted.diagnostics(X_NEW)
    assert sorted(found) == ["f", "noise_scale"]
    assert found["f"].rhat.shape == found["f"].ess_bulk.shape == found["f"].ess_tail.shape == (7, 1)
    assert found["noise_scale"].rhat.shape == (1,)
    expected = fns.metrics.rhat(fitted.store.stored("noise_scale")[0])
    np.testing.assert_allclose(found["noise_scale"].rhat, expected)


def test_fit_warns_of_burn_in_and_of_bad_chains():
    model = make_model()
    with pytest.warns(UserWarning, match=r"still burning in \(2 of 2 epochs\).*Call `fit` again"):
        model.fit(X, Y, epochs=2, verbose=0)
    with pytest.warns(UserWarning, match=r"not converged \(worst of .*ESS \d+; wanted: R-hat"):
        model.fit(X, Y, epochs=1, verbose=0)


@pytest.mark.parametrize("name", ["Refined", "Sampled"])
def test_the_number_of_hyperplanes_is_that_of_the_partition(name, tmp_path):
    partition = getattr(fns.stable_process, name)(9)
    model = make_model(partition=partition, **QUICK)
    fit(model, epochs=1)
    atoms = model.store.sizes["atoms"]
    assert atoms == 9 if name == "Sampled" else 12 <= atoms <= 12 + 9  # 12 cells
    model.save(tmp_path / "m.keras")
    assert keras.models.load_model(tmp_path / "m.keras").partition == partition


# Cross-validation --------------------------------------------------------------------------------


@pytest.mark.slow
def test_cross_validation_finds_that_a_step_is_no_gaussian_process():
    model = make_model(standardize=False, sweeps_per_epoch=40, **QUICK)
    table = model.cross_validate(X, 5.0 * F, (0.8, 2.0), 1.0, num_folds=2, epochs=4, burn_in=2)
    assert [(row["alpha"], row["nu"]) for row in table] == [(0.8, 1.0), (2.0, 1.0)]
    assert table[0]["mae"] < table[1]["mae"] and np.isfinite(table[0]["nll"])
    assert (model.alpha, model.nu) == (0.8, 1.0)


# Bad input ---------------------------------------------------------------------------------------

BAD_OPTIONS = {
    "alpha_zero": ({"alpha": 0.0}, r"`alpha` must be 'infer', a Uniform or in \(0, 2\]\. Rec.*=0"),
    "alpha_large": ({"alpha": 2.1}, r"`alpha` must be.*Received: alpha=2\.1"),
    "alpha_nan": ({"alpha": np.nan}, r"`alpha` must be.*Received: alpha=nan"),
    "alpha_word": ({"alpha": "guess"}, r"`alpha` must be.*Received: alpha='guess'"),
    "nu": ({"nu": 0.0}, r"`nu` must be 'infer', a LogNormal or a positive fin.*nu=0\.0"),
    "noise_prior": ({"noise_prior": "flat"}, r"`noise_prior` must be one of.*'flat'"),
    "partition": ({"partition": "grid"}, r"`partition` must be one of.*partition='grid'"),
    "sampler": ({"sampler": "gibbs"}, r"`sampler` must be one of.*sampler='gibbs'"),
    "thin": ({"thin": 7}, r"`sweeps_per_epoch` must be a multiple of `thin`.*thin=7"),
    "chains": ({"num_chains": 0}, r"`num_chains` must be a positive integer.*num_chains=0"),
    "burn_in": ({"burn_in": -1}, r"`burn_in` must be a non-negative integer.*burn_in=-1"),
    "seed": ({"seed": -1}, r"`seed` must be a non-negative integer\. Received: seed=-1"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_options_are_checked(case):
    options, message = BAD_OPTIONS[case]
    with pytest.raises(ValueError, match=message):
        make_model(**options)


def test_priors_and_chains_are_checked():
    priors = fns.stable_process
    for low, high in ((1.0, 3.0), (1.0, 1.0), (-0.1, 1.0), (np.nan, 1.0), ("a", 1.0)):
        with pytest.raises(ValueError, match=rf"0 <= low < high <= 2\. Received: low={low!r}"):
            priors.Uniform(low, high)
    for loc, scale in ((0.0, 0.0), (0.0, np.inf), (np.nan, 1.0), ("a", 1.0)):
        with pytest.raises(ValueError, match=rf"`scale` a positive.*loc={loc!r}, scale={scale!r}"):
            priors.LogNormal(loc, scale)
    for partition in (priors.Refined, priors.Sampled):
        with pytest.raises(ValueError, match=r"`num_atoms` must be a pos.*num_atoms=0"):
            partition(0)
    with pytest.raises(TypeError, match=r"`chains` must be a .*Chains\. Received: chains=4"):
        priors.StableProcessModel(chains=4)
    with pytest.raises(TypeError, match="positional"):
        priors.StableProcessModel(1.1)


def test_likelihood_must_be_one_with_draws():
    with pytest.raises(TypeError, match=r"`likelihood` must be .*Received: likelihood='normal'"):
        make_model(likelihood="normal")


BAD_FITS = {
    "nan_inputs": ({"x": np.where(X > 1.9, np.nan, X)}, r"`x` must be finite\. Received: x with 1"),
    "nan_targets": ({"y": np.where(X > 1.9, np.nan, Y)}, r"`y` must be finite.*Received: y with"),
    "rank": ({"x": X[:, :, np.newaxis]}, r"`x` must have shape \('N', I\): .*Received: rows of sh"),
    "rows": ({"y": Y[:5]}, r"`y` must have shape \(12, 1\).*Received: y of shape \(5, 1\)"),
    "empty": ({"x": X[:0], "y": Y[:0]}, r"`x` must have at least one row\. Received"),
    "batch_size": ({"batch_size": 4}, r"all rows at once: `batch_size`.*Received: batch_size=4"),
    "shuffle": ({"shuffle": True}, r"all rows at once: `shuffle`.*Received: shuffle=True"),
    "sample_weight": (
        {"sample_weight": np.zeros(12)},
        r"`sample_weight` must hold positive numbers.*leave out rows of weight zero",
    ),
    "class_weight": ({"class_weight": {0: 1.0}}, r"`class_weight` is for classifiers.*Received"),
    "epochs": ({"epochs": 0}, r"`epochs` must be a positive integer\. Received: epochs=0"),
    "x_predict": ({"x_predict": np.zeros((3, 2))}, r"`x_predict` must have shape \('N', 1\)\. Rec"),
    "stream": (
        {"x": tf.data.Dataset.from_tensors((X, Y)), "y": None},
        r"all rows at once: `x` must be an array, not a dataset\. Received: x of type",
    ),
    "learning_rate": (
        {"callbacks": [keras.callbacks.ReduceLROnPlateau()]},
        r"no learning rate to schedule\. Received: callback=",
    ),
}


@pytest.mark.parametrize("case", BAD_FITS)
def test_fit_refuses(case):
    options, message = BAD_FITS[case]
    model = make_model()
    with pytest.raises(ValueError, match=message):
        fit(model, **options)
    assert model.store is None


def test_other_refusals(fitted):
    with pytest.raises(ValueError, match=r"all rows at once: call `fit`"):
        fitted.train_on_batch(X, Y)
    with pytest.raises(ValueError, match=r"takes no loss, optimizer.*Received: loss='mse'"):
        make_model().compile(loss="mse")
    with pytest.raises(ValueError, match=r"`x` must have shape \('N', 1\)"):
        fitted.predict(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"`levels` must lie strictly in \(0, 1\)"):
        fitted.predict_quantiles(X, 1.0)
    with pytest.raises(ValueError, match=r"before the first `fit`\. Received: a fitted model"):
        fitted.cross_validate(X, Y)
    with pytest.raises(ValueError, match=r"`x_predict` goes with a partition that the model"):
        fit(make_model(partition=hyperplanes.sampled(1, 5, seed=0)), x_predict=X)
    with pytest.raises(ValueError, match=r"exact partition must be of one or two inputs"):
        fit(make_model(), x=np.zeros((12, 3)))


@pytest.mark.parametrize(
    "use",
    [
        lambda m: m.predict(X),
        lambda m: m.predict_distribution(X),
        lambda m: m.predict_quantiles(X),
        lambda m: m.function_quantiles(X),
        lambda m: m.sample_functions(X, 2),
        lambda m: m.evaluate(X, Y, verbose=0),
        lambda m: m.diagnostics(),
        lambda m: m.export("nowhere"),
    ],
)
def test_unfitted_model_is_refused(use):
    with pytest.raises(ValueError, match=r"The model is not fitted: call `fit`\. Received"):
        use(make_model())


def test_summary(fitted, capsys):
    make_model().summary()
    assert "not fitted" in capsys.readouterr().out
    fitted.summary()
    text = capsys.readouterr().out
    assert "12 rows, 1 inputs, 1 outputs" in text and "partition exact, 12 atoms" in text


# Export ------------------------------------------------------------------------------------------


def test_served_moments_quantiles_and_samples(fitted, tmp_path):
    fitted.export(tmp_path / "served", num_samples=5)
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    outputs = loaded.serve(tf.constant(X_NEW, tf.float32))
    for key, value in fitted.predict(X_NEW).items():
        np.testing.assert_allclose(outputs[key], value, rtol=1e-5, atol=1e-6)
    expected = fitted.predict_quantiles(X_NEW)
    np.testing.assert_allclose(outputs["quantiles"], expected, rtol=1e-4, atol=1e-5)
    samples = loaded.sample(X_NEW.astype("float32"), tf.constant([1, 2]))
    expected = fitted.sample_functions(X_NEW, 5, seed=(1, 2))
    np.testing.assert_allclose(samples, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_saved_model_serves_where_keras_and_the_library_are_missing(fitted, tmp_path):
    fitted.export(tmp_path / "served", num_samples=5)
    outputs = serve_elsewhere(tmp_path / "served", X_NEW.astype("float32"), tmp_path)
    np.testing.assert_allclose(outputs["mean"], fitted.predict(X_NEW)["mean"], rtol=1e-5, atol=1e-6)
    assert outputs["sample"].shape == (5, 7, 1)


# The distribution -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_order_of_rows_does_not_matter():
    order = np.random.default_rng(1).permutation(len(X))
    results = []
    for rows in (np.arange(len(X)), order):
        model = make_model(burn_in=5, sweeps_per_epoch=100)
        fit(model, x=X[rows], y=Y[rows], epochs=25)
        values = model.stored_values(X)[:, :, 0]
        size = model.diagnostics(X)["f"].ess_bulk[:, 0]
        results.append((values.mean(axis=1), values.std(axis=1) / np.sqrt(size)))
    (first, error), (second, other) = results
    # There are 12 points with normal means: 5 standard errors fail once in 10^5 runs.
    assert np.all(np.abs(first - second) < 5.0 * np.hypot(error, other))
