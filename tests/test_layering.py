"""Imports only run down the levels of the package, without cycles.

The tests read the sources with `ast` and import nothing of the package. The levels are those of
the design: mathematics below, shared parts above it, the methods above those, and what a user
calls on top.
"""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "tfp_fnspace"

# Top-level module or package of tfp_fnspace -> level. A new one belongs beside the modules that it
# serves: below all that imports it, above all that it imports. "" is tfp_fnspace/__init__.py.
LEVELS = {
    "about": 0,
    "typing": 0,
    "cores": 0,
    "startup": 0,
    "tracing": 0,
    "boundary": 0,
    "notices": 0,
    "files": 0,
    "interrupts": 0,
    "math": 0,
    "bijectors": 1,
    "kernels": 1,
    "distributions": 2,
    "layers": 3,
    "processes": 3,
    "likelihoods": 3,
    "metrics": 3,
    "datasets": 3,
    "model": 3,
    "callbacks": 3,
    "warping": 3,
    "trials": 3,
    "recipes": 3,
    "stacking": 4,  # it stacks models of any method, which it knows by their methods only
    "methods": 4,
    "plotting": 5,
    "export": 3,  # `model.export` needs it; it knows models by their methods only
    "sklearn": 5,
    "cli": 5,
    "commands": 5,
    "calibration": 5,
    "citations": 5,
    "decisions": 5,
    "registry": 5,
    "benchmark": 5,
    "demo": 5,
    "": 6,
    "__main__": 6,
}

# Imports inside a function that may go up: (importing module, imported module) -> why.
LAZY_UPWARD: dict[tuple[str, str], str] = {
    (
        "tfp_fnspace.model.base",
        "tfp_fnspace.plotting",
    ): "`model.report` draws, and plotting knows what a model is",
}


@dataclass(frozen=True)
class Import:
    """One import of a module of the package, as found in a source file."""

    source: str
    target: str
    line: int
    lazy: bool  # it is inside a function, and runs when that is called
    typing_only: bool  # it is below `if TYPE_CHECKING:`, and never runs


@dataclass
class Package:
    """The modules of a package (dotted name -> file) and their imports of each other."""

    name: str
    modules: dict[str, Path]
    imports: list[Import] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def inner(self, module: str) -> list[str]:
        """Returns the parts of a dotted name below the package: `p.a.b` -> ["a", "b"]."""
        return module.split(".")[1:]

    def canonical(self, dotted: str) -> str:
        """Undoes the alias `p.<method>` of `p.methods.<method>`."""
        parts = dotted.split(".")
        if len(parts) > 1 and f"{self.name}.{parts[1]}" not in self.modules:
            aliased = f"{self.name}.methods.{parts[1]}"
            if aliased in self.modules:
                return ".".join([aliased, *parts[2:]])
        return dotted

    def where(self, item: Import) -> str:
        return f"{self.modules[item.source]}:{item.line}: {item.source} imports {item.target}"


class _ImportVisitor(ast.NodeVisitor):
    """Collects the imports of one module."""

    def __init__(self, package: Package, module: str):
        self.package = package
        self.module = module
        is_package = package.modules[module].name == "__init__.py"
        self.parent = module if is_package else module.rpartition(".")[0]
        self.function_depth = 0
        self.typing_depth = 0

    def visit_FunctionDef(self, node):
        # Decorators, defaults and annotations run with the enclosing code.
        for part in [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]:
            self.visit(part)
        self.function_depth += 1
        for statement in node.body:
            self.visit(statement)
        self.function_depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        self.visit(node.args)
        self.function_depth += 1
        self.visit(node.body)
        self.function_depth -= 1

    def visit_If(self, node):
        test = node.test
        name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
        self.visit(test)
        self.typing_depth += name == "TYPE_CHECKING"
        for statement in node.body:
            self.visit(statement)
        self.typing_depth -= name == "TYPE_CHECKING"
        for statement in node.orelse:
            self.visit(statement)

    def visit_Import(self, node):
        for alias in node.names:
            self.add(alias.name, node.lineno)

    def visit_ImportFrom(self, node):
        base = node.module or ""
        if node.level:
            base = self.relative(base, node.level)
        for alias in node.names:
            # `from p.a import b` imports the module p.a.b if there is one, otherwise a name of p.a.
            dotted = self.package.canonical(f"{base}.{alias.name}")
            is_module = alias.name != "*" and dotted in self.package.modules
            self.add(dotted if is_module else base, node.lineno)

    def visit_Call(self, node):
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
        if name in ("import_module", "__import__") and node.args:
            target = node.args[0]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                dotted = target.value
                level = len(dotted) - len(dotted.lstrip("."))
                self.add(self.relative(dotted[level:], level) if level else dotted, node.lineno)
        self.generic_visit(node)

    def relative(self, dotted, level):
        parts = self.parent.split(".")
        return ".".join([*parts[: len(parts) - level + 1], *([dotted] if dotted else [])])

    def add(self, dotted, line):
        if dotted.split(".")[0] != self.package.name:
            return
        target = self.package.canonical(dotted)
        if target not in self.package.modules:
            path = self.package.modules[self.module]
            problem = f"{path}:{line}: no module {dotted} in the package"
            if problem not in self.package.problems:  # one problem for all the names of an import
                self.package.problems.append(problem)
        elif target != self.module:
            lazy, typing_only = self.function_depth > 0, self.typing_depth > 0
            self.package.imports.append(Import(self.module, target, line, lazy, typing_only))


def read_package(folder: Path) -> Package:
    """Reads all modules of the package in `folder` and what they import of it."""
    modules = {}
    for path in sorted(folder.rglob("*.py")):
        parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    package = Package(folder.name, modules)
    for module, path in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        _ImportVisitor(package, module).visit(tree)
    return package


def level_problems(package: Package, levels: dict[str, int], lazy_upward) -> list[str]:
    """Lists imports that go up, methods that import methods, and modules that the table lacks."""
    problems = list(package.problems)

    def top(module: str) -> str:
        return (package.inner(module) or [""])[0]

    for unknown in sorted({top(module) for module in package.modules} - levels.keys()):
        problems.append(
            f"{package.name}.{unknown} has no level: add it to LEVELS in tests/test_layering.py, "
            "below all that imports it and above all that it imports"
        )
    for item in package.imports:
        source, target = package.inner(item.source), package.inner(item.target)
        from_level, to_level = levels.get(top(item.source)), levels.get(top(item.target))
        if from_level is None or to_level is None:
            continue  # it is reported above
        allowed = item.lazy and (item.source, item.target) in lazy_upward
        if to_level > from_level and not allowed:
            problems.append(
                f"{package.where(item)}: goes up from level {from_level} to level {to_level}"
            )
        in_methods = source[:1] == target[:1] == ["methods"] and len(source) > 1 and len(target) > 1
        if in_methods and source[1] != target[1]:
            problems.append(
                f"{package.where(item)}: methods never import each other, move the shared part down"
            )
    return problems


def import_cycles(package: Package) -> list[list[str]]:
    """Finds cycles among the imports that run when a module is loaded: one per connected set.

    To import `p.a.b` from outside `p.a` runs `p.a` too, so that counts as an import of `p.a`. A
    package on the way to the importing module itself is being loaded already and does not count,
    unless the module takes a name out of it. The sets are strongly connected.
    """
    graph: dict[str, set[str]] = {module: set() for module in package.modules}
    for item in package.imports:
        if item.lazy or item.typing_only:
            continue
        graph[item.source].add(item.target)
        parent = item.target.rpartition(".")[0]
        while parent:
            if not f"{item.source}.".startswith(f"{parent}.") and parent in graph:
                graph[item.source].add(parent)
            parent = parent.rpartition(".")[0]

    def path(start: str, goal: str) -> list[str] | None:
        """Finds a shortest way along the imports by breadth-first search."""
        came_from, front = {start: ""}, [start]
        while front:
            following = []
            for module in front:
                for target in sorted(graph[module]):
                    if target == goal:
                        way = [goal, module]
                        while came_from[way[-1]]:
                            way.append(came_from[way[-1]])
                        return way[::-1]
                    if target not in came_from:
                        came_from[target] = module
                        following.append(target)
            front = following
        return None

    cycles, covered = [], set()
    for module in graph:
        if module not in covered and (cycle := path(module, module)):
            cycles.append(cycle)
            covered.update(cycle)
    return cycles


@pytest.fixture(scope="module")
def package():
    return read_package(PACKAGE)


def test_there_is_something_to_check(package):
    assert "tfp_fnspace" in package.modules, f"no package in {PACKAGE}"


def test_imports_run_down_the_levels(package):
    problems = level_problems(package, LEVELS, LAZY_UPWARD)
    assert not problems, "\n" + "\n".join(problems)


def test_no_import_cycles(package):
    cycles = [" -> ".join(cycle) for cycle in import_cycles(package)]
    assert not cycles, "\n" + "\n".join(cycles)


def test_every_listed_exception_is_used_and_has_a_reason(package):
    lazy = {(item.source, item.target) for item in package.imports if item.lazy}
    assert not LAZY_UPWARD.keys() - lazy
    assert all(LAZY_UPWARD.values())


# The checker itself, on planted packages ----------------------------------------------------------


def plant(folder, sources):
    """Writes a package `p`, with an `__init__.py` in every folder, and reads it."""
    root = folder / "p"
    for name, text in {"__init__.py": "", **sources}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for parent in path.parents:
            if parent == folder:
                break
            (parent / "__init__.py").touch()
    return read_package(root)


CLEAN = {
    "__init__.py": "from p import methods\nfrom p.methods import tagi\nfrom p.cli import main\n",
    "math/__init__.py": "from p.math.linalg import solve\nfrom .gaussian import relu\n",
    "math/linalg.py": "import numpy\nfrom p.typing import T\n\ndef solve(): pass\n",
    "math/gaussian.py": "from . import linalg\nfrom .linalg import *\n\ndef relu(): pass\n",
    "typing.py": "T = int\n",
    "kernels/rbf.py": "import p.math.linalg as la\nfrom ..math import relu\n",
    "methods/__init__.py": "from p.methods import tagi, fbnn\n",
    "methods/tagi/__init__.py": "from p.methods.tagi.layers import Dense\n",
    "methods/tagi/layers.py": "from ...kernels.rbf import la\n\nclass Dense: pass\n",
    "methods/fbnn.py": "from p import math\n",
    "cli.py": "from p.tagi import Dense\nfrom p.tagi.layers import Dense\n\ndef main(): pass\n",
}


def test_checker_accepts_a_clean_package(tmp_path):
    planted = plant(tmp_path, CLEAN)
    assert level_problems(planted, LEVELS, {}) == []
    assert import_cycles(planted) == []
    found = {(item.source, item.target) for item in planted.imports}
    assert {
        ("p.math.gaussian", "p.math.linalg"),
        ("p.math", "p.math.gaussian"),
        ("p.kernels.rbf", "p.math"),
        ("p.methods.tagi.layers", "p.kernels.rbf"),
        ("p.methods.fbnn", "p.math"),
        ("p.cli", "p.methods.tagi"),
        ("p.cli", "p.methods.tagi.layers"),
        ("p", "p.methods"),
    } <= found


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("math/up.py", "from p.kernels import rbf\n", "goes up from level 0 to level 1"),
        ("math/up.py", "from ..kernels.rbf import la\n", "goes up from level 0 to level 1"),
        ("math/up.py", "import p.kernels.rbf\n", "goes up from level 0 to level 1"),
        ("math/up.py", "def f():\n    from p import kernels\n", "goes up from level 0 to level 1"),
        ("math/up.py", "class A:\n    import p.cli\n", "goes up from level 0 to level 5"),
        ("math/up.py", "try:\n    import p.cli\nexcept E:\n    pass\n", "to level 5"),
        ("kernels/up.py", "from p.tagi import Dense\n", "goes up from level 1 to level 4"),
        ("kernels/up.py", "import importlib\nimportlib.import_module('p.cli')\n", "to level 5"),
        ("kernels/up.py", "from p import __version__\n", "goes up from level 1 to level 6"),
        ("methods/fbnn.py", "from p.methods.tagi import Dense\n", "never import each other"),
        ("methods/fbnn.py", "def f():\n    from .tagi import layers\n", "never import each other"),
        ("methods/tagi/layers.py", "from p.fbnn import x\n", "never import each other"),
        ("scope.py", "", "p.scope has no level: add it to LEVELS"),
        ("math/up.py", "from p.maths import x\n", "no module p.maths"),
    ],
)
def test_checker_catches_a_planted_import(tmp_path, name, text, message):
    problems = level_problems(plant(tmp_path, {**CLEAN, name: text}), LEVELS, {})
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize(
    ("sources", "cycle"),
    [
        ({"a.py": "import p.b\n", "b.py": "from . import a\n"}, {"p.a", "p.b"}),
        ({"a.py": "from p.b import x\n", "b.py": "import p.c\n", "c.py": "import p.a\n"}, {"p.c"}),
        # This takes a name out of the package that is being loaded.
        (
            {"m/__init__.py": "from .u import x\n", "m/u.py": "import p.m\n"},
            {"p.m", "p.m.u"},
        ),
        # Two packages load each other, though no two files do.
        (
            {
                "m/__init__.py": "from . import u\n",
                "m/u.py": "import p.n.v\n",
                "n/__init__.py": "from . import w\n",
                "n/v.py": "",
                "n/w.py": "import p.m.z\n",
                "m/z.py": "",
            },
            {"p.m", "p.n"},
        ),
    ],
)
def test_checker_catches_a_planted_cycle(tmp_path, sources, cycle):
    cycles = import_cycles(plant(tmp_path, sources))
    assert cycles
    assert cycle <= set(cycles[0])


def test_lazy_and_typing_only_imports_make_no_cycle(tmp_path):
    sources = {
        "a.py": "import p.b\n",
        "b.py": "def f():\n    import p.a\n",
        "c.py": "import p.d\n",
        "d.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.c import x\n",
    }
    assert import_cycles(plant(tmp_path, sources)) == []


def test_a_listed_lazy_import_may_go_up_and_a_module_level_one_may_not(tmp_path):
    listed = {("p.math.up", "p.cli"): "because"}
    lazy = plant(tmp_path / "lazy", {**CLEAN, "math/up.py": "def f():\n    import p.cli\n"})
    eager = plant(tmp_path / "eager", {**CLEAN, "math/up.py": "import p.cli\n"})
    assert level_problems(lazy, LEVELS, listed) == []
    assert len(level_problems(eager, LEVELS, listed)) == 1


def test_the_table_of_contributing_has_these_levels():
    page = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in re.findall(r"^\| \d \|.*$", page, re.M)]
    names = {int(row[1]): re.findall(r"`(\w+)(?:/<name>)?`", row[2]) for row in rows}
    found = {name: level for level, each in names.items() for name in each}
    assert found == {name: level for name, level in LEVELS.items() if level < 6}
