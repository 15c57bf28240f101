"""Deep inverse Wishart processes for tests."""

from tfp_fnspace import diwp


def make_model(**options):
    """Makes a model; options of its deep kernel and its start are given beside its own."""
    of_kernel = {n: options.pop(n) for n in diwp.DeepKernel.names() if n in options}
    of_start = {n: options.pop(n) for n in diwp.Start.names() if n in options}
    if of_start:
        options["start"] = diwp.Start(**of_start)
    if "network" not in options:
        options["network"] = diwp.DeepKernel(**of_kernel)
    return diwp.DIWPModel(**options)
