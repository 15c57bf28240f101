"""The pages for those who come from other libraries: what their tables name exists."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import tensorflow_probability as tfp

import tfp_fnspace as fns

PAGES = sorted((Path(__file__).resolve().parents[1] / "docs" / "coming_from").glob("*.md"))


def rows(page):
    """Yields the two cells of each row of the table, without its head."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    for line in lines[2:]:
        yield line.strip("|").split("|")


def namespace():
    """Returns the names that the tables use without their module."""
    from tfp_fnspace import sklearn

    parts = (fns.kernels, fns.layers, fns.likelihoods, fns.diwp, fns.fbnn, fns.tagi, sklearn)
    names = {name: getattr(part, name) for part in parts for name in part.__all__}
    modules = {"fns": fns, "tagi": fns.tagi, "likelihoods": fns.likelihoods}
    others = {"tfd": tfp.distributions, "kernel": tfp.math.psd_kernels.MaternFiveHalves()}
    k1, k2 = fns.kernels.SquaredExponential(), fns.kernels.Linear()
    return {**names, **modules, **others, "k1": k1, "k2": k2, "N": 100, "sigma_v": 0.1}


def constructors(cell, names):
    """Yields the expressions in a cell that make an object of a class of this library."""
    for code in re.findall(r"`([^`]+)`", cell):
        for text in (code, f"dict({code})"):  # an expression, or arguments
            try:
                tree = ast.parse(text, mode="eval")
            except SyntaxError:
                continue
            yield from (ast.unparse(call) for call in ast.walk(tree) if is_made(call, names))
            break


def is_made(node, names):
    """Returns whether a node calls a class, with all that it needs."""
    if not isinstance(node, ast.Call) or "..." in ast.unparse(node):
        return False
    dotted = ast.unparse(node.func)
    is_name = re.fullmatch(r"[\w.]+", dotted) and dotted.split(".")[0] in names
    return bool(is_name) and inspect.isclass(eval(dotted, dict(names)))


def test_the_pages_begin_with_a_table_of_there_and_here():
    assert {page.stem for page in PAGES} == {"gpflow", "pytagi", "scikit_learn", "tfp_layers"}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.index("\n| there | here |\n") < text.index("\n## "), page.name


@pytest.mark.parametrize(
    ("name", "least"), [("gpflow", 9), ("pytagi", 15), ("scikit_learn", 6), ("tfp_layers", 10)]
)
def test_what_stands_on_the_side_of_here_can_be_made(name, least):
    pytest.importorskip("sklearn")
    names = namespace()
    (page,) = (page for page in PAGES if page.stem == name)
    found = [code for _, here in rows(page) for code in constructors(here, names)]
    assert len(found) >= least, found
    for code in found:
        eval(code, names)
