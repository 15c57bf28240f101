"""Pictures of deep inverse Wishart processes: the paper's figures 2, 5, 6 and 7.

    python benchmarks/diwp_figures.py [--only layers,eigenvalues,functions,bandwidths]

The first three draw from priors and take seconds. Figure 7 fits models, one cell (bandwidth, seed,
model) at a time: `benchmarks/results/diwp_figure7.json` keeps the cells that are done.

Protocol of figure 7: the data are 40 points on [-5, 5] from a Gaussian process with a squared
exponential kernel of bandwidth 0.5, 1, 2, 5 or 10, and noise 0.1. The kernel of both models has
bandwidth 1 and a learned amplitude. The noise is learned, and the inducing points start at all
data. The one-layer process has Omega ~ W^-1(delta, delta + 2) on its one input, and delta is
learned from 1. There are 100 joint draws of f on a grid over [-15, 15]; zero crossings are counted
where |x| >= 7.
"""

import argparse
import pathlib
import time

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from tfp_fnspace import diwp, kernels, likelihoods
from tfp_fnspace.benchmark import add_records, machine, read_records, versions
from tfp_fnspace.layers.draws import function_draws

IMAGES = pathlib.Path("docs/images")
RESULTS = pathlib.Path("benchmarks/results/diwp_figure7.json")
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#6E6E6E"

#: Number of points, and of rows of a Wishart matrix, in figure 5: those of the paper.
SIZE = 2000

BANDWIDTHS = (0.5, 1.0, 2.0, 5.0, 10.0)
SEEDS = (0, 1)
DATA = np.linspace(-5.0, 5.0, 40)[:, np.newaxis]
GRID = np.linspace(-15.0, 15.0, 301)[:, np.newaxis]
OUTSIDE = 7.0
MODELS = {
    "one-layer process": ({"stack": "omega", "delta": 1.0}, 6000),
    "Gaussian process": ({"hidden": "none"}, 500),
}


def save(figure, name):
    """Writes and closes a figure."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / name, dpi=120)
    plt.close(figure)
    print(f"wrote {IMAGES / name}", flush=True)


def layers(seed=2):
    """Draws figure 2: Gram and kernel matrices on their way through a network."""
    x = np.linspace(-3.0, 3.0, 60)[:, np.newaxis]
    rows = {
        "Wishart\nwidth 10": {"process": "wishart", "width": 10},
        "inverse Wishart\nδ = 10": {"process": "inverse_wishart", "delta": 10.0},
    }
    figure, panels = plt.subplots(2, 6, figsize=(9.6, 3.9), layout="constrained")
    for row, (name, options) in zip(panels, rows.items(), strict=True):
        draw = diwp.sample_prior(x, "squared_exponential", depth=2, **options, seed=seed)
        matrices = [m for pair in zip(draw.grams, draw.kernels, strict=True) for m in pair]
        titles = [f(n) for n in (1, 2, 3) for f in ("$G_{}$".format, "$K(G_{})$".format)]
        for panel, matrix, title in zip(row, matrices, titles, strict=True):
            values = matrix.numpy()[0]
            limit = np.abs(values).max()
            is_kernel = title.startswith("$K")
            style = {"vmin": 0.0, "vmax": 1.0, "cmap": "viridis"}
            if not is_kernel:
                style = {"vmin": -limit, "vmax": limit, "cmap": "RdBu_r"}
            image = panel.imshow(values, extent=(-3, 3, 3, -3), **style)
            bar = figure.colorbar(image, ax=panel, location="bottom", shrink=0.9, pad=0.04)
            bar.set_ticks([0.0, 1.0] if is_kernel else [-limit, 0.0, limit])
            if not is_kernel:
                bar.set_ticklabels([f"{v:.1f}" for v in (-limit, 0.0, limit)])
            panel.set(xticks=[], yticks=[])
            panel.set_title(title, fontsize=13)
        row[0].set_ylabel(name, fontsize=12)
    save(figure, "diwp_layers.png")


def eigenvalues(seed=0):
    """Draws figure 5: eigenvalues of one sample around the identity."""
    distributions = {
        "Wishart": {"process": "wishart", "width": SIZE},
        **{
            f"residual Wishart, α = {a:g}": {
                "process": "residual_wishart",
                "width": SIZE,
                "residual": a,
            }
            for a in (1.0, 2.0)
        },
        # The paper's W^-1(N I, lambda N) is rescaled to mean 1: lambda N = delta + N + 1.
        **{
            f"inverse Wishart, λ = {ratio:g}": {
                "process": "inverse_wishart",
                "delta": (ratio - 1.0) * SIZE - 1.0,
            }
            for ratio in (1.5, 2.0, 4.0)
        },
    }
    identity = tf.eye(SIZE, dtype=tf.float64)
    bins = np.geomspace(1e-7, 1e2, 61)
    figure, panels = plt.subplots(
        2, 3, figsize=(9.6, 5.2), sharex=True, sharey=True, layout="constrained"
    )
    for panel, (name, options) in zip(panels.flat, distributions.items(), strict=True):
        gram = diwp.sample_gram(identity, **options, seed=seed)[0]
        values = np.linalg.eigvalsh(gram.numpy())
        colour = BLUE if "inverse" in name else VERMILLION
        panel.hist(np.maximum(values, bins[0]), bins, color=colour)
        panel.axvline(1.0, color=GREY, lw=1, ls=":")
        panel.set_xscale("log")
        panel.set_title(f"{name}\n{values[0]:.2g} to {values[-1]:.3g}", fontsize=11)
        print(f"{name}: smallest {values[0]:.3g}, largest {values[-1]:.4g}", flush=True)
    for panel in panels[1]:
        panel.set_xlabel("eigenvalue (mean 1)", fontsize=11)
    for panel in panels[:, 0]:
        panel.set_ylabel(f"count, of {SIZE}", fontsize=11)
    save(figure, "diwp_eigenvalues.png")


def functions(seeds=(13, 1), delta=1.0, num_panels=4, units=4):
    """Draws figure 6: functions of a one-layer, a two-layer and a Gaussian process."""
    x = np.linspace(-5.0, 5.0, 300)[:, np.newaxis]
    kernel = kernels.SquaredExponential()
    limits = {"stack": "features", "delta": 1e9, "units": units}
    fixed, composed = (diwp.sample_prior(x, kernel, depth=d, **limits, seed=0) for d in (0, 1))
    one = diwp.sample_prior(
        x, kernel, depth=0, delta=delta, units=units, num_samples=num_panels, seed=seeds[0]
    )
    # As in the paper, all have the same first layer, here K of the inputs, and differ in the
    # second.
    second = diwp.sample_gram(
        fixed.kernels[0][0], delta=delta, num_samples=num_panels, seed=seeds[1]
    )
    factor = np.linalg.cholesky(kernel.matrix(second) + 1e-9 * np.eye(len(x)))
    two = factor @ np.random.default_rng(seeds[1]).normal(size=(num_panels, len(x), units))
    figure, panels = plt.subplots(
        2,
        num_panels + 1,
        figsize=(9.6, 4.6),
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    rows = {"one layer": (fixed, one.functions.numpy()), "two layers": (composed, two)}
    lengths = one.grams[0].numpy()[:, 0, 0] ** -0.5 * np.abs(x[0, 0])
    for row, (name, (limit, drawn)) in zip(panels, rows.items(), strict=True):
        row[0].plot(x[:, 0], limit.functions[0], lw=1.2)
        row[0].set_title("GP: δ → ∞", fontsize=11)
        row[0].set_ylabel(f"{name}\nf(x)", fontsize=11)
        for i, panel in enumerate(row[1:]):
            panel.plot(x[:, 0], drawn[i], lw=1.2)
            title = f"$G_1$: bandwidth {lengths[i]:.2g}"
            panel.set_title(title if name == "one layer" else f"$G_2$, sample {i + 1}", fontsize=11)
    for panel in panels[1]:
        panel.set_xlabel("x", fontsize=11)
    save(figure, "diwp_prior_functions.png")


def targets(bandwidth, seed):
    """Returns the data of figure 7."""
    matrix = np.exp(-((DATA - DATA.T) ** 2) / (2.0 * bandwidth**2)) + 1e-8 * np.eye(len(DATA))
    rng = np.random.default_rng([seed, int(10 * bandwidth)])
    f = np.linalg.cholesky(matrix) @ rng.normal(size=DATA.shape)
    return f + 0.1 * rng.normal(size=DATA.shape)


def fit(name, y, seed):
    """Returns a trained model of figure 7, and its ELBO per row over the last 50 steps."""
    options, steps = MODELS[name]
    model = diwp.DIWPModel(
        diwp.DeepKernel(
            len(DATA),
            kernel="squared_exponential",
            depth=0,
            learn_scale=False,
            constant=False,
            **options,
        ),
        standardize=False,
        likelihood=likelihoods.Gaussian(scale=0.1, trainable=True, dtype="float64"),
        seed=seed,
        dtype="float64",
    )
    rate = keras.optimizers.schedules.CosineDecay(0.05, steps)
    model.compile(optimizer=keras.optimizers.Adam(rate))
    history = model.fit(DATA, y, epochs=steps, batch_size=len(DATA), verbose=0)
    return model, np.mean(history.history["elbo"][-50:])


def model_bandwidths(model):
    """Returns draws of Omega^-1/2 from the approximate posterior, `[200]`."""
    layer = model.network.layers[0]
    if not isinstance(layer, diwp.InverseWishartFeatures):
        return np.ones(200)
    with function_draws(200, 0):
        omega = layer(tf.ones([1, 1], tf.float64)).tt
    return omega.numpy()[:, 0] ** -0.5


def crossings(draws):
    """Returns the mean number of sign changes where |x| >= 7, `draws` `[S, N]`."""
    changes = (draws[:, 1:] * draws[:, :-1] < 0.0).sum(axis=0) / len(draws)
    return changes[np.abs(GRID[1:, 0] + GRID[:-1, 0]) / 2.0 > OUTSIDE].sum()


def cell(name, bandwidth, seed):
    """Runs one model on one data set."""
    y, start = targets(bandwidth, seed), time.perf_counter()
    model, elbo = fit(name, y, seed)
    seconds = time.perf_counter() - start
    draws = model.sample_functions(GRID, 100, seed=1)[:, :, 0]
    quantiles = np.quantile(model_bandwidths(model), [0.1, 0.5, 0.9])
    return {
        "model": name,
        "bandwidth": bandwidth,
        "seed": seed,
        "crossings_outside": round(float(crossings(draws)), 2),
        "crossings_of_the_truth": round(2 * (15 - OUTSIDE) / (np.pi * bandwidth), 2),
        "model_bandwidth_10_50_90": [float(f"{q:.3g}") for q in quantiles],
        "elbo": round(float(elbo), 4),
        "steps": MODELS[name][1],
        "seconds": round(seconds, 1),
        "draws": [" ".join(f"{v:.3f}" for v in f) for f in draws[:5, ::2] if seed == 0],
        "versions": versions(),
        "machine": machine(),
    }


def bandwidths():
    """Draws figure 7: posterior draws of models of bandwidth 1, given data of other bandwidths."""
    records = read_records(RESULTS)
    known = {(r["model"], r["bandwidth"], r["seed"]) for r in records}
    for place in ((m, b, s) for s in SEEDS for b in BANDWIDTHS for m in MODELS):
        if place not in known:
            record = cell(*place)
            add_records(RESULTS, [record])
            found = {k: v for k, v in record.items() if k not in ("draws", "versions")}
            print(found, flush=True)
            keras.backend.clear_session()
    figure, panels = plt.subplots(
        2, len(BANDWIDTHS), figsize=(9.6, 4.8), sharex=True, sharey="col", layout="constrained"
    )
    for row, name, colour in zip(panels, MODELS, (BLUE, VERMILLION), strict=True):
        for panel, bandwidth in zip(row, BANDWIDTHS, strict=True):
            cells = [r for r in records if (r["model"], r["bandwidth"]) == (name, bandwidth)]
            shown = next(r for r in cells if r["seed"] == 0)
            panel.axvspan(DATA[0, 0], DATA[-1, 0], color=GREY, alpha=0.12, lw=0)
            draws = np.array([draw.split() for draw in shown["draws"]], float)
            panel.plot(GRID[::2, 0], draws.T, color=colour, lw=0.9, alpha=0.8)
            panel.plot(DATA[:, 0], targets(bandwidth, 0)[:, 0], "k.", ms=3)
            count = np.mean([r["crossings_outside"] for r in cells])
            title = f"{count:.1f} crossings"
            if colour == BLUE:
                title = f"bandwidth {bandwidth:g}\n{title}"
            panel.set_title(title, fontsize=11)
            panel.set_xticks([-15, -5, 5, 15])
        row[0].set_ylabel(f"{name}\nf(x)", fontsize=11)
    for panel in panels[1]:
        panel.set_xlabel("x", fontsize=11)
    save(figure, "diwp_bandwidths.png")


PICTURES = {
    "layers": layers,
    "eigenvalues": eigenvalues,
    "functions": functions,
    "bandwidths": bandwidths,
}


def main():
    """Draws all figures, or those named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(PICTURES))
    for name in parser.parse_args().only.split(","):
        PICTURES[name]()


if __name__ == "__main__":
    main()
