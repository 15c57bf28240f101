"""The prior process of a model, which is made for the shapes of the first data."""

from typing import TYPE_CHECKING

import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.likelihoods import Likelihood
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.methods.sip import parts
from tfp_fnspace.methods.sip.equations import ProcessMoments
from tfp_fnspace.processes.base import Process
from tfp_fnspace.typing import Array, Rows, Seed, Shape, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.methods.sip.model import SIPModel
    from tfp_fnspace.methods.sip.vip import VIPModel

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

    def __init__(
        self, prior: Process | str, num_outputs: int | None, needs_functions: bool = False
    ):
        parts.check_prior(prior, num_outputs, needs_functions)
        if num_outputs is not None:
            num_outputs = arguments.checked_count("num_outputs", num_outputs)
        self.prior, self.num_outputs = prior, num_outputs

    def outputs_for(self, num_columns: int, likelihood: Likelihood) -> int:
        """Returns D for targets with `num_columns` columns."""
        num_outputs = self.num_outputs
        if isinstance(self.prior, Process):
            num_outputs = self.prior.num_outputs
        elif num_outputs is None:
            num_outputs = num_columns * (2 if likelihood.has_noise_outputs else 1)
        likelihood.check_outputs(num_outputs)
        return num_outputs

    def build(self, input_shape: Shape, num_outputs: int, dtype: str, seed: int | None) -> Process:
        """Returns the process, built for rows of a given shape."""
        return parts.build_prior(self.prior, input_shape, num_outputs, dtype, seed)


def draws(model: "SIPModel | VIPModel", x: Tensor, num_samples: int, seed: Seed) -> Tensor:
    """Draws a model's prior at points in model units, `[S, N, D]` in the dtype of the model."""
    return tf.cast(model.prior.sample(x, num_samples, seed), model.variable_dtype)


def exact_moments(process: Process, x: Tensor, z: Tensor) -> ProcessMoments:
    """Computes the moments of a process that has them in closed form.

    Args:
        process: `processes.Process` with `has_moments`.
        x: Points `[N, ...]`.
        z: Inducing points `[M, ...]`.

    Returns:
        `ProcessMoments`.
    """
    count = tf.shape(z)[0]
    mean, covariance = (tf.cast(v, x.dtype) for v in process.moments(tf.concat([z, x], axis=0)))
    return ProcessMoments(
        mean[count:],
        mean[:count],
        covariance[:, :count, :count],
        covariance[:, :count, count:],
        tf.linalg.diag_part(covariance)[:, count:],
    )


def sample_functions(model: "SIPModel | VIPModel", x: Rows, num_samples: int, seed: Seed) -> Array:
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
