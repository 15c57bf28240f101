"""The stable process on targets whose scale is far from where its chains start."""

import warnings

import numpy as np
import pytest
import stable_models

from tfp_fnspace import likelihoods
from tfp_fnspace.methods.stable_process.diagnostics import convergence, warn_of_bad_chains

X = np.linspace(-2.0, 2.0, 12)[:, np.newaxis]
F = np.where(X > 0.0, 2.0, -1.0)
Y = F + 0.2 * np.random.default_rng(0).normal(size=F.shape)


def fitted(y, epochs=4, model=None, **options):
    if model is None:
        small = {"num_chains": 2, "sweeps_per_epoch": 50, "burn_in": 2, "partition": "exact"}
        model = stable_models.make_model(**{**small, "seed": 3, **options})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The chains")
        model.fit(X, y, epochs=epochs, verbose=0)
    return model


def num_values(model, name):
    """Returns the least number of different values that a hyper-parameter has in a chain."""
    draws = model.store.stored(name)[0]  # [chains, draws]
    return min(len(np.unique(chain)) for chain in draws)


@pytest.mark.slow
@pytest.mark.parametrize(
    "y", [Y + 20_000.0, 1e4 * Y, 1e7 * Y], ids=["offset", "large", "very large"]
)
def test_hyperparameters_move_on_raw_targets(y):
    model = fitted(y, standardize=False, nu="infer")
    for name in ("noise_scale", "nu"):
        assert num_values(model, name) > 5, name


@pytest.mark.slow
def test_noise_moves_after_a_warm_start_on_larger_targets():
    model = fitted(Y, epochs=3)
    fitted(1e5 * Y, model=model)
    assert num_values(model, "noise_scale") > 5


@pytest.mark.slow
def test_nu_moves_beside_a_fixed_noise_below_the_smallest_inferred_one():
    model = fitted(Y, nu="infer", likelihood=likelihoods.Gaussian(scale=5e-5))
    assert num_values(model, "nu") > 5
    np.testing.assert_allclose(model.store.stored("noise_scale")[0], 5e-5, rtol=1e-5)


def test_what_has_not_moved_has_not_converged():
    draws = np.repeat([[1.0], [2.0]], 20, axis=1)  # two chains
    moving = np.random.default_rng(0).normal(size=(2, 20))
    found = convergence(np.stack([draws, moving], axis=-1))
    assert found.rhat[0] == np.inf and found.ess_bulk[0] == found.ess_tail[0] == 0.0
    assert np.all(np.isfinite([part[1] for part in found]))
    with pytest.warns(UserWarning, match="sigma: R-hat inf, bulk ESS 0, tail ESS 0; wanted"):
        warn_of_bad_chains({"sigma": convergence(draws)})


def test_a_small_effective_sample_size_of_the_tail_is_warned_of():
    found = convergence(np.random.default_rng(0).normal(size=(4, 500)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_bad_chains({"f": found})
    with pytest.warns(UserWarning, match="tail ESS 7; wanted"):
        warn_of_bad_chains({"f": found._replace(ess_tail=np.asarray(7.0))})
