"""Pictures of the stable process: the paper's figures 1, 2 and S1 to S13 with our results.

    python benchmarks/stable_figures.py --data-dir ../shared/data

Lines and planes are drawn from `benchmarks/results/stable_functions_stable.json`, York from
`york_grid.json`; traces, and York's grid where that file is missing, are computed.
"""

import argparse
import json
import pathlib

import matplotlib.pyplot as plt
import numpy as np
import stable_functions
import stable_york

from tfp_fnspace.benchmark import write_records
from tfp_fnspace.stable_process import StableProcessModel

IMAGES = pathlib.Path("docs/images")
RESULTS = pathlib.Path("benchmarks/results")
COLOURS = {"stable_process": "#0072B2", "gp_matern32": "#D55E00"}
NAMES = {"stable_process": "stable process", "gp_matern32": "GP, Matérn 3/2"}


def save(figure, name):
    """Writes and closes a figure."""
    figure.savefig(IMAGES / name, dpi=120)
    plt.close(figure)
    print(f"wrote {IMAGES / name}", flush=True)


def predictions(data_dir):
    """Function -> method -> record, for training seed 0; the Gaussian processes are fitted here."""
    stable = json.loads((RESULTS / "stable_functions_stable.json").read_text())
    found = {r["function"]: {"stable_process": r} for r in stable if r["seed"] == 0}
    for name, records in found.items():
        data = stable_functions.problem(name, data_dir)
        fitted = stable_functions.BASELINES["gp_matern32"](data.x, data.y, data.x_new, 0)
        errors = stable_functions.scores(fitted, data.f_new)
        records["gp_matern32"] = {**errors, "prediction": fitted}
    return found


def lines(data_dir, records):
    """Figures 1, S2 and S4 to S7: median and 90 % band of f on a line."""
    names = [name for name in stable_functions.FUNCTIONS if name.startswith("line")]
    figure, panels = plt.subplots(
        len(COLOURS), len(names), figsize=(15, 5.6), sharex=True, sharey="col", layout="constrained"
    )
    for column, name in zip(panels.T, names, strict=True):
        data = stable_functions.problem(name, data_dir)
        grid = np.linspace(-2.0, 2.0, 801)[:, np.newaxis]
        for panel, (method, colour) in zip(column, COLOURS.items(), strict=True):
            record = records[name][method]
            found = record["prediction"]
            x = data.x_new[:, 0]
            panel.fill_between(x, found["lower"], found["upper"], color=colour, alpha=0.25, lw=0)
            panel.plot(x, found["median"], color=colour, lw=1.6)
            panel.plot(grid, stable_functions.FUNCTIONS[name](grid), "k--", lw=0.9)
            panel.plot(data.x[:, 0], data.y, "k.", ms=3.5)
            panel.set_title(f"{NAMES[method]}: error {record['error']:.3f}", fontsize=10)
        column[-1].set_xlabel(name.removeprefix("line_").replace("_", " "))
    save(figure, "stable_line.png")


def planes(data_dir, records):
    """Figures 2 and S8 to S10: true function, medians, and width of the 90 % interval."""
    names = [name for name in stable_functions.FUNCTIONS if name.startswith("plane")]
    titles = ("true function", *NAMES.values(), "width of 90 %, stable process")
    figure, panels = plt.subplots(
        len(names), 4, figsize=(12, 11.5), sharex=True, sharey=True, layout="constrained"
    )
    for row, name in zip(panels, names, strict=True):
        data = stable_functions.problem(name, data_dir)
        found = {method: records[name][method]["prediction"] for method in COLOURS}
        low, high = data.f_new.min() - 0.5, data.f_new.max() + 0.5
        stable = found["stable_process"]
        width = np.subtract(stable["upper"], stable["lower"])
        surfaces = [data.f_new, *(found[method]["median"] for method in COLOURS), width]
        for i, (panel, values) in enumerate(zip(row, surfaces, strict=True)):
            limits = {"vmin": low, "vmax": high} if i < 3 else {"vmin": 0.0, "cmap": "magma"}
            side = int(np.sqrt(len(values)))
            order = np.lexsort((data.x_new[:, 0], data.x_new[:, 1]))
            surface = np.asarray(values)[order].reshape(side, side)
            image = panel.imshow(surface, origin="lower", extent=(-1.125, 1.125) * 2, **limits)
            if i == 0:
                panel.plot(*data.x.T, "w.", ms=3)
                panel.set_ylabel(name.removeprefix("plane_").replace("_", " "))
            if 0 < i < 3:
                error = records[name][list(COLOURS)[i - 1]]["error"]
                panel.set_xlabel(f"error {error:.3f}")
            if i >= 2:
                figure.colorbar(image, ax=panel, shrink=0.8)
    for panel, title in zip(panels[0], titles, strict=True):
        panel.set_title(title, fontsize=10)
    save(figure, "stable_plane.png")


def traces(data_dir):
    """Figure S1: four chains from the prior, one line and one plane."""
    figure, panels = plt.subplots(2, 3, figsize=(12, 5.2), sharex=True, layout="constrained")
    for row, name in zip(panels, ("line_three_jumps", "plane_quadrants"), strict=True):
        data = stable_functions.problem(name, data_dir)
        model = StableProcessModel(
            alpha="infer",
            nu="infer",
            nu_prior=(0.0, 1.5),
            burn_in=1,
            sweeps_per_epoch=5,
            standardize=False,
            seed=0,
        )
        model.fit(data.x, data.y, epochs=401, verbose=0)
        draws = model.posterior_draws()
        for panel, (key, label) in zip(
            row, {"noise_scale": "σ", "alpha": "α", "nu": "ν"}.items(), strict=True
        ):
            values = draws[key][..., 0]  # [chains, draws]
            step = 2000 / values.shape[1]
            iterations = step * np.arange(values.shape[1])
            for chain in values:
                panel.plot(iterations, chain, lw=0.6)
            panel.set_ylabel(label)
        row[2].set_yscale("log")
        row[1].set_title(name.replace("_", ": ", 1).replace("_", " "), fontsize=10)
    for panel in panels[1]:
        panel.set_xlabel("iteration")
    save(figure, "stable_traces.png")


def york(data_dir):
    """Figures S11 and S13: sites, and quantiles of the predictive law on a grid."""
    x, y, x_new = stable_york.load(data_dir)
    path, side = RESULTS / "york_grid.json", 30
    ends = [np.linspace(*np.quantile(x[:, i], [0.02, 0.98]), side) for i in (0, 1)]
    grid = np.stack(np.meshgrid(*ends), axis=-1).reshape(-1, 2)
    if not path.exists():
        model, _ = stable_york.fit(x, y, None, seed=0, epochs=15)
        quantiles = model.predict_quantiles(grid, stable_york.LEVELS)[:, 0]
        write_records(path, np.round(quantiles, 3).tolist())
    quantiles = np.array(json.loads(path.read_text()))
    figure, panels = plt.subplots(1, 4, figsize=(15, 4), layout="constrained")
    limits = {"vmin": -2.0, "vmax": 2.5, "cmap": "viridis"}
    panels[0].scatter(*x.T, c=y, s=18, **limits)
    panels[0].plot(*x_new.T, "kx", ms=4)
    panels[0].set_title("sites (crosses: validation)", fontsize=10)
    panels[0].set_ylabel("latitude, standardised")
    extent = (ends[0][0], ends[0][-1], ends[1][0], ends[1][-1])
    for panel, level, values in zip(panels[1:], stable_york.LEVELS, quantiles.T, strict=True):
        surface = values.reshape(side, side)
        image = panel.imshow(surface, origin="lower", extent=extent, aspect="auto", **limits)
        panel.set_title(f"{100 * level:g} % of NO$_2$", fontsize=10)
    for panel in panels:
        panel.set_xlabel("longitude, standardised")
        panel.set_xlim(*extent[:2])
        panel.set_ylim(*extent[2:])
    figure.colorbar(image, ax=panels, shrink=0.9, label="NO$_2$, standardised")
    save(figure, "stable_york.png")


def main():
    """Draws all of them, or those named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="../shared/data")
    parser.add_argument("--only", default="lines,planes,traces,york")
    options = parser.parse_args()
    for name in options.only.split(","):
        if name in ("lines", "planes"):
            {"lines": lines, "planes": planes}[name](
                options.data_dir, predictions(options.data_dir)
            )
        else:
            {"traces": traces, "york": york}[name](options.data_dir)


if __name__ == "__main__":
    main()
