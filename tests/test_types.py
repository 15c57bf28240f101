"""Signatures are annotated, and a type checker knows the models.

The first tests read the sources with `ast`, and classes with `inspect`. The others run
`basedpyright` on programs of users; `make check` runs it on the package.
"""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tfp_fnspace as fns

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
        where = f"{path}:{node.lineno} {owner}{node.name}"
        yield from (f"{where}: {name}" for name in bare)


def functions(body, everything, owner=""):
    """Yields pairs of a function and its class, with a dot, but none that is in a function."""
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        public = everything or not node.name.startswith("_")
        if isinstance(node, ast.FunctionDef):
            if public or (owner and node.name in ("__init__", "__call__")):
                yield node, owner
        elif public:
            yield from functions(node.body, everything, f"{owner}{node.name}.")


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_signatures_are_annotated(folder):
    pattern = "*.py" if folder == "" else "**/*.py"
    paths = sorted((PACKAGE / folder).glob(pattern))
    assert paths
    found = [line for path in paths for line in missing(path, folder in WHOLE)]
    assert not found, "\n".join(found)


def public_classes():
    """Returns all classes with a public name in a module of the package, but the benchmark's."""
    found = set()
    for module in pkgutil.walk_packages(fns.__path__, "tfp_fnspace."):
        if not re.search(r"\.benchmark\.|__main__", module.name):  # rivals need other packages
            for name, value in vars(importlib.import_module(module.name)).items():
                own = isinstance(value, type) and value.__module__.startswith("tfp_fnspace.")
                found |= {value} if own and not name.startswith("_") else set()
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


def bare_names(cls):
    """Yields 'class.method: argument' of what users can call and has no annotation.

    What private bases have counts too.
    """
    bases = [base for base in inspect.getmro(cls) if base.__module__.startswith("tfp_fnspace.")]
    for base, name, value in ((b, n, v) for b in bases for n, v in vars(b).items()):
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not inspect.isfunction(function) or not function.__code__.co_filename.startswith(
            str(PACKAGE)
        ):
            continue
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[not isinstance(value, staticmethod) :]
        bare = [p.name for p in parameters if p.annotation is p.empty]
        if signature.return_annotation is signature.empty and name != "__init__":
            bare.append("return")
        yield from (f"{base.__module__}.{base.__qualname__}.{name}: {each}" for each in bare)


def test_what_public_classes_inherit_from_private_ones_is_annotated():
    classes = public_classes()
    assert {fns.tagi.Conv1D, fns.kernels.Sum, fns.processes.PiecewiseConstant} < set(classes)
    found = sorted({line for cls in classes for line in bare_names(cls)})
    assert not found, "\n".join(found)


#: A user's layer and a user's program. The model is that of docs/adding_a_method.md.
PROGRAM = '''
import keras
import numpy as np
import tfp_fnspace as fns
from tfp_fnspace.typing import Shape


class Scale(fns.tagi.BilinearLayer):
    """Every input has its own weight."""

    def create_parameters(self, input_shape: Shape) -> None:
        self.add_parameters((input_shape[-1],), fan_in=1, fan_out=1)

    def linear_map(self, inputs, kernel):
        return inputs * kernel


inputs = keras.Input((2,))
outputs = fns.tagi.Dense(1)(Scale()(inputs))
network = fns.tagi.TAGIModel(inputs, outputs, likelihood=fns.likelihoods.Gaussian(0.3))
line = LinearModel(2, fns.likelihoods.Gaussian(0.3))
x, y = np.zeros((10, 2)), np.zeros(10)
for model in (network, line):
    history = model.fit(x, y, epochs=2).history
    mean = model.predict(x)["mean"].reshape(-1)
    functions = model.sample_functions(x, 100, seed=1).mean(axis=0)
    model.save("m.keras")
    model.export("served")
'''


def checked(text, path):
    """Runs the checker on a program and returns (line, message) of its errors."""
    checker = Path(sys.executable).with_name("basedpyright")
    if not checker.exists():
        pytest.skip("basedpyright is not installed")
    path.write_text(text, encoding="utf-8")
    options = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)], "include": ["."]}
    options["stubPath"] = str(ROOT / "typings")
    options["reportArgumentType"] = False  # Keras's own types are guesses: a learning rate is float
    (path.parent / "pyrightconfig.json").write_text(json.dumps(options), encoding="utf-8")
    command = [checker, "--outputjson", "--pythonpath", sys.executable, "-p", path.parent]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [
        (text.splitlines()[d["range"]["start"]["line"]].strip(), d["message"])
        for d in found
        if d["severity"] == "error"
    ]


@pytest.mark.slow
def test_programs_of_users_type_check_and_misspelt_attributes_are_found(tmp_path):
    page = (ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8")
    model = re.search(r'^```python title="[^"]*model.py"\n(.*?)^```', page, re.M | re.S)[1]
    assert checked(model + PROGRAM, tmp_path / "program.py") == []
    for right, wrong in {
        "self.num_inputs,": "self.num_input,",
        "self.likelihood.expected_log_prob": "self.likelyhood.expected_log_prob",
        "self.add_parameters": "self.add_parameter",
        "model.sample_functions": "model.sample_function",
    }.items():
        assert right in model + PROGRAM
        found = checked((model + PROGRAM).replace(right, wrong), tmp_path / "program.py")
        assert found
        name = wrong.split(".")[1].rstrip(",")
        assert all(wrong in line and name in message for line, message in found), found
