"""Gradients of the divergence and of the data term in the prior (figure 5 of the SIP paper).

The objective of equation 15 drops the direct dependence of the divergence on the prior's parameters
theta and the inducing points, because its gradient is said to be negligible. SIP with a Bayesian
network as prior (`"forward"`, protocol of `sip_figures.py`) is fitted to the bimodal rows. Then
the posterior and the prior stay fixed, and these gradients are measured:

- `data`: gradient of the data term, summed over the rows, mean and standard error of 40 seeds.
- `discriminator`: as in the paper, finite differences of E_q[T] with the discriminator trained
  again at each of the two places: 3000 steps before, 300 at each place (Adam, 1e-4), the same seeds
  at both; mean and standard error of 3 seeds. Differences are 0.05 in theta, 0.1 in standardised x.
- `gaussian`: gradient of the divergence between the Gaussian distributions with the moments of 4000
  draws of q and p, each with 1e-2 of the prior's mean variance on its diagonal; no discriminator.
  Mean and standard error of 10 seeds.

The gradients are in all 50 inducing points, and in the 50 parameters of the prior with the largest
gradient in the data term (the paper: 500).

    python benchmarks/sip_gradients.py [--data-dir ../shared/data]
"""

import argparse
import os
import pathlib
import time

import keras
import matplotlib.pyplot as plt
import numpy as np
import sip_figures
import tensorflow as tf
from figure_style import COLOURS, save
from packing import numbers, packed

from tfp_fnspace.benchmark import read_records, run_missing
from tfp_fnspace.math.random import split
from tfp_fnspace.methods.sip import given_prior

RESULTS = pathlib.Path("benchmarks/results/sip_gradients.json")
EPOCHS, PARAMETERS, DRAWS = 400, 50, 4000
DATA_SEEDS, RETRAININGS, GAUSSIAN_SEEDS = 40, 3, 10
STEPS_BEFORE, STEPS, RATE = 3000, 300, 1e-4
STEP_SIZES = {"theta": 0.05, "inducing points": 0.1}


def mean_and_error(values):
    """Returns mean and standard error over the first axis."""
    values = np.asarray(values)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


class Gradients:
    """Both terms as functions of a model's prior and inducing points."""

    def __init__(self, model, x, y):
        self.model = model
        self.inputs = model.units.scaled([tf.constant(x)])
        self.targets = model.units.target_scaler(tf.constant(y))
        self.variables = [*model.prior.trainable_variables, model.inducing_inputs]
        self.log_ratio_variables = [v.value for v in model.log_ratio.trainable_variables]
        self.optimizer = keras.optimizers.Adam(RATE)
        self.optimizer.build(model.log_ratio.trainable_variables)
        model.discriminator_optimizer = self.optimizer
        self.train = tf.function(self._train, autograph=False)
        self.divergence = tf.function(self._divergence, autograph=False)

    def flat(self, gradients):
        """Returns gradients of all variables as one vector."""
        pairs = zip(gradients, self.variables, strict=True)
        return np.concatenate(
            [np.zeros(v.shape).ravel() if g is None else g.numpy().ravel() for g, v in pairs]
        )

    def gradient(self, value, seeds):
        """Returns mean and standard error over seeds of the gradient of a function of a seed."""

        @tf.function(autograph=False)
        def one(seed):
            with tf.GradientTape() as tape:
                result = value(seed)
            return tape.gradient(result, [v.value for v in self.variables])

        return mean_and_error([self.flat(one(tf.constant([7, i]))) for i in range(seeds)])

    def data_term(self, seed):
        """Computes the sum over the rows, by all of them at once."""
        count = tf.cast(len(self.targets), self.targets.dtype)
        _, parts = self.model.objective(self.inputs, self.targets, count, seed)
        return count * parts["log_likelihood"]

    def gaussian(self, seed):
        """Computes the divergence of the Gaussian distributions with the moments of q and p."""
        distributions = []
        u = self.model.posterior_draws(DRAWS, tf.stack([seed[0], -seed[1]]), False)
        z = tf.convert_to_tensor(self.model.inducing_inputs.value)
        for draws in (u, given_prior.draws(self.model, z, DRAWS, seed)):
            draws = tf.reshape(draws, [DRAWS, -1])
            mean = tf.reduce_mean(draws, axis=0)
            distributions.append(
                (mean, tf.matmul(draws - mean, draws - mean, transpose_a=True) / DRAWS)
            )
        (mean_q, q), (mean_p, p) = distributions
        size = q.shape[0]
        jitter = 1e-2 * tf.stop_gradient(tf.linalg.trace(p)) / size * tf.eye(size)
        roots = [tf.linalg.cholesky(k + jitter) for k in (q, p)]
        solved = tf.linalg.triangular_solve(roots[1], roots[0])
        shift = tf.linalg.triangular_solve(roots[1], (mean_p - mean_q)[:, tf.newaxis])
        determinants = [tf.reduce_sum(tf.math.log(tf.linalg.diag_part(r))) for r in roots]
        squares = tf.reduce_sum(solved**2) + tf.reduce_sum(shift**2)
        return 0.5 * (squares - size) + determinants[1] - determinants[0]

    def _train(self, steps, seed):
        """Runs steps of the discriminator."""

        log_ratio, optimizer = self.model.log_ratio, self.model.discriminator_optimizer

        def step(i):
            seeds = split(tf.stack([seed, i]), 2)
            q, p = map(tf.stop_gradient, self.model.divergence_draws(seeds[0]))
            variables = log_ratio.trainable_variables
            with tf.GradientTape() as tape:
                loss = log_ratio(q, p, seeds[1]).loss
            optimizer.apply(tape.gradient(loss, variables), variables)
            return [i + 1]

        tf.while_loop(lambda i: i < steps, step, [tf.constant(0)])

    def _divergence(self):
        """Computes E_q[T] with the discriminator as it is."""
        total = 0.0
        for i in range(10):
            q, p = self.model.divergence_draws(tf.constant([11, i]))
            total += self.model.log_ratio(q, p, tf.constant([11, i])).forward
        return total / 10.0

    def by_retraining(self, index, size):
        """Returns finite differences of `divergence`, one for each retraining."""
        ends = np.cumsum([int(tf.size(v.value)) for v in self.variables])
        which = int(np.searchsorted(ends, index, side="right"))
        variable = self.variables[which]
        start = variable.numpy()
        place = index - (ends[which] - start.size)
        states = [*self.model.log_ratio.variables, *self.optimizer.variables]
        before = [v.numpy() for v in states]
        results = []
        for seed in range(RETRAININGS):
            values = []
            for sign in (1.0, -1.0):
                moved = start.ravel().copy()
                moved[place] += sign * size
                variable.assign(moved.reshape(start.shape))
                for state, value in zip(states, before, strict=True):
                    state.assign(value)
                self.train(tf.constant(STEPS), tf.constant(seed))
                values.append(float(self.divergence()))
            results.append((values[0] - values[1]) / (2.0 * size))
        variable.assign(start)
        for state, value in zip(states, before, strict=True):
            state.assign(value)
        return results


def run(seed, data_dir):
    """Computes all gradients of one fitted model."""
    keras.utils.set_random_seed(seed)
    (x, y), _ = sip_figures.counters.rows("bimodal", data_dir)
    model = sip_figures.make_model("sip_forward", seed=seed)
    history = model.fit(x, y, epochs=EPOCHS, batch_size=sip_figures.BATCH, verbose=0).history
    gradients = Gradients(model, x, y)
    data, data_error = gradients.gradient(gradients.data_term, DATA_SEEDS)
    gaussian, gaussian_error = gradients.gradient(gradients.gaussian, GAUSSIAN_SEEDS)
    begin = time.monotonic()
    gradients.train(tf.constant(STEPS_BEFORE), tf.constant(1000))
    divergence = float(gradients.divergence())
    count = int(tf.size(model.inducing_inputs.value))
    theta = np.argsort(-np.abs(data[:-count]))[:PARAMETERS]
    groups = {"theta": theta, "inducing points": np.arange(len(data) - count, len(data))}
    record = {
        "discriminator_accuracy": round(history["discriminator_accuracy"][-1], 4),
        "kl_by_discriminator": round(divergence, 3),
        "kl_gaussian": round(float(gradients.gaussian(tf.constant([7, 0]))), 3),
    }
    for name, indices in groups.items():
        retrained, error = mean_and_error(
            np.transpose([gradients.by_retraining(i, STEP_SIZES[name]) for i in indices])
        )
        record[name] = {
            "data": packed(data[indices]),
            "data_error": packed(data_error[indices]),
            "discriminator": packed(retrained),
            "discriminator_error": packed(error),
            "gaussian": packed(gaussian[indices]),
            "gaussian_error": packed(gaussian_error[indices]),
        }
    return {**record, "seconds_of_retraining": round(time.monotonic() - begin, 1)}


def ratios(record, name):
    """Returns root mean squares of the divergence's gradients over that of the data term's."""
    sizes = {k: np.sqrt(np.mean(np.square(numbers(v)))) for k, v in record[name].items()}
    return {
        k: float(sizes[k] / sizes["data"])
        for k in ("discriminator", "discriminator_error", "gaussian", "gaussian_error")
    }


def plot(record):
    """Plots the divergence's gradients against the data term's."""
    figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    for panel, name in zip(panels, STEP_SIZES, strict=True):
        for colour, kind in zip(COLOURS.values(), ("gaussian", "discriminator"), strict=False):
            values = {k: numbers(v) for k, v in record[name].items()}
            panel.errorbar(
                values["data"],
                values[kind],
                xerr=values["data_error"],
                yerr=values[f"{kind}_error"],
                fmt="o",
                markersize=3,
                linewidth=0.8,
                color=colour,
                label={"gaussian": "Gaussian", "discriminator": "retrained discriminator"}[kind],
            )
        panel.axline((0.0, 0.0), slope=1.0, color="0.7", linewidth=0.8)
        panel.axline((0.0, 0.0), slope=-1.0, color="0.7", linewidth=0.8)
        panel.set_title({"theta": "parameters of the prior"}.get(name, name))
        panel.set_xlabel("gradient of the data term")
    panels[0].set_ylabel("gradient of the divergence")
    panels[0].legend(frameon=False)
    save(figure, "sip_gradients.png")


def main():
    """Runs what is not in the file, and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    folder = os.environ.get("TFP_FNSPACE_DATA", "../shared/data")
    parser.add_argument("--data-dir", default=folder)
    parser.add_argument("--out", default=str(RESULTS))
    options = parser.parse_args()
    for _ in run_missing(options.out, [{"seed": 0}], lambda seed: run(seed, options.data_dir)):
        pass
    (record,) = read_records(options.out)
    for name in STEP_SIZES:
        print(name, {k: round(v, 3) for k, v in ratios(record, name).items()})
    if options.out == str(RESULTS):
        plot(record)


if __name__ == "__main__":
    main()
