"""Small stable processes for tests."""

from tfp_fnspace import stable_process


def make_model(**options):
    """Makes a model; options of its chains are given beside those of the model."""
    of_chains = {n: options.pop(n) for n in stable_process.Chains.names() if n in options}
    return stable_process.StableProcessModel(chains=stable_process.Chains(**of_chains), **options)
