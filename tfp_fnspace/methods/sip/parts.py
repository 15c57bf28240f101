"""The prior, the posterior's sampler and the discriminator of a sparse implicit process."""

from typing import TYPE_CHECKING, Any

import keras

from tfp_fnspace.boundary import arguments
from tfp_fnspace.methods.sip import networks
from tfp_fnspace.methods.sip.log_ratio import LogRatio
from tfp_fnspace.model import GradientModel
from tfp_fnspace.model.annealing import Annealing
from tfp_fnspace.processes.base import Process
from tfp_fnspace.typing import Network, Shape

if TYPE_CHECKING:
    from tfp_fnspace.methods.sip.options import Adversarial

#: Number of standard normal values from which the default posterior draws u.
NUM_NOISE = 100


def check_prior(prior: Any, num_outputs: int | None, needs_functions: bool = False) -> None:
    """Refuses arguments that cannot be a prior, before there are data.

    Args:
        prior: The given prior.
        num_outputs: D, or None if it is not known.
        needs_functions: Whether moments are not sufficient.

    Raises:
        TypeError: If it is of a wrong type.
        ValueError: If a name is unknown, or the prior is unsuitable.
    """
    if isinstance(prior, str):
        arguments.checked_choice("prior", prior, tuple(networks.PRIORS))
    elif not isinstance(prior, Process):
        raise TypeError(
            "`prior` must be one of `tfp_fnspace.processes` or a name, one of "
            f"{tuple(networks.PRIORS)}. Received: prior={prior!r}"
        )
    elif not prior.draws_are_functions_of_x and (needs_functions or not prior.has_moments):
        rule = "draw functions of x" + ("" if needs_functions else ", or have `moments`")
        raise ValueError(f"`prior` must {rule}. Received: prior={type(prior).__name__}")
    elif num_outputs not in (None, prior.num_outputs):
        raise ValueError(
            f"`prior` must have {num_outputs} outputs, `num_outputs`. "
            f"Received: prior.num_outputs={prior.num_outputs}"
        )


def check_penalty(penalty: float, prior: Process | str) -> None:
    """Refuses a positive penalty for priors without `weight_divergence`.

    Raises:
        ValueError: With the penalty and the prior.
    """
    named = prior in networks.WITH_WEIGHT_DIVERGENCE if isinstance(prior, str) else False
    if penalty and not named and not getattr(prior, "has_weight_divergence", False):
        received = prior if isinstance(prior, str) else type(prior).__name__
        raise ValueError(
            "`prior_penalty` must be 0 unless the weights of the prior have a learned "
            f"distribution, as in 'bnn'. Received: prior_penalty={penalty!r}, prior={received}"
        )


def check_posterior(posterior: Any) -> None:
    """Refuses an argument that cannot be a sampler, before there are data.

    Raises:
        TypeError: If it is of a wrong type.
        ValueError: If a name is unknown.
    """
    if isinstance(posterior, str):
        arguments.checked_choice("posterior", posterior, ("neural_sampler",))
    else:
        _check_network("posterior", posterior)


def check_discriminator(discriminator: Any) -> None:
    """Refuses an argument that cannot be a discriminator; `None` stands for the default.

    Raises:
        TypeError: If it is of a wrong type.
        ValueError: If it does not know its shapes.
    """
    if discriminator is not None:
        _check_network("discriminator", discriminator)


def _check_network(name, network):
    if not isinstance(network, keras.Model):
        raise TypeError(f"`{name}` must be a Keras model. Received: {name}={network!r}")
    if _shapes_of(network) is None:
        raise ValueError(
            f"`{name}` must be a Keras model that knows the shapes of its inputs and outputs: "
            f"start it with a `keras.Input`. Received: {name}={network!r}"
        )


def checked_contrast(adaptive_contrast: Any, kinds: tuple[str, ...] = ()) -> bool | str:
    """Checks and returns whether there is adaptive contrast, or its kind.

    Raises:
        ValueError: If it is an unknown string.
    """
    if isinstance(adaptive_contrast, str):
        choices = (False, True, *kinds)
        return arguments.checked_choice("adaptive_contrast", adaptive_contrast, choices)
    return bool(adaptive_contrast)


def check_draws_for_contrast(adaptive_contrast: bool | str, num_samples: int) -> None:
    """Refuses adaptive contrast with only one draw, which has no moments.

    Raises:
        ValueError: With the number.
    """
    if adaptive_contrast is True and num_samples < 2:
        raise ValueError(
            "`num_samples` must be at least 2 with `adaptive_contrast`: one draw has no variance. "
            f"Received: num_samples={num_samples}"
        )


def annealing(kl_annealing: float, dtype: str) -> Annealing:
    """Returns the `Annealing` over a fraction of the steps of the first `fit`.

    There is none for a stream of unknown length.
    """
    return Annealing(lambda total: int(kl_annealing * total) if total else None, dtype=dtype)


def seeds_of(model: GradientModel) -> list[int]:
    """Returns integer seeds of the default prior, posterior and discriminator of a model."""
    return model.counters.seeds.integers(3)


def build_prior(
    prior: Process | str, input_shape: Shape, num_outputs: int, dtype: str, seed: int | None = None
) -> Process:
    """Makes the prior, built for rows of a given shape."""
    if isinstance(prior, str):
        if len(input_shape) != 1:
            raise ValueError(
                f"`prior={prior!r}` is for rows of rank 1: give a process. "
                f"Received: rows of shape {input_shape}"
            )
        prior = networks.PRIORS[prior](input_shape[0], num_outputs, seed=seed, dtype=dtype)
    if not prior.built:
        prior.build((None, *input_shape))
    return prior


def build_posterior(
    posterior: Network | str,
    size: int,
    dtype: str,
    seed: int | None = None,
    num_noise: int = NUM_NOISE,
) -> Network:
    """Makes the sampler of u, a map from noise to the M D values."""
    if isinstance(posterior, str):
        posterior = networks.mlp(num_noise, size, dtype=dtype, seed=seed)
    _check_widths("posterior", posterior, None, size)
    return posterior


def build_discriminator(
    discriminator: Network | None,
    size: int,
    dropout: float,
    dtype: str,
    seed: int | None = None,
) -> Network:
    """Makes the network that classifies draws of `size` values."""
    if discriminator is None:
        discriminator = networks.mlp(size, 1, dtype=dtype, dropout=dropout, seed=seed)
    _check_widths("discriminator", discriminator, size, 1)
    return discriminator


def build_log_ratio(
    options: "Adversarial",
    size: int,
    dtype: str,
    seed: int | None = None,
    noise: float | None = None,
) -> LogRatio:
    """Makes the estimator of the divergence for M D values; `noise` is for the full contrast."""
    discriminator = build_discriminator(options.discriminator, size, options.dropout, dtype, seed)
    contrast = None
    if options.adaptive_contrast:
        contrast = keras.models.clone_model(discriminator)
        contrast.set_weights(discriminator.get_weights())  # a user's have no seed of ours
    noise = noise if options.adaptive_contrast == "full" else None
    return LogRatio(discriminator, contrast, noise, dtype=dtype)


def _shapes_of(network):
    """Returns input and output shape, or None for a model that does not know them."""
    try:
        return network.input_shape, network.output_shape
    except AttributeError:  # not built, or a user's own class
        return None


def _check_widths(name, network, num_inputs, num_outputs):
    """Refuses a network whose inputs and outputs do not have the required widths."""
    shapes = _shapes_of(network)
    fits = all(isinstance(shape, tuple) and len(shape) == 2 for shape in shapes)
    if not fits or num_inputs not in (None, shapes[0][-1]) or shapes[1][-1] != num_outputs:
        width = "K" if num_inputs is None else num_inputs
        raise ValueError(
            f"`{name}` must map [S, {width}] to [S, {num_outputs}]. "
            f"Received: shapes {shapes[0]} to {shapes[1]}"
        )
