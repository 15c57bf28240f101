"""Checks of what a `StableProcessModel` is constructed with."""

import numbers

import numpy as np

from tfp_fnspace import data, likelihoods
from tfp_fnspace.methods.stable_process.hyperplanes import Partition
from tfp_fnspace.methods.stable_process.samplers import Settings

PARTITIONS = ("auto", "exact", "refined", "sampled")

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


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def checked_alpha(alpha):
    """`"infer"`, or a number in (0, 2]."""
    if isinstance(alpha, str) and alpha == "infer":
        return alpha
    if not _is_number(alpha) or not 0.0 < alpha <= 2.0:
        raise ValueError(f"`alpha` must be 'infer' or in (0, 2]. Received: alpha={alpha!r}")
    return float(alpha)


def checked_nu(nu):
    """`"infer"`, or a positive number."""
    if isinstance(nu, str) and nu == "infer":
        return nu
    if not _is_number(nu) or not 0.0 < nu < np.inf:
        raise ValueError(f"`nu` must be 'infer' or a positive finite number. Received: nu={nu!r}")
    return float(nu)


def _pair(value):
    values = list(value) if isinstance(value, list | tuple | np.ndarray) else []
    return tuple(map(float, values)) if len(values) == 2 and all(map(_is_number, values)) else None


def checked_alpha_prior(interval):
    """The ends of an interval in [0, 2], two floats."""
    pair = _pair(interval)
    if pair is None or not 0.0 <= pair[0] < pair[1] <= 2.0:
        raise ValueError(
            "`alpha_prior` must be an interval (low, high) with 0 <= low < high <= 2. "
            f"Received: alpha_prior={interval!r}"
        )
    return pair


def checked_nu_prior(moments):
    """Mean and standard deviation of log nu, two floats."""
    pair = _pair(moments)
    if pair is None or not np.all(np.isfinite(pair)) or not pair[1] > 0.0:
        raise ValueError(
            "`nu_prior` must be the mean and the positive standard deviation of log nu. "
            f"Received: nu_prior={moments!r}"
        )
    return pair


def checked_choice(name, value, allowed):
    """One of the `allowed` strings."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"`{name}` must be one of {list(allowed)}. Received: {name}={value!r}")
    return value


def checked_partition(partition):
    """One of `PARTITIONS` or a `Partition`; a dict of one, from a saved model, becomes one."""
    if isinstance(partition, dict):
        arrays = (np.array(partition[key]) for key in ("hyperplanes", "probabilities"))
        return Partition(*arrays, partition["kind"])
    if isinstance(partition, Partition) or (isinstance(partition, str) and partition in PARTITIONS):
        return partition
    raise ValueError(
        f"`partition` must be one of {list(PARTITIONS)} or a Partition. "
        f"Received: partition={partition!r}"
    )


def partition_config(partition):
    """What `checked_partition` makes the partition from, for JSON."""
    if isinstance(partition, str):
        return partition
    return {
        "hyperplanes": partition.hyperplanes.tolist(),
        "probabilities": partition.probabilities.tolist(),
        "kind": partition.kind,
    }


def checked_likelihood(likelihood):
    """A Gaussian or Student-t likelihood, Gaussian of scale 0.5 for `None`."""
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
        data.check_count(name, counts[name])
    burn_in = counts["burn_in"]
    if not isinstance(burn_in, int | np.integer) or isinstance(burn_in, bool) or burn_in < 0:
        raise ValueError(f"`burn_in` must be a non-negative integer. Received: burn_in={burn_in!r}")
    for name in ("num_atoms", "num_inputs"):
        if counts[name] is not None:
            data.check_count(name, counts[name])
    if counts["sweeps_per_epoch"] % counts["thin"]:
        raise ValueError(
            "`sweeps_per_epoch` must be a multiple of `thin`, so that every epoch ends with a "
            f"draw. Received: sweeps_per_epoch={counts['sweeps_per_epoch']!r}, "
            f"thin={counts['thin']!r}"
        )


def settings_of(model, burn_in=None):
    """The sampler's settings for the options of a model."""
    burn_in = model.burn_in if burn_in is None else burn_in
    return Settings(
        infer_noise=model.noise == "infer",
        noise_prior=model.noise_prior,
        noise_df=getattr(model.likelihood, "df", None),
        alpha_range=tuple(model.alpha_prior) if model.alpha == "infer" else None,
        nu_prior=tuple(model.nu_prior) if model.nu == "infer" else None,
        adapt_for=burn_in * model.sweeps_per_epoch,
    )
