"""The nine test functions of the stable process paper, with Gaussian processes for comparison.

Loria & Bhadra (2023), sections 4.1, 4.2, S.3.3 and S.3.4, have five functions on a line (40
training points, 100 new ones) and four in a plane (7 x 7 training points, 9 x 9 new ones), with
noise 0.5. The paper's two examples have their stored training sets, the others seed 0 of
`datasets`. Nothing is standardised except the targets inside the Gaussian processes.

    python benchmarks/stable_functions.py --data-dir ../shared/data
    python benchmarks/stable_functions.py --baselines --data-dir ../shared/data
"""

import argparse
import functools
import pathlib
import time
import warnings
from typing import NamedTuple

import numpy as np
import sklearn
from scipy import special
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from threadpoolctl import threadpool_limits

from tfp_fnspace import datasets
from tfp_fnspace.benchmark import add_records, machine, versions
from tfp_fnspace.metrics import ess_bulk, rhat
from tfp_fnspace.stable_process import LogNormal, StableProcessModel

NOISE = 0.5
LEVEL = 0.9  # level of the intervals
LINE = ("three_jumps", "one_jump", "two_jumps", "piecewise_smooth", "smooth")
PLANE = ("quadrants", "diagonal", "curved_edge", "smooth")

#: Name -> function from inputs `[M, X]` to values `[M, 1]`.
FUNCTIONS = {
    **{f"line_{name}": datasets.step_1d(function=name).function for name in LINE},
    **{f"plane_{name}": datasets.step_2d(function=name).function for name in PLANE},
}

#: Training sets that come with the paper: name -> file below the data folder, names of the inputs.
STORED = {
    "line_three_jumps": ("stable/step1d_train.csv", ("x",)),
    "plane_quadrants": ("stable/step2d_train.csv", ("x1", "x2")),
}


# Problems and errors -----------------------------------------------------------------------------


class Problem(NamedTuple):
    """Training data, new inputs, and the true function there.

    Attributes:
        x: `[N, X]`.
        y: `[N]`.
        x_new: `[M, X]`.
        f_new: `[M]`.
    """

    x: np.ndarray
    y: np.ndarray
    x_new: np.ndarray
    f_new: np.ndarray


def problem(name, data_dir, seed=0):
    """Returns one of `FUNCTIONS` with its designs; `seed` draws the noise if no file has data."""
    design, function = name.split("_", 1)
    make, sizes = {"line": (datasets.step_1d, (40, 100)), "plane": (datasets.step_2d, (7, 9))}[
        design
    ]
    train, new = (make(seed, size, function=function) for size in sizes)
    x, y = train.x, train.y[:, 0]
    if name in STORED:
        path, columns = STORED[name]
        stored = np.genfromtxt(pathlib.Path(data_dir) / path, delimiter=",", names=True)
        x, y = np.stack([stored[c] for c in columns], axis=1), stored["y"]
    return Problem(x, y, new.x, new.f[:, 0])


def true_error(prediction, f):
    """Returns the mean absolute error to the true function."""
    return float(np.mean(np.abs(prediction - f)))


def paper_error(prediction, f, seed=0, repetitions=100):
    """Returns the mean absolute error to fresh noisy targets; the true function expects 0.399."""
    targets = f + NOISE * np.random.default_rng(seed).standard_normal((repetitions, len(f)))
    return float(np.mean(np.abs(prediction - targets)))


def scores(prediction, f):
    """Returns errors of the median and of the mean, and what the intervals for f cover."""
    covered = (prediction["lower"] <= f) & (f <= prediction["upper"])
    return {
        "error": true_error(prediction["median"], f),
        "error_of_mean": true_error(prediction["mean"], f),
        "paper_error": paper_error(prediction["median"], f),
        "coverage_90": float(np.mean(covered)),
        "width_90": float(np.mean(prediction["upper"] - prediction["lower"])),
    }


# Gaussian processes ------------------------------------------------------------------------------

# In all of them y minus its mean, divided by its standard deviation, is a Gaussian process with
# kernel amplitude^2 k(|x - x'| / length) plus noise, with one length for all inputs. The results
# are those of f, without noise: median, mean and the central 90 % interval, `[M]` each, and
# "chosen".


def gp_maximum_likelihood(x, y, x_new, seed, kernel):
    """Fits an exact Gaussian process: maximum marginal likelihood from 10 starting points.

    Args:
        x: `[N, X]`.
        y: `[N]`.
        x_new: `[M, X]`.
        seed: Integer.
        kernel: `"rbf"`, `"matern32"` or `"matern52"`.
    """
    bounds = (1e-2, 1e2)
    shape = {
        "rbf": kernels.RBF(1.0, bounds),
        "matern32": kernels.Matern(1.0, bounds, nu=1.5),
        "matern52": kernels.Matern(1.0, bounds, nu=2.5),
    }[kernel]
    covariance = kernels.ConstantKernel(1.0, (1e-3, 1e3)) * shape
    covariance += kernels.WhiteKernel(0.1, (1e-4, 1e1))
    model = GaussianProcessRegressor(
        covariance, n_restarts_optimizer=9, normalize_y=True, random_state=seed
    )
    with warnings.catch_warnings():  # the record shows a length at its bound
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    mean, stddev = model.predict(x_new, return_std=True)
    noise = np.std(y) * np.sqrt(model.kernel_.k2.noise_level)
    half = special.ndtri((1.0 + LEVEL) / 2.0) * np.sqrt(np.maximum(stddev**2 - noise**2, 0.0))
    chosen = {
        "amplitude": float(np.std(y) * np.sqrt(model.kernel_.k1.k1.constant_value)),
        "length": float(model.kernel_.k1.k2.length_scale),
        "noise": float(noise),
    }
    return {
        "median": mean,
        "mean": mean,
        "lower": mean - half,
        "upper": mean + half,
        "chosen": chosen,
    }


#: Prior of the logarithms of amplitude, length and noise scale (targets standardised): it is weak,
#: with 95 % of each within a factor of 19 of exp(mean).
LOG_MEANS = np.array([0.0, 0.0, -1.5])
LOG_STDDEV = 1.5


def gp_sampled(x, y, x_new, seed, num_chains=4, num_draws=2000, num_warmup=500):
    """Fits an exact Matern 5/2 process; slice samples hyper-parameters with log-normal priors.

    Args:
        x: `[N, X]`.
        y: `[N]`.
        x_new: `[M, X]`.
        seed: Integer.
        num_chains: Chains, started at draws from the prior.
        num_draws: Draws a chain keeps.
        num_warmup: Draws a chain leaves out.
    """
    scale, centre = np.std(y), np.mean(y)
    targets, distances, distances_new = (y - centre) / scale, cdist(x, x), cdist(x_new, x)
    log_density = functools.partial(_log_posterior, distances, targets)
    chains = []
    for rng in np.random.default_rng(seed).spawn(num_chains):
        start = LOG_MEANS + LOG_STDDEV * rng.standard_normal(3)
        chains.append(slice_sample(log_density, start, num_warmup + num_draws, rng)[num_warmup:])
    draws = np.stack(chains)  # [chains, draws, 3]
    moments = [
        _function_moments(distances, distances_new, targets, theta)
        for theta in draws.reshape(-1, 3)
    ]
    means, variances = np.moveaxis(moments, 1, 0)  # [S, M]
    ends = ((1.0 - LEVEL) / 2.0, 0.5, (1.0 + LEVEL) / 2.0)
    lower, median, upper = (_mixture_quantile(means, np.sqrt(variances), q) for q in ends)
    medians = np.exp(np.median(draws, axis=(0, 1)))
    return {
        "median": centre + scale * median,
        "mean": centre + scale * means.mean(axis=0),
        "lower": centre + scale * lower,
        "upper": centre + scale * upper,
        "chosen": {
            "amplitude": float(scale * medians[0]),
            "length": float(medians[1]),
            "noise": float(scale * medians[2]),
            "rhat": float(np.max(rhat(draws))),
            "ess_bulk": float(np.min(ess_bulk(draws))),
        },
    }


def _matern52(distances, amplitude, length):
    r = np.sqrt(5.0) * distances / length
    return amplitude**2 * (1.0 + r + r**2 / 3.0) * np.exp(-r)


def _whitened(distances, targets, theta):
    """Returns Cholesky factor L of the covariance of the targets, and L^-1 of the targets."""
    amplitude, length, noise = np.exp(theta)
    covariance = _matern52(distances, amplitude, length)
    covariance[np.diag_indices_from(covariance)] += noise**2 + 1e-10 * amplitude**2
    factor = np.linalg.cholesky(covariance)
    return factor, np.linalg.solve(factor, targets)


def _log_posterior(distances, targets, theta):
    """Returns the log density of (log amplitude, log length, log noise), up to a constant."""
    try:
        factor, whitened = _whitened(distances, targets, theta)
    except np.linalg.LinAlgError:  # far in the tail of the prior
        return -np.inf
    log_prior = -0.5 * np.sum(((theta - LOG_MEANS) / LOG_STDDEV) ** 2)
    return log_prior - 0.5 * whitened @ whitened - np.log(np.diagonal(factor)).sum()


def _function_moments(distances, distances_new, targets, theta):
    """Returns mean and variance of f at the new points, `[2, M]`."""
    factor, whitened = _whitened(distances, targets, theta)
    joint = np.linalg.solve(factor, _matern52(distances_new, *np.exp(theta[:2])).T)  # [N, M]
    variance = np.exp(2.0 * theta[0]) - (joint**2).sum(axis=0)
    return np.stack([whitened @ joint, np.maximum(variance, 1e-12)])


def slice_sample(log_density, start, num_draws, rng, width=1.0):
    """Updates one coordinate after the other (Neal 2003, stepping out and shrinkage).

    Returns:
        Draws `[num_draws, P]`.
    """
    theta, current = np.array(start), log_density(start)
    draws = np.empty((num_draws, len(theta)))
    for t in range(num_draws):
        for i in range(len(theta)):
            along = functools.partial(_replaced, log_density, theta, i)
            level = current - rng.standard_exponential()
            left = theta[i] - width * rng.uniform()
            right = left + width
            while along(left) > level:
                left -= width
            while along(right) > level:
                right += width
            theta[i], current = _shrink(along, level, theta[i], left, right, rng)
        draws[t] = theta
    return draws


def _replaced(log_density, theta, i, value):
    changed = theta.copy()
    changed[i] = value
    return log_density(changed)


def _shrink(along, level, centre, left, right, rng):
    while True:
        value = rng.uniform(left, right)
        height = along(value)
        if height > level:
            return value, height
        left, right = (value, right) if value < centre else (left, value)


def _mixture_quantile(means, stddevs, level):
    """Computes the quantile of equally weighted normals, `[S, M]` to `[M]`, by bisection."""
    ends = means + special.ndtri(level) * stddevs
    lower, upper = ends.min(axis=0), ends.max(axis=0)
    for _ in range(50):
        middle = 0.5 * (lower + upper)
        below = special.ndtr((middle - means) / stddevs).mean(axis=0) < level
        lower, upper = np.where(below, middle, lower), np.where(below, upper, middle)
    return 0.5 * (lower + upper)


#: Name -> function of (x, y, x_new, seed).
BASELINES = {
    "gp_rbf": functools.partial(gp_maximum_likelihood, kernel="rbf"),
    "gp_matern32": functools.partial(gp_maximum_likelihood, kernel="matern32"),
    "gp_matern52": functools.partial(gp_maximum_likelihood, kernel="matern52"),
    "gp_matern52_sampled": gp_sampled,
}


# Runs --------------------------------------------------------------------------------------------


def run_baselines(data_dir, names, seed=0, echo=print):
    """Runs every baseline on the functions.

    Returns:
        List of records.
    """
    found = {**versions(), "scikit-learn": sklearn.__version__}
    records = []
    for name in names:
        data = problem(name, data_dir, seed)
        floor = paper_error(data.f_new, data.f_new)
        for method, predict in BASELINES.items():
            begin = time.perf_counter()
            prediction = predict(data.x, data.y, data.x_new, seed)
            seconds = time.perf_counter() - begin
            record = {
                "function": name,
                "method": method,
                "seed": seed,
                **{key: round(v, 5) for key, v in scores(prediction, data.f_new).items()},
                "paper_error_of_true_function": round(floor, 5),
                "seconds": round(seconds, 3),
                "chosen": {key: round(v, 5) for key, v in prediction.pop("chosen").items()},
                "prediction": {key: np.round(v, 4).tolist() for key, v in prediction.items()},
                "versions": found,
                "machine": machine(),
            }
            records.append(record)
            echo(
                f"{name:22s} {method:20s} error {record['error']:.3f}, paper's measure "
                f"{record['paper_error']:.3f}, coverage {record['coverage_90']:.2f}, "
                f"{seconds:.1f} s"
            )
    return records


def fit_stable(data, seed, epochs=30):
    """Fits the stable process on raw inputs and targets, with alpha, nu and sigma inferred.

    There are four chains of `100 * epochs` iterations, with 10 epochs of burn-in first. The
    partition is the joint exact one of the training and the new points.
    """
    model = StableProcessModel(alpha="infer", nu=LogNormal(0.0, 1.5), standardize=False, seed=seed)
    model.fit(data.x, data.y, x_predict=data.x_new, epochs=epochs, verbose=0)
    return model


def run_stable(data_dir, names, seed=0, echo=print):
    """Runs the stable process on the functions.

    Returns:
        List of records.
    """
    records = []
    for name in names:
        data = problem(name, data_dir, seed)
        begin = time.perf_counter()
        model = fit_stable(data, seed)
        seconds = time.perf_counter() - begin
        levels = [(1.0 - LEVEL) / 2.0, 0.5, (1.0 + LEVEL) / 2.0]
        lower, median, upper = model.function_quantiles(data.x_new, levels)[:, 0].T
        prediction = {
            "median": median,
            "mean": model.predict(data.x_new)["mean"][:, 0],
            "lower": lower,
            "upper": upper,
        }
        found = model.diagnostics(np.concatenate([data.x, data.x_new]))
        worst = {key: float(np.max(value.rhat)) for key, value in found.items()}
        bad = np.concatenate([data.x, data.x_new])[found["f"].rhat[:, 0] > 1.05]
        draws = model.posterior_draws()
        record = {
            "function": name,
            "method": "stable_process",
            "seed": seed,
            **{key: round(v, 5) for key, v in scores(prediction, data.f_new).items()},
            "paper_error_of_true_function": round(paper_error(data.f_new, data.f_new), 5),
            "seconds": round(seconds, 3),
            "chosen": {key: round(float(np.median(v)), 5) for key, v in draws.items()},
            "rhat": {key: round(value, 4) for key, value in worst.items()},
            "points_with_rhat_above_1.05": bad.tolist(),
            "prediction": {key: np.round(v, 4).tolist() for key, v in prediction.items()},
            "config": {
                "chains": model.chains.num_chains,
                "iterations": 3000,
                "burn_in": 1000,
                "alpha_prior": [model.alpha.low, model.alpha.high],
                "nu_prior": [model.nu.loc, model.nu.scale],
            },
            "versions": versions(),
            "machine": machine(),
        }
        records.append(record)
        echo(
            f"{name:22s} error {record['error']:.3f}, paper's measure "
            f"{record['paper_error']:.3f}, coverage {record['coverage_90']:.2f}, "
            f"R-hat {worst}, {record['chosen']}, {seconds:.0f} s"
        )
    return records


def main():
    """Runs what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--baselines", action="store_true", help="run the Gaussian processes")
    parser.add_argument("--data-dir", default="../shared/data")
    parser.add_argument("--names", default=",".join(FUNCTIONS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--out", help="results file")
    options = parser.parse_args()
    kind = "baselines" if options.baselines else "stable"
    out = options.out or f"benchmarks/results/stable_functions_{kind}.json"
    for seed in map(int, options.seeds.split(",")):
        for name in options.names.split(","):
            if options.baselines:
                with threadpool_limits(1):  # small matrices: a second thread costs more
                    new = run_baselines(options.data_dir, [name], seed)
            else:
                new = run_stable(options.data_dir, [name], seed)
            place = name, seed
            add_records(out, new, lambda r, place=place: (r["function"], r["seed"]) == place)


if __name__ == "__main__":
    main()
