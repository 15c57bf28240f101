"""Contextual bandits with fBNN and other methods (table 3 of the paper).

There are 2,000 contexts in a random order. Networks have one hidden layer of 50 ReLU units on
`[context, one-hot action]`. The first 50 actions are taken in turn (three of each for the linear
posterior). After every 50 contexts, 100 steps of Adam (5e-3, batches of 20) train on all that was
seen. Regret is the expected reward of the best action less that of the chosen one, summed, in % of
that of uniformly random actions.

- `fbnn`: Thompson sampling. The prior is a Gaussian process with a squared exponential kernel of
  variance 1, noise 0.3, and length 1 for contexts and for actions. It is fitted again by marginal
  likelihood after 200 and 800 contexts (to 300 rows at most). There are 10 measurement points,
  which are seen contexts with any action; `kl_weight="data"`. With a length for each input the fits
  to few rows went wrong, and a prior fitted at 50 had too little variance left to explore (both
  seen in trials 100 to 102).
- `bayes_by_backprop`: Thompson sampling, weights with priors N(0, 1 / fan-in).
- `greedy`: the same network without a posterior, squared loss, the best mean.
- `linear`: Thompson sampling with a Bayesian linear regression for each action,
  normal-inverse-gamma with the parameters of Riquelme et al. (2018).

Mushroom has rewards +5 for an edible one, +5 or -35 for a poisonous one, and 0 for none. Shuttle
has 1 for the right class of seven. Wheel has five actions: 1.2 for the first, 1 for others, 50 for
the action of a quadrant outside the radius 0.95. Rewards of the networks are divided by 10, 1 and
10.

    python benchmarks/fbnn_bandits.py --data-dir ../shared/data
"""

import argparse
import itertools
import math
import os

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace import fbnn, likelihoods, processes
from tfp_fnspace.benchmark import run_missing
from tfp_fnspace.decisions import ContextualBandit
from tfp_fnspace.methods.fbnn.benchmark import network

tfpk = tfp.math.psd_kernels

RESULTS = "benchmarks/results/fbnn_bandits.json"
CONTEXTS, EVERY, STEPS, BATCH, PULLS = 2000, 50, 100, 20, 3
PRIOR_FITS, PRIOR_ROWS = (200, 800), 300


class Problem:
    """Contexts `[N, C]`, expected rewards of the actions `[N, K]`, and rewards.

    Args:
        contexts: Scaled contexts.
        expected: Expected rewards.
        draw: Function of a row number, an action and a generator: a reward.
        unit: What the rewards of networks are divided by.
    """

    def __init__(self, contexts, expected, draw, unit):
        self.contexts, self.expected = contexts.astype(np.float32), expected
        self.draw, self.unit = draw, unit

    @property
    def num_actions(self):
        return self.expected.shape[1]


def mushroom(data_dir, random):
    """Returns the problem to eat (1) or not (0)."""
    with np.load(os.path.join(data_dir, "bandits", "mushroom.npz")) as arrays:
        rows = random.choice(len(arrays["y"]), CONTEXTS, replace=False)
        x, poisonous = arrays["x"][rows].astype(float), arrays["y"][rows] == 1
    expected = np.stack([np.zeros(CONTEXTS), np.where(poisonous, -15.0, 5.0)], axis=1)

    def draw(n, action, generator):
        if not action:
            return 0.0
        return -35.0 if poisonous[n] and generator.uniform() < 0.5 else 5.0

    varies = x.std(axis=0) > 0.0
    return Problem(x[:, varies] * math.sqrt(2.0 / 22.0), expected, draw, 10.0)


def shuttle(data_dir, random):
    """Returns the problem to name one of seven classes."""
    with np.load(os.path.join(data_dir, "bandits", "shuttle.npz")) as arrays:
        rows = random.choice(len(arrays["y_train"]), CONTEXTS, replace=False)
        x, y = arrays["x_train"][rows].astype(float), arrays["y_train"][rows].astype(int) - 1
    low, high = np.percentile(x, [1, 99], axis=0)
    x = np.clip((x - np.median(x, axis=0)) / np.maximum(0.25 * (high - low), 1.0), -4.0, 4.0)
    expected = np.eye(7)[y]
    return Problem(x, expected, lambda n, action, _: expected[n, action], 1.0)


def wheel(data_dir, random):
    """Returns the synthetic wheel of Riquelme et al. (2018) with radius 0.95."""
    radius, angle = np.sqrt(random.uniform(size=CONTEXTS)), random.uniform(size=CONTEXTS)
    x = radius[:, None] * np.stack([np.cos(2 * np.pi * angle), np.sin(2 * np.pi * angle)], axis=1)
    expected = np.ones((CONTEXTS, 5))
    expected[:, 0] = 1.2
    quadrant = 1 + 2 * (x[:, 0] < 0.0) + (x[:, 1] < 0.0)
    outside = radius > 0.95
    expected[outside, quadrant[outside]] = 50.0
    draw = lambda n, action, generator: expected[n, action] + 0.01 * generator.normal()  # noqa: E731
    return Problem(2.0 * x, expected, draw, 10.0)


PROBLEMS = {"mushroom": mushroom, "shuttle": shuttle, "wheel": wheel}


def rows_of(contexts, actions, problem):
    """Returns inputs of a network, `[N, C + K]`."""
    return np.concatenate([contexts, np.eye(problem.num_actions)[actions]], axis=1, dtype="float32")


def prior_of(problem):
    """Makes a Gaussian process with one length for contexts and one for actions."""
    # Each factor sees the other's columns divided by a million, so it ignores them.
    contexts = np.append(np.ones(problem.contexts.shape[1]), np.full(problem.num_actions, 1e6))
    factors = [tfpk.ExponentiatedQuadratic(1.0, 1.0), tfpk.ExponentiatedQuadratic(None, 1.0)]
    scales = [contexts, 1e6 / contexts]
    kernels = [
        tfpk.FeatureScaled(factor, tf.constant(scale, tf.float32))
        for factor, scale in zip(factors, scales, strict=True)
    ]
    return processes.GaussianProcess(kernels[0] * kernels[1], noise_scale=0.3, fixed=["scale_diag"])


class Networks:
    """Thompson sampling with one of the networks.

    Args:
        problem: `Problem`.
        functional: Whether it is fBNN.
        seed: Integer.
    """

    every = EVERY

    def __init__(self, problem, functional, seed):
        width = problem.contexts.shape[1] + problem.num_actions
        self.prior = None
        options = {"num_samples": 10, "kl_annealing_steps": 0}
        if functional:
            self.prior = prior_of(problem)
            self.prior.build((None, width))
            self.start = [np.array(weight) for weight in self.prior.weights]
            self.measurement = fbnn.DataStream(10)
            self.measurement.build((None, width))
            self.measurement.adapt(np.zeros((1, width), np.float32))
            options = {
                "prior": self.prior,
                "measurement": self.measurement,
                "num_samples": 50,
                "kl_weight": "data",
            }
        model = (fbnn.FBNNModel if functional else fbnn.VariationalModel)(
            network(width, [50]),
            likelihood=likelihoods.Gaussian(0.3, trainable=True, min_scale=0.05),
            standardize=False,
            seed=seed,
            **options,
        )
        model.compile(optimizer=keras.optimizers.Adam(5e-3))
        self.bandit = ContextualBandit(model, problem.num_actions, PULLS, seed)
        self.unit = problem.unit

    def choose(self, contexts):
        return self.bandit.choose(contexts)

    def observe(self, contexts, actions, rewards):
        self.bandit.observe(contexts, actions, rewards / self.unit)
        if self.prior is not None:
            self.measurement.adapt(self.bandit.rows(contexts))

    def update(self, count):
        if self.prior is not None and count in PRIOR_FITS:
            rows = np.random.default_rng(count).permutation(count)[:PRIOR_ROWS]
            x, y = (values[rows] for values in self.bandit.observations)
            for weight, value in zip(self.prior.weights, self.start, strict=True):
                weight.assign(value)
            self.prior.fit(x, y, max_iterations=50)
        self.bandit.fit(epochs=max(1, STEPS * BATCH // count), batch_size=BATCH, verbose=0)


class Greedy:
    """The best mean of a deterministic network."""

    every = EVERY

    def __init__(self, problem, seed):
        self.problem, self.unit = problem, problem.unit
        inputs = keras.Input((problem.contexts.shape[1] + problem.num_actions,))
        hidden = keras.layers.Dense(50, activation="relu")(inputs)
        self.model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
        self.optimizer = keras.optimizers.Adam(5e-3)
        self.optimizer.build(self.model.trainable_variables)
        self.step = tf.function(self._step, reduce_retracing=True)
        self.random, self.seen = np.random.default_rng([seed, 1]), ([], [])

    def _step(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(x) - y))
        variables = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)

    def choose(self, contexts):
        count = len(self.seen[0])
        if not count:
            return np.arange(len(contexts)) % self.problem.num_actions
        rewards = [
            self.model(rows_of(contexts, np.full(len(contexts), action), self.problem))
            for action in range(self.problem.num_actions)
        ]
        return np.argmax(np.concatenate(rewards, axis=1), axis=1)

    def observe(self, contexts, actions, rewards):
        self.seen[0].extend(rows_of(contexts, actions, self.problem))
        self.seen[1].extend(rewards[:, None] / self.unit)

    def update(self, count):
        x, y = (np.array(values, np.float32) for values in self.seen)
        for _ in range(STEPS):
            rows = self.random.integers(count, size=BATCH)
            self.step(tf.constant(x[rows]), tf.constant(y[rows]))


class Linear:
    """Thompson sampling with conjugate linear regressions."""

    every = 1

    def __init__(self, problem, seed):
        self.random, self.problem = np.random.default_rng([seed, 2]), problem
        size, self.count = problem.contexts.shape[1] + 1, 0
        self.precision = np.stack([0.25 * np.eye(size)] * problem.num_actions)
        self.moments = np.zeros((problem.num_actions, size))
        self.squares, self.pulls = np.zeros((2, problem.num_actions))

    def choose(self, contexts):
        if self.count < PULLS * self.problem.num_actions:
            return np.array([self.count % self.problem.num_actions])
        x = np.append(contexts[0], 1.0)
        means = np.linalg.solve(self.precision, self.moments[..., None])[..., 0]
        shape = 6.0 + 0.5 * self.pulls
        scale = 6.0 + 0.5 * (self.squares - np.sum(means * self.moments, axis=1))
        variance = scale / self.random.gamma(shape)
        spread = np.einsum("i,kij,j->k", x, np.linalg.inv(self.precision), x)
        draws = means @ x + np.sqrt(variance * spread) * self.random.normal(size=len(shape))
        return np.argmax(draws, keepdims=True)

    def observe(self, contexts, actions, rewards):
        x, action, reward = np.append(contexts[0], 1.0), actions[0], rewards[0]
        self.precision[action] += np.outer(x, x)
        self.moments[action] += reward * x
        self.squares[action] += reward**2
        self.pulls[action] += 1
        self.count += 1

    def update(self, count):
        """Does nothing: the posterior is up to date."""


METHODS = {
    "fbnn": lambda problem, seed: Networks(problem, True, seed),
    "bayes_by_backprop": lambda problem, seed: Networks(problem, False, seed),
    "greedy": Greedy,
    "linear": Linear,
}


def run(problem, method, trial, data_dir):
    """Returns the results of one trial."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(trial)
    random = np.random.default_rng([trial, 3])
    problem = PROBLEMS[problem](data_dir, random)
    agent, regret = METHODS[method](problem, trial), []
    for start in range(0, CONTEXTS, agent.every):
        rows = np.arange(start, start + agent.every)
        actions = agent.choose(problem.contexts[rows])
        rewards = [problem.draw(*pair, random) for pair in zip(rows, actions, strict=True)]
        agent.observe(problem.contexts[rows], actions, np.array(rewards))
        regret.extend(problem.expected[rows].max(axis=1) - problem.expected[rows, actions])
        agent.update(start + agent.every)
    uniform = np.sum(problem.expected.max(axis=1) - problem.expected.mean(axis=1))
    return {
        "relative_regret": round(100.0 * float(np.sum(regret) / uniform), 3),
        "regret_of_the_second_half": round(200.0 * float(np.sum(regret[1000:]) / uniform), 3),
    }


def main():
    """Runs the trials that are not in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default="../shared/data")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", default=RESULTS)
    options = parser.parse_args()
    names = (options.problems.split(","), options.methods.split(","))
    cells = [
        {"problem": problem, "method": method, "trial": trial}
        for trial, problem, method in itertools.product(range(options.trials), *names)
    ]
    for record in run_missing(
        options.out, cells, lambda **cell: run(**cell, data_dir=options.data_dir)
    ):
        shown = ("problem", "method", "trial", "relative_regret", "seconds")
        print(*(record[name] for name in shown), flush=True)


if __name__ == "__main__":
    main()
