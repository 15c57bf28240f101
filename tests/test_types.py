"""Signatures are annotated, and a type checker knows the models.

The first tests read the sources with `ast`. The others run `basedpyright`, as `make check` does on
the whole package.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tfp_fnspace"

#: Folders in which every function is annotated; elsewhere, those that users can name.
WHOLE = ("boundary", "likelihoods", "model")

FOLDERS = sorted(p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists())


def missing(path, everything):
    """Yields 'file:line name: argument' for each argument or result without an annotation."""
    for node, owner in functions(ast.parse(path.read_text(encoding="utf-8")).body, everything):
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        if owner and not any("staticmethod" in ast.dump(d) for d in node.decorator_list):
            named = named[1:]  # self or cls
        named += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        bare = [a.arg for a in named if a.annotation is None]
        if node.returns is None and node.name != "__init__":
            bare.append("return")
        where = f"{path.relative_to(ROOT)}:{node.lineno} {owner}{node.name}"
        yield from (f"{where}: {name}" for name in bare)


def functions(body, everything, owner=""):
    """Yields (function, its class and a dot) of a module or class, but no functions in functions."""
    for node in body:
        public = everything or not node.name.startswith("_") if hasattr(node, "name") else False
        if isinstance(node, ast.ClassDef) and public:
            yield from functions(node.body, everything, f"{owner}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            if public or (owner and node.name in ("__init__", "__call__")):
                yield node, owner


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_signatures_are_annotated(folder):
    pattern = "*.py" if folder == "" else "**/*.py"
    paths = sorted((PACKAGE / folder).glob(pattern))
    assert paths
    found = [line for path in paths for line in missing(path, folder in WHOLE)]
    assert not found, "\n".join(found)
