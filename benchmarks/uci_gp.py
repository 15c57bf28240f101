"""Exact Gaussian processes on the UCI sets: the yardsticks of methods with such a prior.

ARD squared exponential kernel with a constant amplitude and noise, maximum marginal likelihood from
two starting points (scikit-learn), inputs and targets standardised by the training rows:
`exact_gp`. With `--given`, `given_gp`: the posterior of the very process that fBNN gets as its
prior, which is fitted by this library.

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
    add_records,
    machine,
    parse_splits,
    read_records,
    score,
    summary,
    versions,
)
from tfp_fnspace.processes.fitted import fitted_prior

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
        self.description = str(self.process.kernel_)

    def predict_distribution(self, x):
        """Normal observations, batch `[N]`, event `[1]`."""
        mean, stddev = self.process.predict((x - self.centre) / self.width, return_std=True)
        columns = [tf.constant(v[:, np.newaxis], tf.float32) for v in (mean, stddev)]
        return tfd.Independent(tfd.Normal(*columns), reinterpreted_batch_ndims=1)


class GivenGP:
    """The same of the process that the recipe of fBNN takes as its prior."""

    def __init__(self, seed):
        del seed  # of the rows, where there are more than 1000

    def fit(self, x, y):
        """Fits the process and keeps the rows."""
        self.centre, self.width = x.mean(axis=0), np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), 1)
        self.offset, self.unit = y.mean(), y.std()
        self.process = fitted_prior(x, y, 1000, 0, "float64")
        self.x, self.y = (x - self.centre) / self.width, (y[:, 0] - self.offset) / self.unit
        names = ("scale_diag", "kernel")
        lengths, smooth = (getattr(self.process.kernel(), name) for name in names)
        self.description = (
            f"amplitude {float(smooth.amplitude):.4g}, lengths {np.round(lengths, 3).tolist()}, "
            f"noise {float(self.process.noise_scale):.4g}"
        )

    def predict_distribution(self, x):
        """Normal observations, batch `[N]`, event `[1]`."""
        noise = tf.square(self.process.noise_scale)
        posterior = tfd.GaussianProcessRegressionModel(
            self.process.kernel(),
            (x - self.centre) / self.width,
            self.x,
            self.y - self.process.mean,
            observation_noise_variance=noise,
        )
        mean = self.offset + self.unit * (posterior.mean() + self.process.mean)
        columns = [tf.cast(v, tf.float32) for v in (mean, self.unit * posterior.stddev())]
        law = tfd.Normal(*(v[:, tf.newaxis] for v in columns))
        return tfd.Independent(law, reinterpreted_batch_ndims=1)


def main():
    """Runs the cells that are not in the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--datasets", default="yacht,boston,energy")
    parser.add_argument("--splits", default="0-4")
    parser.add_argument("--data-dir", default="../shared/data/uci")
    parser.add_argument("--out", help="by default uci_gp.json or uci_given_gp.json")
    parser.add_argument("--given", action="store_true", help="the prior that fBNN gets")
    options = parser.parse_args()
    method = "given_gp" if options.given else "exact_gp"
    name = "uci_given_gp.json" if options.given else "uci_gp.json"
    out = options.out or f"benchmarks/results/{name}"
    for name in options.datasets.split(","):
        dataset = datasets.load(name, options.data_dir)
        for k in parse_splits(options.splits, dataset.num_splits):
            records = read_records(out)
            if any((r["method"], r["dataset"], r["split"]) == (method, name, k) for r in records):
                continue
            split, model = dataset.split(k), (GivenGP if options.given else ExactGP)(k)
            begin = time.monotonic()
            model.fit(split.x_train, split.y_train)
            seconds = time.monotonic() - begin
            record = {
                "method": method,
                "dataset": name,
                "split": k,
                **score(model, split),
                "seconds": round(seconds, 3),
                "chosen": model.description,
                "versions": versions(),
                "machine": machine(),
            }
            add_records(out, [record])
            print(name, k, f"rmse {record['rmse']:.3f}, nll {record['nll']:.3f}", flush=True)
    print(summary(read_records(out)))


if __name__ == "__main__":
    main()
