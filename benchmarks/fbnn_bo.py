"""Bayesian optimisation of functions drawn from Gaussian processes (figure 5 of the paper).

The task is the minimum of functions of three inputs on [-1, 1]^3. They are drawn from processes
with a squared exponential kernel (length 0.6), an arc-cosine kernel of order 1, and a Matern 1/2
kernel (length 1), with variance 1 (at |x| = 1 for the arc-cosine). Values have no noise. Five
random queries come first, then 30 by max-value entropy search with 10 sampled minima, each from 30
starting points.

- `fbnn`: one hidden layer of 200 units. For the stationary kernels they are cosines whose
  frequencies start as draws of N(0, 2^2), for the arc-cosine they are ReLU. The posterior of the
  output weights has a full covariance (the paper: 5 x 100). The prior is the true kernel, with 30
  uniform measurement points beside all queries and 50 functions a step. After each query, 300 steps
  of Adam (3e-3) on all values continue from the last state (the paper: 20,000).
- `bayes_by_backprop`: 1 x 100 ReLU units, one of the paper's two networks, priors N(0, 1 / fan-in),
  10 draws, the same steps.
- `random_features`: Bayesian linear regression on 500 random Fourier features of the squared
  exponential kernel, whatever the function's kernel, as in the paper.
- `random_search`: uniform queries.

    python benchmarks/fbnn_bo.py
"""

import argparse
import itertools

import keras
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from figure_style import COLOURS

from tfp_fnspace import decisions, fbnn, kernels, layers, likelihoods, processes
from tfp_fnspace.benchmark import read_records, run_missing
from tfp_fnspace.methods.fbnn.benchmark import network as factorised_network

tfpk = tfp.math.psd_kernels

RESULTS, PLOT = "benchmarks/results/fbnn_bo.json", "docs/images/fbnn_bo.png"
OPTIMISERS = {
    "fbnn": "fBNN",
    "bayes_by_backprop": "Bayes by Backprop",
    "random_features": "random features",
    "random_search": "random search",
}
SIZE, FIRST, QUERIES, STEPS = 3, 5, 30, 300
UNITS, FREQUENCY = 200, 2.0
LOW, HIGH = -np.ones(SIZE), np.ones(SIZE)
NOISE = 0.05

KERNELS = {
    "squared exponential": lambda: tfpk.ExponentiatedQuadratic(1.0, 0.6),
    "arc-cosine": lambda: kernels.ArcCosineKernel(1, 1.0),
    "Matern 1/2": lambda: tfpk.MaternOneHalf(1.0, 1.0),
}


class SampledFunction:
    """A draw of a Gaussian process, computed on demand.

    Args:
        kernel: TFP kernel.
        seed: Integer.
    """

    def __init__(self, kernel, seed):
        self.kernel, self.random = kernel, np.random.default_rng([seed, 0])
        self.x, self.values = np.zeros((0, SIZE)), np.zeros(0)

    def __call__(self, x):
        everywhere = np.concatenate([self.x, x[np.newaxis]])
        k = self.kernel.matrix(*[tf.constant(everywhere, tf.float32)] * 2).numpy().astype(float)
        k += 1e-6 * np.eye(len(k))
        weights = np.linalg.solve(k[:-1, :-1], k[:-1, -1]) if len(self.x) else np.zeros(0)
        variance = max(k[-1, -1] - weights @ k[:-1, -1], 0.0)
        value = weights @ self.values + np.sqrt(variance) * self.random.normal()
        self.x, self.values = everywhere, np.append(self.values, value)
        return value


def network(kernel):
    """Returns inputs and outputs of one hidden layer that has the kernel in the limit."""
    inputs = keras.Input((SIZE,))
    if isinstance(kernel, kernels.ArcCosineKernel):
        options = {"activation": "relu"}
    else:
        options = {
            "activation": keras.ops.cos,
            "kernel_initializer": keras.initializers.RandomNormal(stddev=FREQUENCY),
            "bias_initializer": keras.initializers.RandomUniform(0.0, 2.0 * np.pi),
        }
    hidden = layers.VariationalDense(UNITS, **options)(inputs)
    return inputs, layers.VariationalDense(1, posterior="full")(hidden)


class Network:
    """A model of a network that continues training after each query."""

    def __init__(self, kernel, functional, seed):
        options = {"likelihood": likelihoods.Gaussian(NOISE), "standardize": False, "seed": seed}
        if functional:
            measurement = fbnn.Box(30, margin=0.0)
            measurement.build((None, SIZE))
            measurement.adapt(np.stack([LOW, HIGH]).astype(np.float32))
            prior = processes.GaussianProcess(kernel, jitter=1e-5)
            prior.build((None, SIZE))
            options |= {"prior": prior, "measurement": measurement, "num_samples": 50}
            self.model = fbnn.FBNNModel(network(kernel), **options)
        else:
            # `fit` sees the rows of all steps at once, so its N is STEPS times theirs.
            options |= {"num_samples": 10, "kl_weight": float(STEPS), "kl_annealing_steps": 0}
            self.model = fbnn.VariationalModel(factorised_network(SIZE, [100]), **options)
        self.model.compile(optimizer=keras.optimizers.Adam(3e-3))

    def fit(self, x, y):
        rows, targets = np.tile(x, (STEPS, 1)), np.tile(y[:, np.newaxis], (STEPS, 1))
        self.model.fit(rows, targets, batch_size=len(x), shuffle=False, verbose=0)
        return self.model


class RandomFeatures:
    """Bayesian linear regression on random Fourier features, as a model for `decisions`."""

    draws_smooth_functions, num_outputs = True, 1

    def __init__(self, seed, num_features=500, length=0.6):
        random = np.random.default_rng([seed, 1])
        self.input_tensors = [keras.KerasTensor((None, SIZE), "float64")]
        self.frequencies = random.normal(size=(SIZE, num_features)) / length
        self.phases = random.uniform(0.0, 2.0 * np.pi, num_features)
        self.scale = np.sqrt(2.0 / num_features)

    def _features(self, x):
        return self.scale * tf.cos(tf.matmul(x, self.frequencies) + self.phases)

    def fit(self, x, y):
        features = self._features(tf.constant(x, tf.float64)).numpy()
        precision = features.T @ features / NOISE**2 + np.eye(features.shape[1])
        covariance = np.linalg.inv(precision)
        self.mean = covariance @ features.T @ y / NOISE**2
        self.root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(covariance)))
        return self

    def draw_functions(self, x, num_samples, seed):
        noise = tf.random.stateless_normal([len(self.mean), num_samples], seed, dtype=tf.float64)
        weights = self.mean[:, np.newaxis] + tf.matmul(self.root, noise)
        return tf.transpose(tf.matmul(self._features(x[0]), weights))[..., tf.newaxis]

    def predict(self, x, verbose=0):
        features = self._features(tf.constant(x, tf.float64)).numpy()
        stddev = np.linalg.norm(features @ self.root, axis=1)
        return {"mean": (features @ self.mean)[:, None], "epistemic_stddev": stddev[:, None]}


class RandomSearch:
    """Draws queries without a model."""

    def fit(self, x, y):
        return None


METHODS = {
    "fbnn": lambda kernel, seed: Network(kernel, True, seed),
    "bayes_by_backprop": lambda kernel, seed: Network(kernel, False, seed),
    "random_features": lambda kernel, seed: RandomFeatures(seed),
    "random_search": lambda kernel, seed: RandomSearch(),
}


def run(kernel, method, seed):
    """Runs one case, and returns the smallest value after each query."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    random, kernel = np.random.default_rng([seed, 2]), KERNELS[kernel]()
    function, agent = SampledFunction(kernel, seed), METHODS[method](kernel, seed)
    points = list(random.uniform(LOW, HIGH, size=(FIRST, SIZE)))
    values = [function(x) for x in points]
    for query in range(QUERIES):
        model = agent.fit(np.array(points, np.float32), np.array(values, np.float32))
        x = random.uniform(LOW, HIGH)
        if model is not None:
            x = decisions.suggest(model, LOW, HIGH, seed=(seed, query))
        points.append(x)
        values.append(function(x))
    smallest = np.minimum.accumulate(values)[FIRST - 1 :]
    return {"smallest": [round(float(v), 4) for v in smallest]}


def plot(records):
    """Plots the smallest value against the queries; bands are 0.2 standard deviations."""
    figure, panels = plt.subplots(1, len(KERNELS), figsize=(9.6, 3.2), layout="constrained")
    for panel, kernel in zip(panels, KERNELS, strict=True):
        for colour, method in zip(COLOURS.values(), METHODS, strict=False):
            rows = [
                r["smallest"] for r in records if (r["kernel"], r["method"]) == (kernel, method)
            ]
            if not rows:
                continue
            mean, spread = np.mean(rows, axis=0), 0.2 * np.std(rows, axis=0)
            queries = np.arange(len(mean))
            panel.plot(queries, mean, color=colour, label=OPTIMISERS[method])
            panel.fill_between(queries, mean - spread, mean + spread, color=colour, alpha=0.2)
        panel.set_title(kernel)
        panel.set_xlabel("queries")
    panels[0].set_ylabel("smallest value found")
    panels[0].legend(frameon=False)
    figure.savefig(PLOT, dpi=130)


def main():
    """Runs what is not in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", default=RESULTS)
    options = parser.parse_args()
    names = (options.kernels.split(","), options.methods.split(","))
    cells = [
        {"kernel": kernel, "method": method, "seed": seed}
        for seed, kernel, method in itertools.product(range(options.seeds), *names)
    ]
    for record in run_missing(options.out, cells, run):
        shown = ("kernel", "method", "seed")
        print(*(record[k] for k in shown), record["smallest"][-1], record["seconds"], flush=True)
    if options.out == RESULTS:
        plot(read_records(RESULTS))


if __name__ == "__main__":
    main()
