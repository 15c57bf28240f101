"""The recipes of deep inverse Wishart processes and their baselines."""

import numpy as np
import pytest

from tfp_fnspace import diwp, registry

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(30, 2))
Y = np.sin(X[:, :1]) + 0.1 * RANDOM.normal(size=(30, 1))
FEW = {"inducing_points": 8, "steps": 4, "num_samples": 2, "num_eval_samples": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cls", "num_deltas"),
    [
        ("diwp", diwp.DIWPModel, 2),
        pytest.param("nngp", diwp.NNGPModel, 0, marks=pytest.mark.exhaustive),
        ("deep_gp", diwp.DeepGPModel, 0),
    ],
)
def test_recipe(name, cls, num_deltas):
    recipe = registry.method(name)
    config = {**recipe.uci_config("yacht", 1), **FEW}
    model, chosen = recipe.uci_fit(config, X, Y)
    assert model.hidden == cls(num_samples=1).hidden
    assert model.dtype_policy.name == ("float32" if name == "deep_gp" else "float64")
    assert len(model.history.epoch) == 4 and model.optimizer.learning_rate < config["learning_rate"]
    ours = name != "deep_gp"
    assert model.alpha == (0.5 if ours else 0.0)
    assert len(chosen["delta"]) == num_deltas
    assert np.isfinite(chosen["objective" if ours else "elbo"])
    assert model.init == ("lower_bound" if ours else "rows") and model.whiten == ours


@pytest.mark.parametrize(
    ("dataset", "init", "delta", "steps"),
    [
        ("yacht", "lower_bound", 1e5, 4000),
        ("energy", "rows", 100.0, 8000),
        ("naval", "marginal_likelihood", 1e4, 8000),
    ],
)
def test_where_training_starts(dataset, init, delta, steps):
    config = registry.method("diwp").uci_config(dataset, 0)
    assert (config["init"], config["delta"], config["steps"]) == (init, delta, steps)
    assert config["alpha"] == 0.5
    assert registry.method("deep_gp").uci_config(dataset, 0)["alpha"] == 0.0


@pytest.mark.slow
def test_large_sets_have_batches_and_one_sample():
    for name, dtype, rate in (("naval", "float64", 3e-4), ("power", "float32", 1e-2)):
        config = registry.method("diwp").uci_config(name, 0)
        assert config["learning_rate"] == rate
        assert (config["batch_size"], config["num_samples"], config["dtype"]) == (512, 1, dtype)
    config.update(FEW, num_samples=1, batch_size=10)
    model, _ = registry.method("diwp").uci_fit(config, X, Y)
    assert len(model.history.epoch) == 2  # of three steps


@pytest.mark.parametrize(("alpha", "name"), [(0.0, "elbo"), (0.5, "objective")])
def test_the_objective_is_that_of_the_last_tenth_of_the_steps(alpha, name):
    config = {**registry.method("nngp").uci_config("wine", 0), **FEW, "alpha": alpha, "steps": 20}
    model, chosen = registry.method("nngp").uci_fit(config, X, Y)
    history = model.history.history
    values = np.subtract(history["log_likelihood"], history["kl"])
    assert chosen[name] == pytest.approx(np.mean(values[-2:]), rel=1e-5)
    assert len({"elbo", "objective"} & set(chosen)) == 1


def test_the_defect_is_a_switch_of_the_same_recipe():
    plain, defective = (
        registry.method(n).uci_config("wine", 0) for n in ("diwp", "diwp_defective")
    )
    assert {**defective, "batch_size_defect": False} == plain != defective
