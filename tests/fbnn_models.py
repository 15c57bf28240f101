"""Functional BNNs for tests."""

from tfp_fnspace import fbnn

KINDS = {
    "stein": fbnn.Stein,
    "regularized": fbnn.Regularized,
    "closed_form": fbnn.ClosedForm,
    "linearized": fbnn.Linearized,
}


def make_model(network, prior, divergence="stein", **options):
    """Makes a model; its divergence is given by name, and its options beside those of the model."""
    kind = KINDS[divergence]
    of_divergence = {name: options.pop(name) for name in kind.names() if name in options}
    return fbnn.FBNNModel(network, prior, divergence=kind(**of_divergence), **options)
