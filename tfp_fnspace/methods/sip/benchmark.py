"""The model of `benchmark paper`, a sparse implicit process."""

from typing import Any

import keras

from tfp_fnspace import likelihoods
from tfp_fnspace.methods.sip.model import SIPModel
from tfp_fnspace.methods.sip.networks import PRIORS
from tfp_fnspace.methods.sip.options import Adversarial
from tfp_fnspace.typing import Array


def fit(
    x: Array,
    y: Array,
    *,
    prior: str,
    prior_options: dict[str, Any],
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    **options: Any,
) -> tuple[SIPModel, dict[str, Any]]:
    """Builds and fits a model with learnt noise, in the form that `registry` expects.

    Args:
        x: Training inputs `[N, X]`.
        y: Training targets `[N, D]`.
        prior: `"bnn"` or `"neural_sampler"`.
        prior_options: Dict of options of `sip.bnn_prior` or `sip.neural_sampler_prior`.
        epochs: Number of passes over the rows.
        batch_size: Rows in a batch.
        learning_rate: Learning rate of Adam.
        seed: Integer.
        **options: Other arguments of `SIPModel`, and those of `Adversarial`.

    Returns:
        The model, and a dict of values that the training rows have determined.
    """
    keras.utils.set_random_seed(seed)
    process = PRIORS[prior](x.shape[1], y.shape[1], seed=seed, **prior_options)
    likelihood = likelihoods.Gaussian(trainable=True)
    of_divergence = {k: options.pop(k) for k in Adversarial.names() if k in options}
    options["divergence"] = Adversarial(**of_divergence)
    model = SIPModel(process, likelihood=likelihood, seed=seed, **options)
    model.compile(keras.optimizers.Adam(learning_rate))
    history = model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0).history
    last = {name: values[-1] for name, values in history.items()}
    names = ("kl", "kl_estimate", "discriminator_accuracy", "log_likelihood")
    learnt = float(keras.ops.convert_to_numpy(model.likelihood.scale))
    return model, {"noise_scale": learnt, **{name: last[name] for name in names if name in last}}
