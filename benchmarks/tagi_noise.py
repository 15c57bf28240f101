"""Noise learnt by AGVI on data with a known noise curve, beside constant noise.

    python benchmarks/tagi_noise.py

The data `sine` follow equation 20 of the paper on sparse implicit processes, y = 7 sin x + e sin x
+ 10, e ~ N(0, 4), at 1000 points on [-4, 4]. The data `ramp` are y = 20 sin 2x + v, v ~ N(0, (1 + 9
max(x, 0))^2), at 1000 points on [-2, 2]. The models have two layers of 50 ReLU units with exact
moments, 50 epochs, and batches of 10. Their noise is a second output (`curve`), one learnt scale
(`constant`), or a scale chosen by cross-validation (`cross_validated`). `curve_error` is the
integral of |estimated - true stddev of the noise| over that of the true one. nll is on 1000 new
points, and `truth` is that of the generator.
"""

import argparse

import keras
import numpy as np
from scipy import stats

from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.benchmark import read_records, run_missing

RESULTS = "benchmarks/results/tagi_noise.json"
EPOCHS = 50


def sine(x):
    return 7.0 * np.sin(x) + 10.0, 2.0 * np.abs(np.sin(x))


def ramp(x):
    return 20.0 * np.sin(2.0 * x), 1.0 + 9.0 * np.maximum(x, 0.0)


#: Name -> mean and standard deviation of y at x, and the end of the interval.
DATA = {"sine": (sine, 4.0), "ramp": (ramp, 2.0)}

#: Name -> likelihood, outputs for a target, option `noise`.
MODELS = {
    "curve": (likelihoods.HeteroscedasticGaussian, 2, None),
    "constant": (lambda: likelihoods.Gaussian(1.0, trainable=True), 1, None),
    "cross_validated": (lambda: likelihoods.Gaussian(1.0), 1, "cross_validate"),
}


def draw(name, seed, count=1000):
    """Draws inputs and targets, and returns their true mean and standard deviation too."""
    rng = np.random.default_rng(seed)
    function, end = DATA[name]
    x = rng.uniform(-end, end, size=(count, 1))
    mean, stddev = function(x)
    return x, mean + stddev * rng.normal(size=x.shape), mean, stddev


def run(data, model, seed):
    """Fits and scores one model."""
    x, y, *_ = draw(data, 2 * seed)
    make, outputs, noise = MODELS[model]
    tensor = inputs = keras.Input((1,))
    for _ in range(2):
        activation = tagi.Activation("relu", moments="exact")
        tensor = tagi.Dense(50, activation=activation, bias_variance=0.5)(tensor)
    fitted = tagi.TAGIModel(
        inputs, tagi.Dense(outputs)(tensor), likelihood=make(), noise=noise, seed=seed
    )
    fitted.fit(x, y, epochs=EPOCHS, batch_size=10, verbose=0)
    x, y, mean, stddev = draw(data, 2 * seed + 1)
    scores = fitted.evaluate(x, y, return_dict=True, verbose=0)
    function, end = DATA[data]
    grid = np.linspace(-end, end, 801)[:, np.newaxis]
    true, found = function(grid)[1], fitted.predict(grid)["aleatoric_stddev"]
    return {
        "curve_error": round(float(np.abs(found - true).mean() / true.mean()), 4),
        "nll": round(scores["nll"], 4),
        "rmse": round(scores["rmse"], 4),
        "coverage_90": round(scores["coverage_90"], 4),
        "truth": round(float(-stats.norm(mean, stddev).logpdf(y).mean()), 4),
        "noise": [round(float(v), 4) for v in (found.min(), found.mean(), found.max())],
        "epochs": EPOCHS,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    cells = [
        {"data": data, "model": model, "seed": seed}
        for seed in range(options.seeds)
        for data in DATA
        for model in MODELS
    ]
    for record in run_missing(options.out, cells, run):
        print({key: record[key] for key in ("data", "model", "seed", "nll", "truth")}, flush=True)
    for data in DATA:
        for model in MODELS:
            rows = [
                r for r in read_records(options.out) if (r["data"], r["model"]) == (data, model)
            ]
            mean = {key: np.mean([r[key] for r in rows]) for key in ("curve_error", "nll", "truth")}
            print(data, model, {key: round(float(value), 3) for key, value in mean.items()})


if __name__ == "__main__":
    main()
