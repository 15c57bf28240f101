"""One word for one thing: the arguments of everything public, against CONTRIBUTING.md's table."""

import importlib
import inspect
import re
import types
from pathlib import Path

import pytest

import tfp_fnspace as fns

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"

#: Modules whose words are those of another library.
OTHER_WORDS = {"sklearn"}


def banned():
    """Returns patterns of words that the table refuses: pattern -> the word to take instead."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("### The vocabulary")
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) > 10
    found = {}
    for word, _, instead_of in rows:
        for name in re.findall(r"`([^`]+)`", instead_of):
            found[re.sub(r"<\w+>", r"\\w+", name)] = word.strip()
    return found


def public_modules():
    names = [name for name in fns.__all__ if inspect.ismodule(getattr(fns, name))]
    return [name for name in names if name not in OTHER_WORDS]


def arguments(module):
    """Yields the name of every argument of a module's public classes, methods and functions."""
    here = [
        n
        for n, v in vars(module).items()
        if getattr(v, "__module__", None) == getattr(module, "__name__", "")
    ]
    for name in getattr(module, "__all__", [n for n in here if not n.startswith("_")]):
        value = getattr(module, name)
        if not callable(value):
            continue
        of_class = inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else []
        ours = [
            (f"{name}.{key}", function)
            for key, function in of_class
            if not key.startswith("_") and function.__module__.startswith("tfp_fnspace")
        ]
        for where, function in [(name, value), *ours]:
            for argument in inspect.signature(function).parameters:
                yield where, argument


def test_the_table_refuses_words():
    patterns = banned()
    module = types.SimpleNamespace(__all__=["draw"], draw=lambda x, n_points: None)
    assert list(arguments(module)) == [("draw", "x"), ("draw", "n_points")]
    assert patterns["warm_up"].startswith("`kl_annealing`") and r"n_\w+" in patterns


@pytest.mark.parametrize("name", public_modules())
def test_public_arguments_have_the_words_of_the_table(name):
    module = importlib.import_module(f"tfp_fnspace.{name}")
    patterns = banned()
    wrong = [
        f"{where}({argument}=): say {word}"
        for where, argument in arguments(module)
        for pattern, word in patterns.items()
        if re.fullmatch(pattern, argument)
    ]
    assert not wrong
