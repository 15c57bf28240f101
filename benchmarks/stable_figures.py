"""Pictures of the stable process: the paper's figures 1, 2 and S1 to S13 with our results.

    python benchmarks/stable_figures.py --data-dir ../shared/data
    python benchmarks/stable_figures.py --only errors,traces

| `--only` | figures of the paper | picture in `docs/images` |
|---|---|---|
| `lines` | 1, S2, S4 to S7, predictions | `stable_line.png` |
| `planes` | 2, S8 to S10, predictions | `stable_plane.png` |
| `errors` | 1, 2, S4 to S10, errors | `stable_errors.png` |
| `quantiles` | S3 | `stable_plane_quantiles.png` |
| `traces` | S1 | `stable_traces.png` |
| `york_map` | S11, S13 | `stable_york.png` |
| `york_intervals` | S12 | `stable_york_intervals.png` |

The first four are drawn from `stable_functions_stable.json` and `stable_functions_baselines.json`.
Gaussian processes without predictions there are fitted (the sampled one takes 20 seconds a
function). Traces are computed, and York's grid too if `york_grid.json` is missing.
"""

import argparse
import json
import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np
import stable_figures_york
import stable_functions
from figure_style import COLOURS, NAMES, save
from threadpoolctl import threadpool_limits

from tfp_fnspace.stable_process import Chains, LogNormal, StableProcessModel

RESULTS = pathlib.Path("benchmarks/results")

#: Methods whose predictions are drawn; errors are drawn for all methods.
SHOWN = ("stable_process", "gp_matern32")


def predictions(data_dir, methods):
    """Returns (function, method) -> median and 90 % interval of f at new inputs, for seed 0."""
    found = {
        (record["function"], record["method"]): record["prediction"]
        for kind in ("stable", "baselines")
        for record in json.loads((RESULTS / f"stable_functions_{kind}.json").read_text())
        if record["seed"] == 0 and "prediction" in record
    }
    for name in stable_functions.FUNCTIONS:
        data = stable_functions.problem(name, data_dir)
        for method in methods:
            if (name, method) not in found:
                with threadpool_limits(1):
                    fitted = stable_functions.BASELINES[method](data.x, data.y, data.x_new, 0)
                found[name, method] = fitted
    return found


def label(name):
    """Returns a function's name without its design."""
    return name.split("_", 1)[1].replace("_", " ")


def lines(data_dir):
    """Draws median and 90 % band of f on a line."""
    found = predictions(data_dir, SHOWN)
    names = [name for name in stable_functions.FUNCTIONS if name.startswith("line")]
    figure, panels = plt.subplots(
        len(SHOWN), len(names), figsize=(15, 5.6), sharex=True, sharey="col", layout="constrained"
    )
    grid = np.linspace(-2.0, 2.0, 801)[:, np.newaxis]
    for column, name in zip(panels.T, names, strict=True):
        data = stable_functions.problem(name, data_dir)
        x = data.x_new[:, 0]
        for panel, method in zip(column, SHOWN, strict=True):
            band, colour = found[name, method], COLOURS[method]
            panel.fill_between(x, band["lower"], band["upper"], color=colour, alpha=0.25, lw=0)
            panel.plot(x, band["median"], color=colour, lw=1.6)
            panel.plot(grid, stable_functions.FUNCTIONS[name](grid), "k--", lw=0.9)
            panel.plot(data.x[:, 0], data.y, "k.", ms=3.5)
            error = stable_functions.true_error(band["median"], data.f_new)
            panel.set_title(f"{NAMES[method]}: error {error:.3f}", fontsize=10)
        column[-1].set_xlabel(label(name))
    save(figure, "stable_line.png")


def draw_surface(panel, x, values, **limits):
    """Draws an image of values `[M]` on a regular grid `[M, 2]` that covers [-1, 1]^2."""
    side = int(np.sqrt(len(values)))
    surface = np.asarray(values)[np.lexsort((x[:, 0], x[:, 1]))].reshape(side, side)
    edge = side / (side - 1.0)
    return panel.imshow(surface, origin="lower", extent=(-edge, edge) * 2, **limits)


def planes(data_dir):
    """Draws the true function, medians, and width of the 90 % interval of f in the plane."""
    found = predictions(data_dir, SHOWN)
    names = [name for name in stable_functions.FUNCTIONS if name.startswith("plane")]
    figure, panels = plt.subplots(
        len(names), 4, figsize=(12, 11.5), sharex=True, sharey=True, layout="constrained"
    )
    for row, name in zip(panels, names, strict=True):
        data = stable_functions.problem(name, data_dir)
        limits = {"vmin": data.f_new.min() - 0.5, "vmax": data.f_new.max() + 0.5}
        draw_surface(row[0], data.x_new, data.f_new, **limits)
        row[0].plot(*data.x.T, "w.", ms=3)
        row[0].set_ylabel(label(name))
        for panel, method in zip(row[1:3], SHOWN, strict=True):
            median = found[name, method]["median"]
            image = draw_surface(panel, data.x_new, median, **limits)
            panel.set_xlabel(f"error {stable_functions.true_error(median, data.f_new):.3f}")
        figure.colorbar(image, ax=row[2], shrink=0.8)
        stable = found[name, "stable_process"]
        width = np.subtract(stable["upper"], stable["lower"])
        image = draw_surface(row[3], data.x_new, width, vmin=0.0, cmap="magma")
        figure.colorbar(image, ax=row[3], shrink=0.8)
    titles = (
        "true function",
        *(NAMES[method] for method in SHOWN),
        "width of 90 %, stable process",
    )
    for panel, title in zip(panels[0], titles, strict=True):
        panel.set_title(title, fontsize=10)
    save(figure, "stable_plane.png")


def errors(data_dir):
    """Draws box plots of the absolute errors of the medians, a panel for each function."""
    found = predictions(data_dir, COLOURS)
    figure, panels = plt.subplots(2, 5, figsize=(13, 5.6), layout="constrained")
    *shown, last = panels.ravel()
    for panel, name in zip(shown, stable_functions.FUNCTIONS, strict=True):
        truth = stable_functions.problem(name, data_dir).f_new
        boxes = panel.boxplot(
            [np.abs(np.subtract(found[name, method]["median"], truth)) for method in COLOURS],
            widths=0.7,
            patch_artist=True,
            flierprops={"marker": ".", "ms": 3.0},
            medianprops={"color": "black"},
        )
        for box, colour in zip(boxes["boxes"], COLOURS.values(), strict=True):
            box.set_facecolor(colour)
        panel.set_title(name.split("_")[0] + ": " + label(name), fontsize=10)
        panel.set_xticks([])
    for row in panels:
        row[0].set_ylabel("|median − f| at the new inputs")
    last.axis("off")
    handles = [plt.Rectangle((0, 0), 1, 1, facecolor=c, edgecolor="k") for c in COLOURS.values()]
    last.legend(handles, [NAMES[method] for method in COLOURS], loc="center", frameon=False)
    save(figure, "stable_errors.png")


def quantiles(data_dir):
    """Draws quantiles of f, not of observations, of the quadrants; a row for each method."""
    name = "plane_quadrants"
    found, data = predictions(data_dir, SHOWN), stable_functions.problem(name, data_dir)
    ends = [found[name, method][key] for method in SHOWN for key in ("lower", "upper")]
    limits = {"vmin": np.min(ends), "vmax": np.max(ends)}
    figure, panels = plt.subplots(
        len(SHOWN), 3, figsize=(9, 5.4), sharex=True, sharey=True, layout="constrained"
    )
    keys = {"lower": "5 % of f", "median": "50 % of f", "upper": "95 % of f"}
    for row, method in zip(panels, SHOWN, strict=True):
        for panel, key in zip(row, keys, strict=True):
            image = draw_surface(panel, data.x_new, found[name, method][key], **limits)
        row[0].set_ylabel(f"{NAMES[method]}\nx₂")
    for panel, title in zip(panels[0], keys.values(), strict=True):
        panel.set_title(title, fontsize=10)
    for panel in panels[-1]:
        panel.set_xlabel("x₁")
    figure.colorbar(image, ax=panels, shrink=0.9, label="f (true values: 0, 5, 10)")
    save(figure, "stable_plane_quantiles.png")


def chains_from_start(data, epochs=30):
    """Draws four chains from their start, burn-in included.

    Settings are those of `stable_functions.fit_stable`, except for new inputs: sigma, alpha and nu
    have the same posterior without them.

    Returns:
        Iterations `[K]`, the last one of burn-in, and the draws: name -> `[chains, K]`.
    """
    model = StableProcessModel(
        alpha="infer",
        nu=LogNormal(0.0, 1.5),
        partition="exact",
        chains=Chains(max_draws=10_000),  # all of them: none is dropped
        standardize=False,
        seed=0,
    )
    chains = model.chains
    per_epoch = chains.draws_per_epoch
    blocks = []

    def keep(epoch, logs):
        blocks.append({k: v[:, -per_epoch:, 0] for k, v in model.posterior_draws().items()})

    callback = keras.callbacks.LambdaCallback(on_epoch_end=keep)
    model.fit(data.x, data.y, epochs=epochs, verbose=0, callbacks=[callback])
    draws = {key: np.concatenate([b[key] for b in blocks], axis=1) for key in blocks[0]}
    iterations = chains.thin * np.arange(1, epochs * per_epoch + 1)
    return iterations, chains.burn_in * chains.sweeps_per_epoch, draws


def traces(data_dir):
    """Draws sigma, alpha and nu of one line and one plane."""
    figure, panels = plt.subplots(2, 3, figsize=(12, 5.2), sharex=True, layout="constrained")
    for row, name in zip(panels, ("line_three_jumps", "plane_quadrants"), strict=True):
        data = stable_functions.problem(name, data_dir)
        iterations, burn_in, draws = chains_from_start(data)
        symbols = {"noise_scale": "σ", "alpha": "α", "nu": "ν"}
        for panel, (key, symbol) in zip(row, symbols.items(), strict=True):
            panel.plot(iterations, draws[key].T, lw=0.6)
            panel.axvline(burn_in, color="black", ls="--", lw=1.2)
            panel.set_ylabel(symbol)
        row[2].set_yscale("log")
        row[1].set_title(name.split("_")[0] + ": " + label(name), fontsize=10)
    for panel in panels[1]:
        panel.set_xlabel("iteration (dashed: end of burn-in)")
    save(figure, "stable_traces.png")


FIGURES = {
    "lines": lines,
    "planes": planes,
    "errors": errors,
    "quantiles": quantiles,
    "traces": traces,
    "york_map": stable_figures_york.sites_and_quantiles,
    "york_intervals": stable_figures_york.intervals,
}


def main():
    """Draws all pictures, or those named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="../shared/data")
    parser.add_argument("--only", default=",".join(FIGURES))
    options = parser.parse_args()
    for name in options.only.split(","):
        FIGURES[name](options.data_dir)


if __name__ == "__main__":
    main()
