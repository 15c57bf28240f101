"""How well the values at inducing points tell a prior function: draws, inducing points, jitter.

The prior is `sip.bnn_prior` as it starts, the points those of split 0, standardised, the inducing
points training rows. The error is the root mean square of f(x) less its conditional mean given
f(Z), the conditional from S draws and f from 500 others, over the standard deviation of f.
"""

import argparse

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import datasets, sip
from tfp_fnspace.methods.sip.conditional import conditional, empirical_moments

INDUCING = (5, 10, 20, 50, 100, 200)
DRAWS = (20, 100, 300, 1000)
JITTER = (1e-5, 1e-3, 1e-2, 1e-1)
TESTS = 500


def draws(split, seed=0):
    """Functions at inducing points `[S, 200, 1]` and at test points `[S, N, 1]`."""
    mean, stddev = split.x_train.mean(axis=0), split.x_train.std(axis=0)
    order = np.random.default_rng(seed).permutation(len(split.x_train))[: max(INDUCING)]
    points = [(values - mean) / stddev for values in (split.x_train[order], split.x_test)]
    keras.utils.set_random_seed(seed)
    prior = sip.bnn_prior(len(mean), dtype="float64")
    functions = prior.sample(np.vstack(points), max(DRAWS) + TESTS, seed)
    return tf.split(functions, [len(order), -1], axis=1)


def error(at_z, at_x, num_inducing, num_draws, jitter):
    """See the module."""
    at_z = at_z[:, :num_inducing]
    law = conditional(empirical_moments(at_x[:num_draws], at_z[:num_draws]), jitter)
    tests = at_x[-TESTS:]
    residuals = (tests - law.mean(at_z[-TESTS:])).numpy()
    return np.sqrt(np.mean(residuals**2)) / tests.numpy().std(axis=0).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", help="folder of uci/<name>.npz (or TFP_FNSPACE_DATA)")
    parser.add_argument("--datasets", default="yacht,boston")
    options = parser.parse_args()
    for name in options.datasets.split(","):
        at_z, at_x = draws(datasets.load(f"uci/{name}", options.data_dir).split(0))
        print(f"{name}\n{'S':>5} {'jitter':>7}", *(f"M={m:<4}" for m in INDUCING))
        for jitter in JITTER:
            for count in DRAWS:
                row = (error(at_z, at_x, m, count, jitter) for m in INDUCING)
                print(f"{count:>5} {jitter:>7.0e}", *(f"{value:<6.2f}" for value in row))


if __name__ == "__main__":
    main()
