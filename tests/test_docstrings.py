"""Every example in a docstring runs and gives the stated result, including shapes in comments."""

import ast
import contextlib
import doctest
import importlib
import io
import pkgutil
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_fnspace

EPOCHS = re.compile(r"\bepochs=(\d+)")
SHAPE = re.compile(r"# (?:a mixture, )?(?:batch )?\[([\w, ]+)\]")


def examples():
    """Returns every docstring of the package that has examples."""
    found = {}
    for info in pkgutil.walk_packages(tfp_fnspace.__path__, "tfp_fnspace."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            if test.examples:
                found[test.name.removeprefix("tfp_fnspace.")] = test
    return found


EXAMPLES = examples()


def names_for(test):
    """Returns the names that an example may use: the usual imports, and data."""
    x = np.linspace(-1.0, 1.0, 12)[:, np.newaxis]
    given = {"np": np, "tf": tf, "keras": keras, "tfp": tfp, "tfp_fnspace": tfp_fnspace}
    given.update(tfd=tfp.distributions, tfpk=tfp.math.psd_kernels)
    given.update({name: getattr(tfp_fnspace, name) for name in ("layers", "processes", "kernels")})
    given.update(x=tf.constant(x, tf.float32), y=np.sin(3.0 * x[:, :1]), __name__="__docstring__")
    return {**given, **test.globs}


def run(example, names):
    """Runs an example with fewer epochs, and returns its value, if it has one."""
    source = EPOCHS.sub(lambda found: f"epochs={min(int(found[1]), 2)}", example.source)
    *others, last = ast.parse(source).body
    exec(compile(ast.Module(others, []), "<docstring>", "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "<docstring>", "eval"), names)
    exec(compile(ast.Module([last], []), "<docstring>", "exec"), names)
    assigned = last.body[-1] if isinstance(last, ast.With) else last
    if isinstance(assigned, ast.Assign) and isinstance(assigned.targets[0], ast.Name):
        return names[assigned.targets[0].id]
    return None


def check_shape(said, value):
    """Compares shapes, where a letter stands for any size."""
    shape = value.batch_shape if hasattr(value, "batch_shape") else value.shape
    said = said.split(", ")
    assert len(shape) == len(said), f"{said} is {shape}"
    for word, size in zip(said, shape, strict=True):
        assert not word.isdigit() or int(word) == size, f"{said} is {shape}"


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.slow
def test_example(name, request, tmp_path, monkeypatch):
    test = EXAMPLES[name]
    if '"data/' in test.docstring:
        (tmp_path / "data").symlink_to(request.getfixturevalue("data_folder"))
    monkeypatch.chdir(tmp_path)
    names = names_for(test)
    # Two steps of `fit` take less time than tracing, unlike those of a chain or of L-BFGS.
    tf.config.run_functions_eagerly("Model" in name and "Stable" not in name)
    try:
        for example in test.examples:
            with contextlib.redirect_stdout(io.StringIO()):
                value = run(example, names)
            if example.want:
                assert repr(value) == example.want.strip()
            shape = SHAPE.search(example.source)
            if shape:
                check_shape(shape[1], value)
    finally:
        tf.config.run_functions_eagerly(False)


def test_there_are_examples():
    assert len(EXAMPLES) > 30
