"""Sparse implicit processes for tests."""

from tfp_fnspace import sip

#: The objects that have options, and the argument of the model that takes each.
_PARTS = {"divergence": sip.Adversarial, "prior_draws": sip.PriorDraws}


def make_model(prior="bnn", inducing_points=100, posterior="neural_sampler", **options):
    """Makes a model; options of its divergence and its draws are given beside its own."""
    for part, cls in _PARTS.items():
        options[part] = cls(**{n: options.pop(n) for n in cls.names() if n in options})
    return sip.SIPModel(prior, inducing_points, posterior=posterior, **options)
