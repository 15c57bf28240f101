"""Deep inverse Wishart processes for tests."""

from tfp_fnspace import diwp


def make_model(**options):
    """Makes a model; options of its deep kernel are given beside those of the model."""
    of_kernel = {n: options.pop(n) for n in diwp.DeepKernel.names() if n in options}
    if "network" not in options:
        options["network"] = diwp.DeepKernel(**of_kernel)
    return diwp.DIWPModel(**options)
