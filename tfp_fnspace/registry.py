"""The methods that benchmarks know: a new method adds one line.

Each is a module, or an object `module:name`, with two functions:

- `uci_config(dataset, seed)`: the settings for the data set of this name, a dict.
- `uci_fit(config, x, y)`: a model with these settings, fitted to training inputs `[N, X]` and
  targets `[N, D]`, and a dict of what was chosen by the training rows.
"""

import importlib

#: Name -> module or `module:name`.
METHODS = {
    "aadm": "tfp_fnspace.methods.sip.benchmark:aadm",
    "avb": "tfp_fnspace.methods.sip.benchmark:avb",
    "bayes_by_backprop": "tfp_fnspace.methods.fbnn.benchmark:bayes_by_backprop",
    "deep_gp": "tfp_fnspace.methods.diwp.benchmark:deep_gp",
    "diwp": "tfp_fnspace.methods.diwp.benchmark:diwp",
    "diwp_defective": "tfp_fnspace.methods.diwp.benchmark:defective",
    "fbnn": "tfp_fnspace.methods.fbnn.benchmark:fbnn",
    "nngp": "tfp_fnspace.methods.diwp.benchmark:nngp",
    "sip_bnn": "tfp_fnspace.methods.sip.benchmark:sip_bnn",
    "sip_ns": "tfp_fnspace.methods.sip.benchmark:sip_ns",
    "stable_process": "tfp_fnspace.methods.stable_process.benchmark",
    "tagi": "tfp_fnspace.methods.tagi.benchmark",
    "vip": "tfp_fnspace.methods.sip.benchmark:vip",
    "tagi_heteroscedastic": "tfp_fnspace.methods.tagi.benchmark:heteroscedastic",
}


def method(name):
    """The benchmark module of a method.

    Raises:
        ValueError: If the name is unknown.
    """
    if name not in METHODS:
        raise ValueError(f"A method must be one of {sorted(METHODS)}. Received: {name!r}")
    module, _, attribute = METHODS[name].partition(":")
    module = importlib.import_module(module)
    return getattr(module, attribute) if attribute else module
