"""Sparse implicit processes for tests."""

from tfp_fnspace import sip

#: Name here -> field of the options of a model.
_OF_DIVERGENCE = {"kl": "kind", **{name: name for name in sip.Adversarial.names()}}
_OF_DRAWS = {
    "num_prior_samples": "num_draws",
    "fixed_prior_draws": "fixed",
    "num_eval_prior_sets": "num_eval_sets",
    "jitter": "jitter",
}


def make_model(prior="bnn", inducing_points=100, posterior="neural_sampler", **options):
    """Makes a model; options of its divergence and its draws are given beside its own."""
    parts = {"divergence": (sip.Adversarial, _OF_DIVERGENCE)}
    parts["prior_draws"] = (sip.PriorDraws, _OF_DRAWS)
    for part, (cls, names) in parts.items():
        given = {field: options.pop(name) for name, field in names.items() if name in options}
        options[part] = cls(**given)
    return sip.SIPModel(prior, inducing_points, posterior=posterior, **options)
