"""What methods say of themselves is true, and the tables of the documentation are made from it."""

import importlib.util
import pkgutil
import warnings
from pathlib import Path

import batteries
import numpy as np
import pytest

import tfp_fnspace as fns
from tfp_fnspace import about, methods

ROOT = Path(__file__).resolve().parents[1]


def small_models():
    """Package of a method -> a constructor of a small model of it, from the batteries."""
    packages = [module.name for module in pkgutil.iter_modules(methods.__path__)]
    titles = {name: getattr(fns, name).ABOUT.title.replace(" ", "_") for name in packages}
    return {name: batteries.ALL_MODELS[title] for name, title in titles.items()}


MODELS = small_models()

#: Name -> constructor of a likelihood, number of outputs, number of columns of its targets.
LIKELIHOODS = {
    "Bernoulli": (fns.likelihoods.Bernoulli, 2, 2),
    "Beta": (fns.likelihoods.Beta, 2, 2),
    "Categorical": (fns.likelihoods.Categorical, 2, 1),
    "CensoredGaussian": (lambda: fns.likelihoods.CensoredGaussian(high=0.6), 2, 2),
    "CensoredLogNormal": (lambda: fns.likelihoods.CensoredLogNormal(high=0.6), 2, 2),
    "Gamma": (fns.likelihoods.Gamma, 2, 2),
    "Gaussian": (lambda: fns.likelihoods.Gaussian(0.3), 2, 2),
    "HeteroscedasticGaussian": (fns.likelihoods.HeteroscedasticGaussian, 2, 1),
    "HierarchicalCategorical": (lambda: fns.likelihoods.HierarchicalCategorical(3), 3, 1),
    "IntervalCensoredGaussian": (fns.likelihoods.IntervalCensoredGaussian, 2, 4),
    "IntervalCensoredLogNormal": (fns.likelihoods.IntervalCensoredLogNormal, 2, 4),
    "LogNormal": (fns.likelihoods.LogNormal, 2, 2),
    "NegativeBinomial": (fns.likelihoods.NegativeBinomial, 2, 2),
    "Ordinal": (lambda: fns.likelihoods.Ordinal(3), 1, 1),
    "Poisson": (fns.likelihoods.Poisson, 2, 2),
    "Remax": (fns.likelihoods.Remax, 2, 1),
    "StudentT": (lambda: fns.likelihoods.StudentT(4.0, 0.3), 2, 2),
}


#: Packages of the methods whose epochs are compiled.
BY_GRADIENTS = {"diwp", "fbnn", "sip"}

#: Likelihoods whose targets here are 1/3 and 2/3 instead of 0 and 1.
BETWEEN = {"Beta", "CensoredGaussian", "CensoredLogNormal", "Gamma", "LogNormal"}


def takes(method, make, num_outputs, num_columns):
    """Whether a model of a method learns under a likelihood."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 4)), rng.integers(0, 2, size=(12, num_columns))
    if make().targets_are_limits:
        y = np.sort(1 + y, axis=1)  # lower limits and upper ones, some of them equal
    if type(make()).__name__ in BETWEEN:
        y = (1 + y) / 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            likelihood = make()
            if method == "tagi" and likelihood.has_link:
                likelihood.trainable = False  # it keeps the scale of these, or chooses it
            model = MODELS[method](num_outputs=num_outputs, likelihood=likelihood)
            if method in BY_GRADIENTS:  # compiling an epoch takes longer than one step without
                model.compile(optimizer="sgd", run_eagerly=True)
            batteries.fit(model, x, y, batch_size=6)
        except (TypeError, ValueError):
            return False
    return np.isfinite(next(iter(model.predict(x).values()))).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", MODELS)
def test_a_method_takes_the_likelihoods_that_it_names(method):
    said = getattr(fns, method).ABOUT
    found = [name for name, arguments in LIKELIHOODS.items() if takes(method, *arguments)]
    assert sorted(said.likelihoods) == found
    learns = takes(method, lambda: fns.likelihoods.Gaussian(0.3, trainable=True), 2, 2)
    assert said.learns_noise == learns


@pytest.mark.parametrize("method", MODELS)
def test_what_a_method_says_is_what_its_model_has(method):
    said, model = getattr(fns, method).ABOUT, MODELS[method](num_outputs=2)
    assert said.model == type(model).__name__
    assert said.missing_targets == model.missing_targets_allowed
    assert tuple(said.facts) == about.FACTS


def test_every_likelihood_is_here():
    assert set(LIKELIHOODS) == set(fns.likelihoods.__all__) - {"Likelihood"}


def _script():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "method_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_the_documentation_are_those_of_the_methods():
    script = _script()
    for path in script.PAGES:
        text = path.read_text(encoding="utf-8")
        assert script.with_tables(text) == text, f"run `python docs/method_tables.py`: {path}"
