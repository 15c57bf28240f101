"""How well the values at inducing points determine a prior function.

The tables vary draws, inducing points and jitter.

- `table: error`: the prior is `sip.bnn_prior` as it starts, the points are those of split 0,
  standardised, and the inducing points are training rows. `error` is the root mean square of f(x)
  less its conditional mean given f(Z), over the standard deviation of f, by number of inducing
  points. The conditional is from S = `draws` draws and f from 500 others.
- `table: training`: `SIPModel` on split 0 with S = 100, alpha 0.5, batches of 100, 1,500 steps of
  Adam from 3e-3 by a cosine, seed 0.

    python benchmarks/sip_conditional.py --data-dir ../shared/data
"""

import argparse
import functools

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import datasets, sip
from tfp_fnspace.benchmark import run_missing
from tfp_fnspace.methods.sip.equations import conditional, empirical_moments, mixture

RESULTS = "benchmarks/results/sip_conditional.json"
INDUCING = (5, 10, 20, 50, 100, 200)
DRAWS = (20, 100, 300, 1000)
JITTER = (1e-5, 1e-3, 1e-2, 1e-1)
TESTS = 500
TRAINED = ((100, 1e-5), (100, 1e-2), (20, 1e-5), (20, 1e-2))
STEPS, BATCH = 1500, 100


@functools.cache
def prior_draws(dataset, data_dir, seed=0):
    """Draws functions at inducing points `[S, 200, 1]` and at test points `[S, N, 1]`."""
    split = datasets.load(f"uci/{dataset}", data_dir).split(0)
    mean, stddev = split.x_train.mean(axis=0), split.x_train.std(axis=0)
    order = np.random.default_rng(seed).permutation(len(split.x_train))[: max(INDUCING)]
    points = [(values - mean) / stddev for values in (split.x_train[order], split.x_test)]
    keras.utils.set_random_seed(seed)
    prior = sip.bnn_prior(len(mean), dtype="float64")
    functions = prior.sample(np.vstack(points), max(DRAWS) + TESTS, seed)
    return tf.split(functions, [len(order), -1], axis=1)


def error(at_z, at_x, num_draws, jitter):
    """Computes `error` of the module's docstring."""
    given = conditional(empirical_moments(at_x[:num_draws], at_z[:num_draws]), jitter)
    tests = at_x[-TESTS:]
    residuals = (tests - mixture(given, at_z[-TESTS:]).mean).numpy()
    return float(np.sqrt(np.mean(residuals**2)) / tests.numpy().std(axis=0).mean())


def train(split, num_inducing, jitter, draws):
    """Returns scores of a fit, on both parts of the split."""
    model = sip.SIPModel(
        inducing_points=num_inducing,
        prior_draws=sip.PriorDraws(draws, jitter=jitter),
        num_samples=draws,
        seed=0,
    )
    epochs = STEPS // -(-len(split.x_train) // BATCH)
    rate = keras.optimizers.schedules.CosineDecay(3e-3, STEPS, alpha=0.01)
    model.compile(keras.optimizers.Adam(rate))
    model.fit(split.x_train, split.y_train, batch_size=BATCH, epochs=epochs, verbose=0)
    parts = {"train": (split.x_train, split.y_train), "test": (split.x_test, split.y_test)}
    scores = {}
    for part, (x, y) in parts.items():
        found = model.evaluate(x, y, verbose=0, return_dict=True)
        scores.update({f"{part}_{name}": float(found[name]) for name in ("rmse", "nll")})
    return scores


def run(data_dir, table, dataset, jitter, draws, inducing=None):
    """Returns what a record says beside its cell."""
    if table == "training":
        split = datasets.load(f"uci/{dataset}", data_dir).split(0)
        return train(split, inducing, jitter, draws)
    at_z, at_x = prior_draws(dataset, data_dir)
    return {"error": {m: error(at_z[:, :m], at_x, draws, jitter) for m in INDUCING}}


def main():
    """Runs what the results file does not have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", help="folder of uci/<name>.npz (or TFP_FNSPACE_DATA)")
    options = parser.parse_args()
    cells = [
        {"table": "error", "dataset": dataset, "jitter": jitter, "draws": draws}
        for dataset in ("yacht", "boston")
        for jitter in JITTER
        for draws in DRAWS
    ]
    cells += [
        {"table": "training", "dataset": "yacht", "jitter": jitter, "draws": 100, "inducing": m}
        for m, jitter in TRAINED
    ]
    for record in run_missing(RESULTS, cells, functools.partial(run, options.data_dir)):
        print(record)


if __name__ == "__main__":
    main()
