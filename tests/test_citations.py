"""Papers of methods, of wrappers and of estimators, as BibTeX."""

import re
from pathlib import Path

import batteries
import fbnn_models
import numpy as np
import pytest
import tensorflow_probability as tfp
import toys

import tfp_fnspace as fns
from tfp_fnspace import calibration, citations, stacking, warping
from tfp_fnspace.sklearn import TAGIRegressor

REFERENCES = Path(__file__).resolve().parents[1] / "docs" / "references.md"


def keys(text):
    """Returns the keys of the entries, after a check that each is well-formed BibTeX."""
    entries = text.split("\n\n")
    for entry in entries:
        assert re.fullmatch(r"@(article|inproceedings|misc)\{\w+,\n(  \w+ = \{.+\},\n)+\}", entry)
        assert entry.count("{") == entry.count("}")
    return [re.match(r"@\w+\{(\w+),", entry).group(1) for entry in entries]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TAGI", ["goulet2021tractable"]),
        ("stable_process", ["loria2023posterior"]),
        ("fBNN", ["sun2019functional", "shi2018spectral"]),
        ("fBNN_closed_form", ["sun2019functional"]),
        ("variational", ["blundell2015weight"]),
        ("SIP", ["rodriguezsantana2022function"]),
        ("DIWP", ["aitchison2021deep"]),
    ],
)
def test_a_model_has_the_paper_of_its_method(name, expected):
    assert keys(fns.citation(batteries.ALL_MODELS[name]())) == [*expected, "tfp_fnspace"]


def test_a_divergence_has_the_paper_that_it_is_from():
    for kind, key in (("linearized", "rudner2022tractable"), ("regularized", "cinquin2025well")):
        network = batteries.variational_network(2)
        kernel = tfp.math.psd_kernels.ExponentiatedQuadratic()
        prior = fns.processes.GaussianProcess(kernel, num_outputs=2)
        model = fbnn_models.make_model(network, prior, kind)
        assert keys(fns.citation(model)) == ["sun2019functional", key, "tfp_fnspace"]


@pytest.mark.slow
def test_wrappers_have_those_of_all_members():
    x = np.random.default_rng(0).normal(size=(30, 2))
    regressor = TAGIRegressor(time_limit=1, random_state=0).fit(x, x[:, 0])
    assert keys(fns.citation(regressor))[-2:] == ["goulet2021tractable", "tfp_fnspace"]
    member = regressor.model_
    both = stacking.StackedModel([batteries.tagi_model(), batteries.variational_model()], [0.5] * 2)
    warped = warping.WarpedModel(both, [0.0] * 2, [1.0] * 2, [1.0] * 2)
    assert keys(fns.citation(warped)) == [
        "snelson2004warped",
        "yao2018using",
        "goulet2021tractable",
        "blundell2015weight",
        "tfp_fnspace",
    ]
    scaled = calibration.CalibratedModel(member, calibration.Scaling([1.0]))
    assert keys(fns.citation(scaled)) == keys(fns.citation(member))
    conformal = calibration.SplitConformal(regressor, x, x[:, 0])
    assert keys(fns.citation(conformal))[0] == "lei2018distribution"


def test_a_model_of_another_method_has_the_library_alone():
    model = toys.LinearModel(2, 1, fns.likelihoods.Gaussian(0.3))
    assert keys(fns.citation(model)) == ["tfp_fnspace"]


@pytest.mark.parametrize("thing", [3, fns.tagi.TAGIModel, TAGIRegressor()])
def test_what_has_no_paper_is_refused(thing):
    with pytest.raises(TypeError, match="must be a model or a fitted estimator.*Received: "):
        fns.citation(thing)


def test_facts_are_those_of_the_references():
    """Numbers of arXiv, and digital object identifiers."""
    page = REFERENCES.read_text(encoding="utf-8")
    listed = set(re.findall(r"arXiv\.(\d+\.\d+)|org/(10\.[^)]+)", page))
    listed = {value for pair in listed for value in pair if value}
    for entry in citations._PAPERS.values():
        given = re.findall(r"(?:eprint|doi) = \{(.+)\}", entry)
        assert all(value in listed for value in given), entry
