"""Functions drawn from the posterior of a TAGI model."""

from typing import TYPE_CHECKING

import tensorflow as tf

from tfp_fnspace.math.random import fold_in, normal
from tfp_fnspace.methods.tagi import propagation
from tfp_fnspace.model.seeds import part
from tfp_fnspace.typing import Seed, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.methods.tagi.model import TAGIModel


def functions(model: "TAGIModel", inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
    """Draws functions: weights from the posterior, then a deterministic forward pass.

    TAGI's result about f is its closed-form moments, not these draws: because of linearisation and
    dropped covariances, the spread of the draws differs from `epistemic_stddev`. A draw is one
    function, also if a layer is used twice, and the same seed gives the same function.

    Args:
        model: `TAGIModel`.
        inputs: List of tensors `[N, ...]` in model units.
        num_samples: S, a Python integer.
        seed: int32 tensor `[2]`.

    Returns:
        Tensor `[S, N, D]` in model units.
    """
    inputs = _draw_inputs(model, inputs, num_samples, seed)
    if model.covariance == "full_parameters":
        return model.chain.sample(inputs[0], num_samples, seed)
    with propagation.sampling_scope(seed, num_samples, model.tagi_layers):
        sample, _ = model.network([propagation.fold(values) for values in inputs])
    return tf.reshape(sample, [num_samples, -1, model.num_outputs])


def _draw_inputs(model, inputs, num_samples, seed):
    """Returns S copies `[S, N, ...]` of each input, with noise drawn for uncertain inputs.

    A function uses one draw of standardised noise for all rows, so that it stays a function of x,
    whatever the rows at which it is evaluated.
    """
    roles = model.input_roles
    variances = {i: model.input_variance() for i in range(len(inputs))}
    variances.update({role: inputs[i] for i, role in enumerate(roles) if role is not None})
    copies = [tf.repeat(x[tf.newaxis], num_samples, axis=0) for x in inputs]
    for i, role in enumerate(roles):
        if role is None and variances[i] is not None:
            noise_seed = fold_in(part(seed, "input noise"), i)
            noise = normal([num_samples, 1, *inputs[i].shape[1:]], noise_seed, inputs[i].dtype)
            copies[i] += tf.sqrt(variances[i]) * noise
    return copies
