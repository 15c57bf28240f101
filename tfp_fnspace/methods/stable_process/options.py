"""The options of `StableProcessModel`: priors, chains and checks of the other arguments."""

import dataclasses
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tfp_fnspace import likelihoods
from tfp_fnspace.boundary import arguments
from tfp_fnspace.boundary.options import Options
from tfp_fnspace.methods.stable_process import samplers
from tfp_fnspace.methods.stable_process.hyperplanes import Partition
from tfp_fnspace.methods.stable_process.hyperplanes.choose import NUM_ATOMS

if TYPE_CHECKING:
    from tfp_fnspace.methods.stable_process.model import StableProcessModel

PARTITIONS = ("auto", "exact", "refined", "sampled")

#: Arrays of a `Partition`.
_ARRAYS = ("hyperplanes", "probabilities")


@keras.saving.register_keras_serializable(package="tfp_fnspace.stable_process")
@dataclasses.dataclass(frozen=True)
class Uniform(Options):
    """Uniform prior of the index alpha.

    Args:
        low: The smallest index, at least 0.
        high: The largest index, at most 2.

    Raises:
        ValueError: If they are not the ends of an interval in [0, 2].
    """

    low: float = 0.2
    high: float = 2.0

    def __post_init__(self):
        numbers = all(map(arguments.is_number, (self.low, self.high)))
        if not numbers or not 0.0 <= self.low < self.high <= 2.0:
            raise ValueError(
                "`low` and `high` must be numbers with 0 <= low < high <= 2. "
                f"Received: low={self.low!r}, high={self.high!r}"
            )


@keras.saving.register_keras_serializable(package="tfp_fnspace.stable_process")
@dataclasses.dataclass(frozen=True)
class LogNormal(Options):
    """Log-normal prior of the scale nu.

    Args:
        loc: Mean of log nu.
        scale: Standard deviation of log nu, positive.

    Raises:
        ValueError: If one is not finite, or `scale` is not positive.
    """

    loc: float = 0.0
    scale: float = 1.0

    def __post_init__(self):
        numbers = all(map(arguments.is_number, (self.loc, self.scale)))
        if not numbers or not np.all(np.isfinite((self.loc, self.scale))) or self.scale <= 0.0:
            raise ValueError(
                "`loc` must be a finite number, and `scale` a positive finite one. "
                f"Received: loc={self.loc!r}, scale={self.scale!r}"
            )


@keras.saving.register_keras_serializable(package="tfp_fnspace.stable_process")
@dataclasses.dataclass(frozen=True)
class Chains(Options):
    """Markov chains: how many, how long, and which draws are stored.

    Args:
        num_chains: Chains for each output.
        sweeps_per_epoch: Iterations in an epoch, a multiple of `thin`.
        burn_in: Epochs of burn-in.
        thin: Iterations between draws.
        max_draws: Draws to store for each output, over all chains. Fewer are stored if all weights
            would take more than 40 MB, so that a file of the model, or its export, stays under 50
            MB; at least 4 of each chain are. When the places are full, every second draw is
            dropped.
        sampler: `"grouped"`, `"metropolis"` or `"hmc"`; the last two are for comparison.

    Raises:
        ValueError: If an argument is not as described.
    """

    num_chains: int = 4
    sweeps_per_epoch: int = 100
    burn_in: int = 10
    thin: int = 5
    max_draws: int = 1000
    sampler: str = "grouped"

    def __post_init__(self):
        for name in ("num_chains", "sweeps_per_epoch", "thin", "max_draws"):
            arguments.check_count(name, getattr(self, name))
        arguments.check_count("burn_in", self.burn_in, 0)
        arguments.checked_choice("sampler", self.sampler, tuple(samplers.SAMPLERS))
        if self.sweeps_per_epoch % self.thin:
            raise ValueError(
                "`sweeps_per_epoch` must be a multiple of `thin`, so that every epoch ends with a "
                f"draw. Received: sweeps_per_epoch={self.sweeps_per_epoch!r}, thin={self.thin!r}"
            )

    @property
    def draws_per_epoch(self) -> int:
        """The number of draws of a chain in an epoch."""
        return self.sweeps_per_epoch // self.thin


@keras.saving.register_keras_serializable(package="tfp_fnspace.stable_process")
@dataclasses.dataclass(frozen=True)
class Refined(Options):
    """Partition that is exact at the data, with more hyperplanes inside the cells.

    Args:
        num_atoms: Number of additional hyperplanes.

    Raises:
        ValueError: If `num_atoms` is not a positive integer.
    """

    num_atoms: int = NUM_ATOMS
    kind = "refined"

    def __post_init__(self):
        arguments.check_count("num_atoms", self.num_atoms)


@keras.saving.register_keras_serializable(package="tfp_fnspace.stable_process")
@dataclasses.dataclass(frozen=True)
class Sampled(Options):
    """Partition by random hyperplanes.

    Args:
        num_atoms: Number of hyperplanes.

    Raises:
        ValueError: If `num_atoms` is not a positive integer.
    """

    num_atoms: int = NUM_ATOMS
    kind = "sampled"

    def __post_init__(self):
        arguments.check_count("num_atoms", self.num_atoms)


def checked_alpha(alpha: Any) -> float | Uniform:
    """Returns a number in (0, 2], or a prior: `Uniform()` for `"infer"`."""
    if isinstance(alpha, Uniform):
        return alpha
    if isinstance(alpha, str) and alpha == "infer":
        return Uniform()
    if not arguments.is_number(alpha) or not 0.0 < alpha <= 2.0:
        raise ValueError(
            f"`alpha` must be 'infer', a Uniform or in (0, 2]. Received: alpha={alpha!r}"
        )
    return float(alpha)


def checked_nu(nu: Any) -> float | LogNormal:
    """Returns a positive number, or a prior: `LogNormal()` for `"infer"`."""
    if isinstance(nu, LogNormal):
        return nu
    if isinstance(nu, str) and nu == "infer":
        return LogNormal()
    if not arguments.is_number(nu) or not 0.0 < nu < np.inf:
        raise ValueError(
            f"`nu` must be 'infer', a LogNormal or a positive finite number. Received: nu={nu!r}"
        )
    return float(nu)


def checked_partition(partition: Any) -> str | Refined | Sampled | Partition:
    """Returns one of `PARTITIONS`, `Refined`, `Sampled` or `Partition`, also from a saved dict."""
    if isinstance(partition, dict) and "class_name" in partition:
        return keras.saving.deserialize_keras_object(partition)
    if isinstance(partition, dict) and set(partition) == {*_ARRAYS, "kind"}:
        return Partition(*(np.array(partition[key]) for key in _ARRAYS), partition["kind"])
    if isinstance(partition, Partition | Refined | Sampled):
        return partition
    if isinstance(partition, str) and partition in PARTITIONS:
        return partition
    raise ValueError(
        f"`partition` must be one of {list(PARTITIONS)}, Refined, Sampled or a Partition. "
        f"Received: partition={partition!r}"
    )


def partition_config(partition: str | Refined | Sampled | Partition) -> Any:
    """Returns a value for JSON from which `checked_partition` makes the partition."""
    if isinstance(partition, str):
        return partition
    if isinstance(partition, Options):
        return keras.saving.serialize_keras_object(partition)
    return {
        **{name: getattr(partition, name).tolist() for name in _ARRAYS},
        "kind": partition.kind,
    }


def checked_likelihood(likelihood: Any) -> likelihoods.Gaussian | likelihoods.StudentT:
    """Returns a Gaussian or Student-t likelihood; for `None`, Gaussian noise to infer."""
    if likelihood is None:
        return likelihoods.Gaussian(scale=0.5, trainable=True)
    if not isinstance(likelihood, likelihoods.Gaussian | likelihoods.StudentT):
        raise TypeError(
            "`likelihood` must be tfp_fnspace.likelihoods.Gaussian or StudentT. "
            f"Received: likelihood={likelihood!r}"
        )
    return likelihood


def settings_of(model: "StableProcessModel", burn_in: int | None = None) -> samplers.Settings:
    """Returns the sampler's settings for the options of a model."""
    chains, alpha, nu = model.chains, model.alpha, model.nu
    burn_in = chains.burn_in if burn_in is None else burn_in
    return samplers.Settings(
        infer_noise=model.likelihood.trainable,
        noise_prior=model.noise_prior,
        noise_df=getattr(model.likelihood, "df", None),
        alpha_range=(alpha.low, alpha.high) if isinstance(alpha, Uniform) else None,
        nu_prior=(nu.loc, nu.scale) if isinstance(nu, LogNormal) else None,
        adapt_for=burn_in * chains.sweeps_per_epoch,
    )
