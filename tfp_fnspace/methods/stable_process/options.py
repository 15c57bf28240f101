"""Checks of the arguments of `StableProcessModel`."""

import numpy as np

from tfp_fnspace import arguments, likelihoods
from tfp_fnspace.methods.stable_process.hyperplanes import Partition
from tfp_fnspace.methods.stable_process.samplers import Settings

PARTITIONS = ("auto", "exact", "refined", "sampled")

#: Arrays of a `Partition`.
_ARRAYS = ("hyperplanes", "probabilities")

#: Options that are whole numbers; the last two may be `None`.
COUNTS = (
    "num_chains",
    "sweeps_per_epoch",
    "thin",
    "max_draws",
    "burn_in",
    "num_atoms",
    "num_inputs",
)


def checked_alpha(alpha):
    """Returns `"infer"`, or a number in (0, 2]."""
    if isinstance(alpha, str) and alpha == "infer":
        return alpha
    if not arguments.is_number(alpha) or not 0.0 < alpha <= 2.0:
        raise ValueError(f"`alpha` must be 'infer' or in (0, 2]. Received: alpha={alpha!r}")
    return float(alpha)


def checked_nu(nu):
    """Returns `"infer"`, or a positive number."""
    if isinstance(nu, str) and nu == "infer":
        return nu
    if not arguments.is_number(nu) or not 0.0 < nu < np.inf:
        raise ValueError(f"`nu` must be 'infer' or a positive finite number. Received: nu={nu!r}")
    return float(nu)


def checked_partition(partition):
    """Returns one of `PARTITIONS` or a `Partition`, also from the dict of a saved model."""
    if isinstance(partition, dict) and set(partition) == {*_ARRAYS, "kind"}:
        return Partition(*(np.array(partition[key]) for key in _ARRAYS), partition["kind"])
    if isinstance(partition, Partition) or (isinstance(partition, str) and partition in PARTITIONS):
        return partition
    raise ValueError(
        f"`partition` must be one of {list(PARTITIONS)} or a Partition. "
        f"Received: partition={partition!r}"
    )


def partition_config(partition):
    """Returns a value for JSON from which `checked_partition` makes the partition."""
    if isinstance(partition, str):
        return partition
    return {
        **{name: getattr(partition, name).tolist() for name in _ARRAYS},
        "kind": partition.kind,
    }


def checked_likelihood(likelihood):
    """Returns a Gaussian or Student-t likelihood, Gaussian of scale 0.5 for `None`."""
    if likelihood is None:
        return likelihoods.Gaussian(scale=0.5)
    if not isinstance(likelihood, likelihoods.Gaussian | likelihoods.StudentT):
        raise TypeError(
            "`likelihood` must be tfp_fnspace.likelihoods.Gaussian or StudentT. "
            f"Received: likelihood={likelihood!r}"
        )
    return likelihood


def check_counts(**counts):
    """Checks the numbers of chains, iterations and draws."""
    for name in COUNTS[:4]:
        arguments.check_count(name, counts[name])
    arguments.check_count("burn_in", counts["burn_in"], 0)
    for name in ("num_atoms", "num_inputs"):
        if counts[name] is not None:
            arguments.check_count(name, counts[name])
    if counts["sweeps_per_epoch"] % counts["thin"]:
        raise ValueError(
            "`sweeps_per_epoch` must be a multiple of `thin`, so that every epoch ends with a "
            f"draw. Received: sweeps_per_epoch={counts['sweeps_per_epoch']!r}, "
            f"thin={counts['thin']!r}"
        )


def settings_of(model, burn_in=None):
    """Returns the sampler's settings for the options of a model."""
    burn_in = model.burn_in if burn_in is None else burn_in
    return Settings(
        infer_noise=model.noise == "infer",
        noise_prior=model.noise_prior,
        noise_df=getattr(model.likelihood, "df", None),
        alpha_range=tuple(model.alpha_prior) if model.alpha == "infer" else None,
        nu_prior=tuple(model.nu_prior) if model.nu == "infer" else None,
        adapt_for=burn_in * model.sweeps_per_epoch,
    )
