"""The prior process of a model, which is made for the shapes of the first data."""

import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.methods.sip import parts
from tfp_fnspace.processes.base import Process

#: How many numbers the widest layer of a prior takes for one function at one point, a guess.
PRIOR_WIDTH = 64


class GivenPrior:
    """The argument `prior` of a model, with those that belong to it.

    Args:
        prior: `processes.Process`, or the name of one.
        num_outputs: D, or `None` if the data decide.
        needs_functions: Whether moments are not sufficient.

    Raises:
        TypeError: If `prior` is neither.
        ValueError: If a name is unknown, the prior is unsuitable, or `num_outputs` is no count.
    """

    def __init__(self, prior, num_outputs, needs_functions=False):
        parts.check_prior(prior, num_outputs, needs_functions)
        if num_outputs is not None:
            num_outputs = arguments.checked_count("num_outputs", num_outputs)
        self.prior, self.num_outputs = prior, num_outputs

    def outputs_for(self, num_columns, likelihood):
        """Returns D for targets with `num_columns` columns."""
        num_outputs = self.num_outputs
        if isinstance(self.prior, Process):
            num_outputs = self.prior.num_outputs
        elif num_outputs is None:
            num_outputs = num_columns * (2 if likelihood.has_noise_outputs else 1)
        likelihood.check_outputs(num_outputs)
        return num_outputs

    def build(self, input_shape, num_outputs, dtype, seed):
        """Returns the process, built for rows of a given shape."""
        return parts.build_prior(self.prior, input_shape, num_outputs, dtype, seed)


def draws(model, x, num_samples, seed):
    """Draws a model's prior at points in model units, `[S, N, D]` in the dtype of the model."""
    return tf.cast(model.prior.sample(x, num_samples, seed), model.variable_dtype)


def sample_functions(model, x, num_samples, seed):
    """Draws functions from the learned prior of a model.

    Args:
        model: Model with a `prior`.
        x: As for `predict`, arrays only.
        num_samples: S, a positive integer.
        seed: Integer or two integers.

    Returns:
        NumPy array `[S, N, D]` in the user's units.
    """
    num_samples = arguments.checked_count("num_samples", num_samples)
    inputs = [tf.constant(values) for values in model.checked_inputs(x)]
    (x,) = model.units.scaled(inputs)
    return model.units.functions(draws(model, x, num_samples, as_seed(seed))).numpy()
