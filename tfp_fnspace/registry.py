"""The methods that benchmarks know: a new method adds one line."""

import importlib

#: Name -> module with `uci_config(dataset, seed)` and `uci_fit(config, x, y)`.
METHODS = {
    "stable_process": "tfp_fnspace.methods.stable_process.benchmark",
    "tagi": "tfp_fnspace.methods.tagi.benchmark",
}


def method(name):
    """The benchmark module of a method.

    Raises:
        ValueError: If the name is unknown.
    """
    if name not in METHODS:
        raise ValueError(f"A method must be one of {sorted(METHODS)}. Received: {name!r}")
    return importlib.import_module(METHODS[name])
