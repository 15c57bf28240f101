"""Shared parts of the tests of figures: a fake model, and what an axes shows."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import tensorflow_probability as tfp

tfd = tfp.distributions

X = np.linspace(-2.0, 2.0, 41)[:, np.newaxis]


class FakeModel:
    """A fake model with f(x) = sin(x) and known spreads.

    `distribution` maps (mean, stddev) to the distribution of observations.
    """

    def __init__(self, distribution=tfd.Normal, outputs=1):
        self.distribution = distribution
        self.outputs = outputs

    def predict(self, x):
        mean = np.repeat(np.sin(x), self.outputs, axis=1)
        epistemic = 0.3 + 0.1 * mean**2
        aleatoric = np.full_like(mean, 0.4)
        return {
            "mean": mean,
            "stddev": np.hypot(epistemic, aleatoric),
            "epistemic_stddev": epistemic,
            "aleatoric_stddev": aleatoric,
        }

    def predict_distribution(self, x):
        prediction = self.predict(x)
        return tfd.Independent(self.distribution(prediction["mean"], prediction["stddev"]), 1)

    def sample_functions(self, x, num_draws, seed):
        shift = np.random.default_rng(seed).standard_normal((num_draws, 1, 1))
        return np.sin(x) + 0.3 * shift


def two_normals(mean, stddev):
    """Returns 0.3 N(mean - 4, stddev) + 0.7 N(mean + 4, stddev): bimodal and off-centre."""
    return tfd.MixtureSameFamily(
        tfd.Categorical(probs=np.array([0.3, 0.7])),
        tfd.Normal(mean[..., np.newaxis] + np.array([-4.0, 4.0]), stddev[..., np.newaxis]),
    )


def labelled(ax):
    return dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))


def limits(band, x):
    """Returns the lower and upper edge of a `fill_between` at the sorted inputs."""
    points = band.get_paths()[0].vertices
    edges = [points[np.isclose(points[:, 0], at), 1] for at in x[:, 0]]
    return np.array([e.min() for e in edges]), np.array([e.max() for e in edges])


def normal(num_rows, outputs=1, scale=1.0):
    zeros = np.zeros((num_rows, outputs))
    return tfd.Independent(tfd.Normal(zeros, scale + zeros), 1)
