"""What sampled hyperplanes cost: the process at alpha = 2 with its exact kernel and with L atoms.

At alpha = 2 the stable process is a Gaussian process with the arc-sine kernel, so that the error of
replacing all hyperplanes by L sampled ones can be seen without Markov chains. nu and sigma maximise
the marginal likelihood of the exact kernel; inputs and targets standardised by the training rows.

    python benchmarks/stable_atoms.py --data-dir ../shared/data/uci
"""

import argparse

import numpy as np
import scipy.linalg
import scipy.optimize

from tfp_fnspace import datasets
from tfp_fnspace.benchmark import machine, versions, write_records

RESULTS = "benchmarks/results/stable_atoms.json"
DATASETS, SPLITS, ATOMS = ("yacht", "boston", "energy"), 5, (1000, 4000, 16000)


def arc_sine(a, b):
    """`2/pi arcsin` of the cosines between rows that begin with a 1."""
    cosines = (a @ b.T) / np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))
    return 2.0 / np.pi * np.arcsin(np.clip(cosines, -1.0, 1.0))


def predict(kernel, cross, y, nu, noise):
    """Posterior mean."""
    factor = scipy.linalg.cho_factor(nu * kernel + noise * np.eye(len(y)))
    return nu * cross @ scipy.linalg.cho_solve(factor, y)


def fit(kernel, y):
    """nu and sigma^2 of the largest marginal likelihood."""

    def loss(logs):
        nu, noise = np.exp(logs)
        factor, _ = scipy.linalg.cho_factor(nu * kernel + (noise + 1e-8) * np.eye(len(y)), True)
        solved = scipy.linalg.solve_triangular(factor, y, lower=True)
        return 0.5 * solved @ solved + np.log(np.diag(factor)).sum()

    return np.exp(scipy.optimize.minimize(loss, [1.0, -3.0], method="Nelder-Mead").x)


def errors(split, k):
    """RMSE in the user's units with the exact kernel and with each number of atoms."""
    centre, width = split.x_train.mean(axis=0), split.x_train.std(axis=0)
    width = np.where(width > 0.0, width, 1.0)
    rows = [(x - centre) / width for x in (split.x_train, split.x_test)]
    train, test = (np.concatenate([np.ones((len(x), 1)), x], axis=1) for x in rows)
    y = (split.y_train[:, 0] - split.y_train.mean()) / split.y_train.std()
    kernel = arc_sine(train, train)
    nu, noise = fit(kernel, y)

    def rmse(kernel, cross):
        mean = predict(kernel, cross, y, nu, noise + 1e-8)
        mean = mean * split.y_train.std() + split.y_train.mean()
        return round(float(np.sqrt(np.mean((mean - split.y_test[:, 0]) ** 2))), 4)

    found = {"exact": rmse(kernel, arc_sine(test, train))}
    for atoms in ATOMS:
        planes = np.random.default_rng(k).normal(size=(train.shape[1], atoms))
        signs, new = np.sign(train @ planes), np.sign(test @ planes)
        found[str(atoms)] = rmse(signs @ signs.T / atoms, new @ signs.T / atoms)
    return found


def main():
    """All data sets and splits."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="../shared/data/uci")
    options = parser.parse_args()
    records = []
    for name in DATASETS:
        dataset = datasets.load(name, options.data_dir)
        for k in range(SPLITS):
            records.append(
                {
                    "dataset": name,
                    "split": k,
                    "rmse": errors(dataset.split(k), k),
                    "versions": versions(),
                    "machine": machine(),
                }
            )
            print(name, k, records[-1]["rmse"], flush=True)
    write_records(RESULTS, records)


if __name__ == "__main__":
    main()
