"""Effects of injected noise and of the score's estimator on the bound, where all is known.

A linear model has four rows, five weights with N(0, 1) priors, and noise 0.3. The prior on
functions is a Gaussian process with a linear kernel. The posterior is a normal distribution with
full covariance, so the evidence, the exact posterior and the divergence of any q from it have
closed forms. Each cell trains q in float64 for 1,200 steps on all rows, with 100 functions a step
and Adam with 5e-2, 1e-2 and 2e-3 in 400 steps each. It writes, in nats (of all rows) and in
standard deviations of the exact posterior of f at the rows:

- `objective_minus_evidence`: mean of the objective over the last 100 steps; positive where it is no
  bound;
- `bound_minus_evidence`: what Theorem 2 says of the trained q at gamma = 0, `-KL[q || posterior]`;
- `mean_error`: the largest |error| of the posterior mean; `stddev_ratios`: the least and the
  largest ratio of standard deviations.

    python benchmarks/fbnn_bound.py
"""

import keras
import numpy as np
import tensorflow_probability as tfp

from tfp_fnspace import fbnn, layers, likelihoods, processes
from tfp_fnspace.benchmark import read_records, run_missing

RESULTS = "benchmarks/results/fbnn_bound.json"
NOISE, ROWS, STEPS = 0.3, 4, 1200

#: Estimators of the score: (bandwidth, whiten). The first is the paper's, the last the default.
ESTIMATORS = {"paper": (1.0, False), "longer": (2.0, False), "whitened": (2.0, True)}

GAMMAS = (0.0, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0)


def data():
    """Returns rows, targets, and the features of the weights and the bias."""
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, 4))
    y = x @ random.normal(size=(4, 1)) + NOISE * random.normal(size=(ROWS, 1))
    return x, y, np.concatenate([x, np.ones((ROWS, 1))], axis=1)


def exact(y, features):
    """Returns the log evidence, and mean and covariance of f at the rows given them."""
    gram = features @ features.T
    total = gram + NOISE**2 * np.eye(ROWS)
    gain = gram @ np.linalg.inv(total)
    evidence = -0.5 * (y.T @ np.linalg.solve(total, y)).item()
    evidence -= 0.5 * (np.linalg.slogdet(total)[1] + ROWS * np.log(2.0 * np.pi))
    return evidence, (gain @ y)[:, 0], gram - gain @ gram


def divergence(mean, covariance, other_mean, other_covariance):
    """Computes `KL[N || N]`."""
    inverse, difference = np.linalg.inv(other_covariance), other_mean - mean
    logs = np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1]
    square = difference @ inverse @ difference
    return 0.5 * (np.trace(inverse @ covariance) + square - len(mean) + logs)


def trained(x, y, gamma, estimator, seed):
    """Returns mean and covariance of the trained weights, and the last objectives of a row."""
    keras.utils.set_random_seed(seed)
    bandwidth, whiten = ESTIMATORS[estimator]
    layer = layers.VariationalDense(1, posterior="full", prior="standard", dtype="float64")
    kernel = tfp.math.psd_kernels.Linear(1.0, 1.0)
    model = fbnn.FBNNModel(
        keras.Sequential([keras.Input((4,), dtype="float64"), layer]),
        processes.GaussianProcess(kernel, jitter=0.0, dtype="float64"),
        likelihood=likelihoods.Gaussian(NOISE, dtype="float64"),
        measurement=fbnn.TrainingRows(),
        divergence=fbnn.Stein(gamma, bandwidth=bandwidth, whiten=whiten, monitor_steps=1),
        kl_weight="data",
        num_samples=100,
        standardize=False,
        seed=seed,
        dtype="float64",
    )
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [STEPS // 3, 2 * STEPS // 3], [5e-2, 1e-2, 2e-3]
    )
    model.compile(optimizer=keras.optimizers.Adam(schedule), num_rows=ROWS)
    copies = [np.tile(a, (100, 1)) for a in (x, y)]  # an epoch is 100 steps on all rows
    options = {"batch_size": ROWS, "epochs": STEPS // 100, "shuffle": False, "verbose": 0}
    history = model.fit(*copies, **options).history
    mean = np.concatenate([value.numpy().ravel() for value in layer.posterior.means.values()])
    lower = layer.posterior.cholesky().numpy()
    return mean, lower @ lower.T, history["elbo"][-1]


def run(estimator, gamma, seed):
    """Compares one trained q with the exact posterior."""
    x, y, features = data()
    evidence, mean, covariance = exact(y, features)
    weights, spread, elbo = trained(x, y, gamma, estimator, seed)
    ours = features @ weights, features @ spread @ features.T
    stddev = np.sqrt(np.diag(covariance))
    ratios = np.sqrt(np.diag(ours[1])) / stddev
    return {
        "objective_minus_evidence": round(float(ROWS * elbo - evidence), 3),
        "bound_minus_evidence": round(-float(divergence(*ours, mean, covariance)), 3),
        "mean_error": round(float(np.abs((ours[0] - mean) / stddev).max()), 3),
        "stddev_ratios": [round(float(r), 3) for r in (ratios.min(), ratios.max())],
        "steps": STEPS,
    }


def main():
    """Runs what is missing and prints all."""
    cells = [{"estimator": name, "gamma": 0.0, "seed": 0} for name in ESTIMATORS]
    cells += [{"estimator": "whitened", "gamma": gamma, "seed": 0} for gamma in GAMMAS[1:]]
    for record in run_missing(RESULTS, cells, run):
        print(f"{record['seconds']} s", flush=True)
    for r in read_records(RESULTS):
        shown = ("objective_minus_evidence", "bound_minus_evidence", "mean_error", "stddev_ratios")
        print(r["estimator"], r["gamma"], *(r[name] for name in shown), sep="\t")


if __name__ == "__main__":
    main()
