"""Exact Gaussian processes on the UCI sets: the yardstick beside sampled stable processes.

ARD squared exponential kernel with a constant amplitude and noise, maximum marginal likelihood from
two starting points (scikit-learn), inputs and targets standardised by the training rows.

    python benchmarks/uci_gp.py --datasets yacht,boston,energy --splits 0-4
"""

import argparse
import time
import warnings

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from tfp_fnspace import datasets
from tfp_fnspace.benchmark import (
    machine,
    parse_splits,
    read_records,
    score,
    summary,
    versions,
    write_records,
)

tfd = tfp.distributions


class ExactGP:
    """A Gaussian process with the two calls that `benchmark.score` needs."""

    def __init__(self, seed):
        self.seed = seed

    def fit(self, x, y):
        """Standardises and maximises the marginal likelihood."""
        self.centre, self.width = x.mean(axis=0), np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), 1)
        kernel = kernels.ConstantKernel(1.0, (1e-2, 1e3)) * kernels.RBF(
            np.full(x.shape[1], 2.0), (1e-1, 1e3)
        ) + kernels.WhiteKernel(0.1, (1e-5, 1e1))
        self.process = GaussianProcessRegressor(
            kernel, normalize_y=True, n_restarts_optimizer=1, random_state=self.seed
        )
        with warnings.catch_warnings():  # lengths of irrelevant inputs end at their bound
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.process.fit((x - self.centre) / self.width, y[:, 0])

    def predict_distribution(self, x):
        """Normal observations, batch `[N]`, event `[1]`."""
        mean, stddev = self.process.predict((x - self.centre) / self.width, return_std=True)
        columns = [tf.constant(v[:, np.newaxis], tf.float32) for v in (mean, stddev)]
        return tfd.Independent(tfd.Normal(*columns), reinterpreted_batch_ndims=1)


def main():
    """Runs the cells that are not in the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--datasets", default="yacht,boston,energy")
    parser.add_argument("--splits", default="0-4")
    parser.add_argument("--data-dir", default="../shared/data/uci")
    parser.add_argument("--out", default="benchmarks/results/uci_gp.json")
    options = parser.parse_args()
    for name in options.datasets.split(","):
        dataset = datasets.load(name, options.data_dir)
        for k in parse_splits(options.splits, dataset.num_splits):
            records = read_records(options.out)
            if any((r["dataset"], r["split"]) == (name, k) for r in records):
                continue
            split, model = dataset.split(k), ExactGP(k)
            begin = time.monotonic()
            model.fit(split.x_train, split.y_train)
            seconds = time.monotonic() - begin
            record = {
                "method": "exact_gp",
                "dataset": name,
                "split": k,
                **score(model, split),
                "seconds": round(seconds, 3),
                "chosen": str(model.process.kernel_),
                "versions": versions(),
                "machine": machine(),
            }
            write_records(options.out, [*records, record])
            print(name, k, f"rmse {record['rmse']:.3f}, nll {record['nll']:.3f}", flush=True)
    print(summary(read_records(options.out)))


if __name__ == "__main__":
    main()
