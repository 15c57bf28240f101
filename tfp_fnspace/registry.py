"""The methods whose papers have a protocol: a new method adds one line.

Each is a module with `fit(x, y, *, seed, ...)`. Its keyword arguments are the settings of a
protocol. `fit` maps training inputs `[N, X]` and targets `[N, D]` to a fitted model and a dict of
choices made from the training rows.
"""

import importlib
from types import ModuleType

#: Name -> module.
METHODS = {
    "diwp": "tfp_fnspace.methods.diwp.benchmark",
    "fbnn": "tfp_fnspace.methods.fbnn.benchmark",
    "sip": "tfp_fnspace.methods.sip.benchmark",
    "tagi": "tfp_fnspace.methods.tagi.benchmark",
}


def method(name: str) -> ModuleType:
    """Returns the benchmark module of a method.

    Raises:
        ValueError: If the name is unknown.
    """
    if name not in METHODS:
        raise ValueError(f"A method must be one of {sorted(METHODS)}. Received: {name!r}")
    return importlib.import_module(METHODS[name])
