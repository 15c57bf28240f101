"""Figures 1 to 4 of the paper: cubic, periodic, piecewise and Mauna Loa.

    python benchmarks/fbnn_figures.py [--only cubic,periodic,piecewise,mauna] [--data-dir DIR]

A cell is one model on one data set. `benchmarks/results/fbnn_figures.json` keeps the cells that are
done, with what the pictures show. Protocol:

- Inputs and targets are standardised. The prior of the first, second and fourth figure is a
  Gaussian process that is fitted by marginal likelihood and then fixed. The noise of the likelihood
  is fixed to its noise. fBNN is compared with the exact Gaussian process of the same kernel and
  noise. In the third figure the noise is 0.02 (the data have none) and the prior is only sampled.
- Adam has the rate of `RATES`, then a tenth and a hundredth of it in the last two fifths. The
  divergence is annealed over the first fifth. fBNN has measurement points uniform in the box of the
  figure, injected noise 0.002, and `kl_weight="data"`. Bayes by Backprop ("bbb") has priors of
  weights of variance 1 over the number of inputs, and 10 weight draws a step.
- Networks, draws, points and steps are in `NETWORKS` and the table of each figure. The paper's
  2 x 100 to 5 x 500 ReLU networks at up to 80,000 steps are too much for two cores.
- "cosines" of Mauna Loa has 1,500 random cosines of the prior's kernel, which are not trained. The
  divergence is in closed form, with injected noise of a fifth of the noise. The last layer starts
  at its regression on the cosines. Each step has all rows, and the rate falls by a cosine. The
  rational quadratic kernel of this figure has the mixture rate 1.
- A standard deviation or a mean of f on a grid is from 1,000 functions. `rms_of_means` is the root
  mean square difference of the means, over that of the standard deviation of the exact process.
  `stddev_ratio` is the median over the grid. Each is given on the data, in the gap and outside.
"""

import argparse
import os
import pathlib

import keras
import numpy as np
import tensorflow_probability as tfp
from fbnn_pictures import PICTURES
from packing import packed

from tfp_fnspace import datasets, fbnn, layers, likelihoods, processes
from tfp_fnspace.benchmark import read_records, run_missing

RESULTS = "benchmarks/results/fbnn_figures.json"
PRIOR_NOISE = 0.02
tfpk = tfp.math.psd_kernels


@keras.saving.register_keras_serializable(package="fbnn_figures")
class WithSeason(keras.layers.Layer):
    """A standardised year t and its sine, `[t, sin(2 pi t s)]`, s years a unit (the paper's)."""

    def __init__(self, years, **kwargs):
        super().__init__(**kwargs)
        self.years = years

    def call(self, t):
        return keras.ops.concatenate([t, keras.ops.sin(2.0 * np.pi * self.years * t)], axis=-1)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], 2)


def network(units, activation, posterior="factorized", frequency=None, years=None):
    """Returns inputs and outputs of variational layers; `posterior` is that of the last one.

    With a `frequency` the first layer's weights start with that standard deviation. Its biases are
    uniform on a circle for cosines, as random Fourier features have them, and otherwise within the
    frequency, so that units change at places about [-1, 1].
    """
    inputs = hidden = keras.Input((1,))
    if years is not None:
        hidden = WithSeason(years)(inputs)
    first = {}
    if frequency is not None:
        first["kernel_initializer"] = keras.initializers.RandomNormal(stddev=frequency, seed=1)
        bias = (0.0, 2.0 * np.pi) if activation == "cos" else (-frequency, frequency)
        first["bias_initializer"] = keras.initializers.RandomUniform(*bias, seed=2)
    for width in units:
        activate = keras.ops.cos if activation == "cos" else activation
        hidden = layers.VariationalDense(width, activation=activate, prior="fan_in", **first)(
            hidden
        )
        first = {}
    return inputs, layers.VariationalDense(1, posterior=posterior, prior="fan_in")(hidden)


class Problem:
    """Standardised rows, a grid, a prior and the noise.

    Attributes:
        x, y: Rows `[N, 1]`, standardised by `center` and `scale` (x, y).
        grid: `[G, 1]`, in the same units.
        regions: Name -> mask of the grid.
        box: Ends of the measurement points.
    """

    def __init__(self, x, y, grid, box, standardise=True):
        pairs = [(a.mean(), a.std()) if standardise else (0.0, 1.0) for a in (x, y)]
        self.center, self.scale = zip(*pairs, strict=True)
        self.x, self.y = (
            (a - c) / s for a, c, s in zip((x, y), self.center, self.scale, strict=True)
        )
        self.grid = (grid[:, np.newaxis] - self.center[0]) / self.scale[0]
        self.box = [(end - self.center[0]) / self.scale[0] for end in box]
        self.regions, self.prior, self.noise = {}, None, PRIOR_NOISE

    def fit_prior(self, kernel, fixed=(), max_iterations=200):
        """Fits a Gaussian process to the rows."""
        self.prior = processes.GaussianProcess(kernel, fixed=fixed, dtype="float64")
        self.prior.fit(self.x, self.y, max_iterations=max_iterations)
        self.noise = float(self.prior.noise_scale)

    def exact(self):
        """Returns mean and standard deviation of the exact process on the grid."""
        kernel = self.prior.kernel()
        total = kernel.matrix(self.x, self.x).numpy() + self.noise**2 * np.eye(len(self.x))
        cross = kernel.matrix(self.grid, self.x).numpy()
        gain = np.linalg.solve(total, cross.T).T
        variance = np.diag(kernel.matrix(self.grid, self.grid)) - np.sum(gain * cross, axis=1)
        return (gain @ self.y)[:, 0], np.sqrt(np.maximum(variance, 0.0))

    def beside_exact(self, mean, stddev):
        """Measures how far a mean and a standard deviation are from those of the exact process."""
        exact_mean, exact_stddev = self.exact()
        found = {}
        for name, chosen in self.regions.items():
            error = np.sqrt(np.mean((mean - exact_mean)[chosen] ** 2))
            size = np.sqrt(np.mean(exact_stddev[chosen] ** 2))
            ratio = np.median(stddev[chosen] / exact_stddev[chosen])
            found[name] = {
                "rms_of_means": round(float(error / size), 3),
                "stddev_ratio": round(float(ratio), 3),
            }
        return found


def cubic():
    """Returns the problem of x^3 with noise 3 on [-4, 4]."""
    data, grid = datasets.cubic(0), np.linspace(-6.0, 6.0, 121)
    problem = Problem(data.x, data.y, grid, (-6.0, 6.0))
    problem.fit_prior(tfpk.ExponentiatedQuadratic(2.0, 1.0))
    inside = np.abs(grid) <= 4.0
    problem.regions = {"data": inside, "outside": ~inside}
    return problem


def periodic():
    """Returns 2 sin(4 x), seen on both sides of a gap; periodic and squared exponential kernels."""
    data, grid = datasets.periodic(0), np.linspace(-4.0, 4.0, 161)
    problem = Problem(data.x, data.y, grid, (-4.0, 4.0))
    period = float(np.pi / 2.0 / problem.scale[0])
    kernel = tfpk.ExpSinSquared(1.0, 1.0, period=period) + tfpk.ExponentiatedQuadratic(0.3, 1.0)
    problem.fit_prior(kernel)
    size = np.abs(grid)
    problem.regions = {"gap": size < 0.5, "data": (size >= 0.5) & (size <= 2.0)}
    problem.regions["outside"] = size > 2.0
    return problem


def piecewise(kind, seed):
    """Returns a random function of the prior, seen at both ends of [0, 1]."""
    data = getattr(datasets, f"piecewise_{kind}")(seed)
    problem = Problem(data.x, data.y, np.linspace(0.0, 1.0, 101), (0.0, 1.0), standardise=False)
    prior = {"constant": processes.PiecewiseConstant, "linear": processes.PiecewiseLinear}[kind]
    problem.prior, problem.truth = prior(3.0), data.function(problem.grid)[:, 0]
    return problem


def mauna_loa(data_dir):
    """Returns monthly carbon dioxide to 2003, predicted to 2048."""
    path = pathlib.Path(data_dir) / "timeseries" / "mauna_loa.csv"
    table = np.genfromtxt(path, delimiter=",", names=True)
    year, parts = table["decimal_year"], table["co2_ppm"]
    rows = (year < 2004.0) & (parts > 0.0)
    grid = np.arange(1958.0, 2048.01, 0.25 / 3.0)
    x, y = year[rows, np.newaxis], parts[rows, np.newaxis]
    problem = Problem(x, y, grid, (1958.0, 2048.0))
    problem.held_out = year[~rows & (parts > 0.0)], parts[~rows & (parts > 0.0)]
    unit = float(problem.scale[0])
    season = tfpk.ExpSinSquared(0.2, 1.0, period=1.0 / unit)
    kernel = tfpk.ExponentiatedQuadratic(2.0, 40.0 / unit)
    kernel += season * tfpk.ExponentiatedQuadratic(1.0, 60.0 / unit)
    kernel += tfpk.RationalQuadratic(0.05, 1.0 / unit, scale_mixture_rate=1.0)
    # A fit drives the mixture rate to 1e-4, whose frequencies no sample holds.
    problem.fit_prior(kernel, fixed=["period", "scale_mixture_rate"], max_iterations=40)
    problem.regions = {"data": grid < 2004.0, "outside": grid >= 2004.0}
    return problem


#: Figure -> names -> network, and steps, draws, measurement points and rows of a step.
NETWORKS = {
    "cubic": {
        f"{depth} x 100": ({"units": [100] * depth, "activation": "relu"}, (6000, 100, 20, 20))
        for depth in (2, 3, 5)
    },
    "periodic": {
        "cos": (
            {"units": [100], "activation": "cos", "posterior": "full", "frequency": 4.0},
            (4000, 100, 30, 20),
        ),
    },
    "piecewise": {
        "tanh": (
            {"units": [100], "activation": "tanh", "posterior": "full", "frequency": 30.0},
            (3000, 100, 40, 40),
        ),
    },
    "mauna": {
        "2 x 100": ({"units": [100, 100], "activation": "relu"}, (8000, 100, 10, 20)),
        "cosines": ({"features": 1500}, (300, 0, 100, 540)),
    },
}


#: Adam's rate in the first three fifths of the steps.
RATES = {"cubic": 3e-3, "periodic": 1e-2, "piecewise": 1e-2, "mauna": 1e-2}


def train(problem, method, options, budget, seed, rate=1e-2):
    """Returns a trained model."""
    keras.utils.set_random_seed(seed)
    if "features" in options:
        return train_in_closed_form(problem, options["features"], budget, seed, rate)
    steps, draws, points, rows = budget
    parts, annealed = network(**options), steps // 5
    shared = {"kl_annealing_steps": annealed, "standardize": False, "seed": seed}
    shared["likelihood"] = likelihoods.Gaussian(problem.noise)
    if method == "bbb":
        model = fbnn.VariationalModel(parts, num_samples=10, **shared)
    else:
        shared.update(measurement=fbnn.Box(points, *problem.box), kl_weight="data")
        shared.update(divergence=fbnn.Stein(injected_noise=0.002), num_samples=draws)
        model = fbnn.FBNNModel(parts, problem.prior, **shared)
    rates = keras.optimizers.schedules.PiecewiseConstantDecay(
        [3 * steps // 5, 4 * steps // 5], [rate, rate / 10.0, rate / 100.0]
    )
    model.compile(optimizer=keras.optimizers.Adam(rates), num_rows=len(problem.x))
    # An epoch has 100 steps, whatever the number of rows.
    order = np.random.default_rng(seed)
    rows_of_epoch = np.concatenate(
        [order.permutation(len(problem.x)) for _ in range(-(-100 * rows // len(problem.x)))]
    )[: 100 * rows]
    model.fit(
        problem.x[rows_of_epoch],
        problem.y[rows_of_epoch],
        batch_size=rows,
        epochs=steps // 100,
        shuffle=len(problem.x) > rows,
        verbose=0,
    )
    return model


def train_in_closed_form(problem, units, budget, seed, rate):
    """Trains a network of fixed random cosines of the prior's kernel; each step has all rows."""
    steps, _, points, rows = budget
    inputs = keras.Input((1,))
    features = layers.RandomFourierFeatures(units, problem.prior.kernel(), seed=seed)(inputs)
    last = layers.VariationalDense(1, posterior="conditioned", prior="standard")
    model = fbnn.FBNNModel(
        (inputs, last(features)),
        problem.prior,
        likelihood=likelihoods.Gaussian(problem.noise),
        measurement=fbnn.Box(points, *problem.box),
        divergence=fbnn.ClosedForm(injected_noise=0.2 * problem.noise, fit_output=True),
        kl_weight="data",
        standardize=False,
        seed=seed,
    )
    model.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(rate, steps))
    )
    model.fit(problem.x, problem.y, batch_size=rows, epochs=steps, verbose=0)
    return model


def cell(figure, data, method, net, seed, data_dir):
    """Runs one model: what the picture shows and what is compared, in standardised units."""
    makers = {"cubic": cubic, "periodic": periodic}
    if figure == "mauna":
        problem = mauna_loa(data_dir)
    elif figure == "piecewise":
        problem = piecewise(data, seed)
    else:
        problem = makers[figure]()
    options, budget = NETWORKS[figure][net]
    options = dict(options)
    if figure == "mauna" and "units" in options:
        options["years"] = float(problem.scale[0])
    model = train(problem, method, options, budget, seed, RATES[figure])
    draws = model.sample_functions(problem.grid, 1000, seed=1)[..., 0]
    mean, stddev = draws.mean(axis=0), draws.std(axis=0)
    found = {
        "rate": RATES[figure],
        "steps": budget[0],
        "draws": budget[1],
        "points": budget[2],
        "rows": budget[3],
    }
    for name in ("center", "scale"):
        found[name] = [float(v) for v in getattr(problem, name)]
    found.update(noise=round(problem.noise, 5), mean=packed(mean), stddev=packed(stddev))
    if problem.regions:
        exact = problem.exact()
        found["exact"] = dict(zip(("mean", "stddev"), map(packed, exact), strict=True))
        found["beside_exact"] = problem.beside_exact(mean, stddev)
    if figure == "piecewise":
        found["functions"] = [packed(f) for f in draws[:4]]
        found["prior_functions"] = [
            packed(f) for f in np.asarray(problem.prior.sample(problem.grid, 3, seed))[..., 0]
        ]
        found["truth"] = packed(problem.truth)
        unseen = (problem.grid[:, 0] > 0.2) & (problem.grid[:, 0] < 0.8)
        inside = np.abs(problem.truth - mean) <= 1.645 * np.hypot(stddev, problem.noise)
        found["coverage_90_unseen"] = round(float(np.mean(inside[unseen])), 3)
        found["rmse_at_rows"] = round(
            float(np.sqrt(np.mean((model.predict(problem.x)["mean"] - problem.y) ** 2))), 4
        )
    if figure == "mauna":
        year, parts = problem.held_out
        t = (year[:, np.newaxis] - problem.center[0]) / problem.scale[0]
        guess = model.predict(t)["mean"][:, 0] * problem.scale[1] + problem.center[1]
        found["rmse_held_out_ppm"] = round(float(np.sqrt(np.mean((guess - parts) ** 2))), 2)
    if figure != "mauna":
        found.update(x=packed(problem.x[:, 0]), y=packed(problem.y[:, 0]))
    return found


def cells(figure):
    """Returns the cells that a figure needs, in order."""
    if figure == "piecewise":
        places = [(k, "fbnn", "tanh", s) for s in (0, 1) for k in ("constant", "linear")]
    elif figure == "mauna":
        places = [("mauna", method, "2 x 100", 0) for method in ("fbnn", "bbb")]
        places.append(("mauna", "fbnn", "cosines", 0))
    else:
        methods = ("fbnn", "bbb")
        places = [(figure, m, net, 0) for net in NETWORKS[figure] for m in methods]
    names = ("data", "method", "net", "seed")
    return [{"figure": figure, **dict(zip(names, place, strict=True))} for place in places]


def main():
    """Runs what is missing and draws the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(NETWORKS))
    parser.add_argument("--out", default=RESULTS)
    folder = os.environ.get("TFP_FNSPACE_DATA", "../shared/data")
    parser.add_argument("--data-dir", default=folder)
    options = parser.parse_args()
    for figure in options.only.split(","):

        def run(**place):
            return cell(**place, data_dir=options.data_dir)

        for record in run_missing(options.out, cells(figure), run):
            hidden = ("mean", "stddev", "exact", "functions", "prior_functions", "truth", "x", "y")
            hidden += ("versions", "machine")
            print({k: v for k, v in record.items() if k not in hidden}, flush=True)
            keras.backend.clear_session()
        records = [r for r in read_records(options.out) if r["figure"] == figure]
        PICTURES[figure](records)


if __name__ == "__main__":
    main()
