"""Small stable processes for tests."""

import dataclasses

import tfp_fnspace as fns

_OF_CHAINS = {field.name for field in dataclasses.fields(fns.stable_process.Chains)}


def make_model(**options):
    """Makes a model; options of its chains are given beside those of the model."""
    of_chains = {name: options.pop(name) for name in _OF_CHAINS & options.keys()}
    chains = fns.stable_process.Chains(**of_chains)
    return fns.stable_process.StableProcessModel(chains=chains, **options)
