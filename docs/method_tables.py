"""Writes the tables of methods in the README and the pages, from what the methods say.

python docs/method_tables.py
"""

import importlib
import pkgutil
import re
from pathlib import Path

from tfp_fnspace import about, likelihoods, methods, sklearn

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / name
    for name in (
        "README.md",
        "docs/which_method.md",
        "docs/howto/large_data.md",
        "docs/howto/noise.md",
        "docs/howto/sklearn.md",
    )
]

#: A table and its name, between two comments.
PLACE = re.compile(r"<!-- (methods: \w+) -->\n.*?<!-- end -->", re.DOTALL)

#: Likelihood -> its noise. The others are of classes.
NOISE = {
    "Gaussian": ("(scale)", "normal, the same everywhere"),
    "StudentT": ("(df, scale)", "heavy tails: outliers are cheap"),
    "HeteroscedasticGaussian": ("()", "normal, its size a function of the input"),
}


def packages():
    """Name -> `ABOUT` of each method, in the order of the names."""
    names = sorted(module.name for module in pkgutil.iter_modules(methods.__path__))
    return {n: importlib.import_module(f"{methods.__name__}.{n}").ABOUT for n in names}


def table(head, rows):
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def ideas(said):
    """The table of the README."""
    rows = [
        [a.title, a.idea, f"`fns.{name}.{a.model}`", f"[here](docs/methods/{name}.md)"]
        for name, a in said.items()
    ]
    return table(["method", "idea", "model", "more"], rows)


def facts(said):
    """The methods side by side."""
    of_classes = {n for n in likelihoods.__all__ if getattr(likelihoods, n).is_classifier}
    derived = {
        "classes": lambda a: bool(of_classes & {*a.likelihoods}),
        "noise that varies": lambda a: "HeteroscedasticGaussian" in a.likelihoods,
        "outliers: Student-t": lambda a: "StudentT" in a.likelihoods,
        "missing targets": lambda a: a.missing_targets,
    }
    rows = [[fact, *(a.facts[fact] for a in said.values())] for fact in about.FACTS]
    for fact, holds in derived.items():
        rows.append([fact, *("yes" if holds(a) else "no" for a in said.values())])
    return table(["", *(a.title for a in said.values())], rows)


def costs(said):
    """Which methods take many rows."""
    rows = [
        [", ".join([a.title, *a.others]), a.time, a.minibatches, "yes" if a.streams else "no"]
        for a in said.values()
    ]
    return table(["method", "time in N rows", "minibatches", "streams (`tf.data`)"], rows)


def noises(said):
    """Likelihoods of regressions and who takes them."""

    def names(holds):
        found = [", ".join([a.title, *a.others]) for a in said.values() if holds(a)]
        return "all" if len(found) == len(said) else ", ".join(found)

    rows = []
    for name, (arguments, noise) in NOISE.items():
        rows.append([f"`{name}{arguments}`", noise, names(lambda a, n=name: n in a.likelihoods)])
        if name == "Gaussian":
            learns = names(lambda a: a.learns_noise)
            rows.append(["`Gaussian(scale, trainable=True)`", "the same, its scale learnt", learns])
    return table(["likelihood", "noise", "methods"], rows)


def estimators(said):
    """Estimators, and how they learn."""
    learns = {
        "FunctionSpace": "DIWP and TAGI, weighed by held-out rows: the one to begin with",
        **{a.model.removesuffix("Model"): a.learns for a in said.values()},
    }
    rows = []
    for stem, how in learns.items():
        names = [f"{stem}{kind}" for kind in ("Regressor", "Classifier")]
        regressor, classifier = (f"`{n}`" if n in sklearn.__all__ else "" for n in names)
        if regressor:  # a method without a recipe has no estimator
            rows.append([regressor, how, classifier])
    return table(["", "learns", "classifier"], rows)


TABLES = {
    "methods: ideas": ideas,
    "methods: facts": facts,
    "methods: costs": costs,
    "methods: noises": noises,
    "methods: estimators": estimators,
}


def with_tables(text):
    """Returns a page with its tables made anew."""
    said = packages()
    return PLACE.sub(lambda m: f"<!-- {m[1]} -->\n{TABLES[m[1]](said)}\n<!-- end -->", text)


def main():
    """Writes the pages."""
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
