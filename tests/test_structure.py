"""A model is few classes: how many, and what they override, is counted here."""

import importlib
import inspect
import itertools
import pkgutil
import re
from pathlib import Path

import keras
import pytest

import tfp_fnspace as fns
from tfp_fnspace import calibration, methods, stacking, warping
from tfp_fnspace.model import FunctionSpaceModel, GradientModel


def models():
    """Returns all public classes of models, those of new methods too."""
    packages = [importlib.import_module(f"{methods.__name__}.{n}") for n in names_of_methods()]
    public = [getattr(package, n) for package in packages for n in package.__all__]
    classes = [c for c in public if isinstance(c, type) and issubclass(c, FunctionSpaceModel)]
    return [
        *classes,
        stacking.StackedModel,
        warping.WarpedModel,
        calibration.CalibratedModel,
    ]


def names_of_methods():
    return [module.name for module in pkgutil.iter_modules(methods.__path__)]


MODELS = models()

#: Class -> the most classes of ours in its MRO, where these are not three.
CLASSES = {fns.fbnn.FBNNModel: 4, fns.sip.AVBModel: 4}  # AVB is AADM with another bound


#: Class -> the number of arguments of its constructor, and how many of them may go by position.
ARGUMENTS = {
    fns.tagi.TAGIModel: (9, 2),
    fns.stable_process.StableProcessModel: (8, 0),
    fns.fbnn.VariationalModel: (8, 1),
    fns.fbnn.FBNNModel: (12, 2),
    fns.diwp.DIWPModel: (9, 1),
    fns.sip.SIPModel: (12, 2),
    fns.sip.AADMModel: (12, 1),
    fns.sip.AVBModel: (11, 1),
    fns.sip.VIPModel: (8, 1),
}


#: Models that are there for comparison.
BASELINES = {fns.fbnn.VariationalModel, fns.sip.AADMModel, fns.sip.AVBModel, fns.sip.VIPModel}


@pytest.mark.parametrize("cls", ARGUMENTS)
def test_a_constructor_has_few_arguments_and_most_are_keywords(cls):
    parameters = list(inspect.signature(cls).parameters.values())
    named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
    positional = [p for p in named if p.kind is not p.KEYWORD_ONLY]
    assert (len(named), len(positional)) == ARGUMENTS[cls]


def test_the_five_models_have_few_arguments_together():
    five = [cls for cls in ARGUMENTS if cls not in BASELINES]
    assert max(number for number, _ in ARGUMENTS.values()) <= 12
    assert sum(ARGUMENTS[cls][0] for cls in five) <= 50


def ours(cls):
    return [c for c in inspect.getmro(cls) if c.__module__.startswith("tfp_fnspace")]


@pytest.mark.parametrize("cls", MODELS)
def test_a_model_is_few_classes(cls):
    assert len(ours(cls)) <= CLASSES.get(cls, 3), [c.__name__ for c in ours(cls)]


def test_the_models_are_found():
    assert set(ARGUMENTS) < set(MODELS)


@pytest.mark.parametrize("cls", MODELS)
def test_private_methods_of_the_base_are_not_overridden(cls):
    """What a method may change has a public name, and a row in docs/adding_a_method.md."""
    bases = [base for base in (FunctionSpaceModel, GradientModel) if issubclass(cls, base)]
    private = {n for base in bases for n in vars(base) if n.startswith("_") and n[1] != "_"}
    own = {n for c in ours(cls) if c not in bases for n in vars(c)}
    assert not own & (private - set(dir(keras.Model)))


def rows_of_attributes():
    page = Path(__file__).resolve().parents[1] / "docs" / "adding_a_method.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    return lines[lines.index("| attribute | what it says | default |") + 2 :]


@pytest.mark.parametrize("cls", MODELS)
def test_attributes_that_a_method_overrides_are_in_the_table_of_attributes(cls):
    bases = FunctionSpaceModel, GradientModel
    shared = {name for base in bases for name, value in vars(base).items() if not callable(value)}
    own = {name for c in ours(cls) if c not in bases for name in vars(c)} & shared
    own = {name for name in own - set(dir(keras.Model)) if not name.startswith("_")}
    rows = itertools.takewhile(lambda line: line.startswith("|"), rows_of_attributes())
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert not own - documented
    assert all(any(hasattr(base, name) for base in bases) for name in documented)


#: What users call: a method may document or extend it.
VERBS = {"adapt", "predict_distribution", "sample_functions"}


def rows_of_hooks():
    page = Path(__file__).resolve().parents[1] / "docs" / "adding_a_method.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("| `") and "(" in line.split("|")[1]]


def test_there_are_at_most_twelve_hooks():
    rows = rows_of_hooks()
    assert 0 < len(rows) <= 12
    assert all(row.split("|")[1].count("(") == 1 for row in rows)  # one in a row


@pytest.mark.parametrize("cls", MODELS)
def test_what_a_method_overrides_is_in_the_table_of_hooks(cls):
    rows = rows_of_hooks()
    bases = FunctionSpaceModel, GradientModel
    shared = {name for base in bases for name, value in vars(base).items() if callable(value)}
    own = {name for c in ours(cls) if c not in bases for name in vars(c)} & shared
    hooks = {n for n in own - VERBS - set(dir(keras.Model)) if not n.startswith("_")}
    assert hooks
    assert not {name for name in hooks if not any(f"`{name}(" in row for row in rows)}
