"""York's pictures of the stable process paper, figures S11 to S13.

python benchmarks/stable_figures.py --data-dir ../shared/data --only york_map,york_intervals
"""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
import stable_functions
import stable_york
from figure_style import COLOURS, NAMES, save
from scipy import special

from tfp_fnspace.benchmark import read_records, write_records

GRID = pathlib.Path("benchmarks/results/york_grid.json")
SIDE = 10


def grid_record(data_dir, epochs=20, seed=0):
    """Returns quantiles of observations on a regular grid, from `GRID`; computes them if missing.

    The partition is the exact one of sites and grid together. The grid covers the central 96 % of
    the sites' coordinates.
    """
    if not GRID.exists():
        x, y, _ = stable_york.load(data_dir)
        ends = [np.round(np.linspace(*np.quantile(x[:, i], [0.02, 0.98]), SIDE), 4) for i in (0, 1)]
        points = np.stack(np.meshgrid(*ends), axis=-1).reshape(-1, 2)
        model, seconds = stable_york.fit(x, y, points, seed, epochs)
        quantiles = model.predict_quantiles(points, stable_york.LEVELS)[:, 0]
        record = stable_york.record_of(
            model,
            points,
            seconds,
            part="grid",
            epochs=epochs,
            seed=seed,
            x_std=ends[0].tolist(),
            y_std=ends[1].tolist(),
            levels=list(stable_york.LEVELS),
            quantiles=np.round(quantiles, 3).tolist(),
        )
        write_records(GRID, [record])
    return read_records(GRID)[0]


def sites_and_quantiles(data_dir):
    """Draws figures S11 and S13: sites, and quantiles of the predictive distribution on a grid."""
    x, y, x_new = stable_york.load(data_dir)
    record = grid_record(data_dir)
    quantiles = np.array(record["quantiles"])
    rows, columns = len(record["y_std"]), len(record["x_std"])
    figure, panels = plt.subplots(1, 4, figsize=(15, 4), layout="constrained")
    values = np.concatenate([y, quantiles.ravel()])
    limits = {"vmin": values.min(), "vmax": np.quantile(values, 0.995)}
    panels[0].scatter(*x.T, c=y, s=18, edgecolors="grey", linewidths=0.3, **limits)
    panels[0].plot(*x_new.T, "kx", ms=4)
    panels[0].set_title("sites (crosses: validation)", fontsize=10)
    panels[0].set_ylabel("latitude, standardised")
    for panel, level, surface in zip(panels[1:], record["levels"], quantiles.T, strict=True):
        image = panel.pcolormesh(
            record["x_std"], record["y_std"], surface.reshape(rows, columns), **limits
        )
        panel.set_title(f"{100 * level:g} % of NO$_2$", fontsize=10)
    for panel in panels:
        panel.set_xlabel("longitude, standardised")
    figure.colorbar(image, ax=panels, shrink=0.9, extend="max", label="NO$_2$, standardised")
    save(figure, "stable_york.png")


def intervals(data_dir):
    """Draws figure S12: 90 % intervals of the observations at the validation inputs."""
    x, y, _ = stable_york.load(data_dir)
    stable = np.genfromtxt(stable_york.PREDICTIONS, delimiter=",", names=True)
    x_new = np.stack([stable["x_std"], stable["y_std"]], axis=1)
    process = stable_functions.BASELINES["gp_matern32"](x, y, x_new, 0)
    # These are the intervals of f, widened by the noise.
    reach = special.ndtri((1.0 + stable_functions.LEVEL) / 2.0)
    half = np.hypot(process["upper"] - process["median"], reach * process["chosen"]["noise"])
    width = stable["upper"] - stable["lower"]
    order = np.argsort(width)
    ranks = np.arange(1, len(width) + 1)
    ends = {
        "stable_process": (stable["lower"] - stable["median"], stable["upper"] - stable["median"]),
        "gp_matern32": (-half, half),
    }
    figure, panel = plt.subplots(figsize=(10, 4), layout="constrained")
    for shift, (method, (lower, upper)) in zip((-0.2, 0.2), ends.items(), strict=True):
        colour, name = COLOURS[method], NAMES[method]
        panel.vlines(ranks + shift, lower[order], upper[order], color=colour, lw=2.5, label=name)
    panel.axhline(0.0, color="black", lw=0.8)
    shorter = np.sum(width < 2.0 * half)
    panel.set_title(
        f"90 % intervals: the stable process has the shorter one at {shorter} of {len(width)} "
        "inputs",
        fontsize=10,
    )
    panel.set_xlabel("validation inputs, sorted by the width of the stable process")
    panel.set_ylabel("NO$_2$ minus median, standardised")
    panel.set_xlim(0, len(width) + 1)
    figure.legend(loc="outside right upper", frameon=False)
    save(figure, "stable_york_intervals.png")
