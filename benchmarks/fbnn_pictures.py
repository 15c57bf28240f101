"""The pictures of `fbnn_figures.py`, from its records."""

import matplotlib.pyplot as plt
import numpy as np
from figure_style import save
from packing import numbers

BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#6E6E6E"
NAMES = {"fbnn": "fBNN", "bbb": "Bayes by Backprop"}
COLOURS = {"fbnn": BLUE, "bbb": VERMILLION}


def in_units(record, part="mean"):
    """Returns mean and standard deviation of f in the data's units; `part` may be `"exact"`."""
    source = record["exact"] if part == "exact" else record
    mean = numbers(source["mean"]) * record["scale"][1] + record["center"][1]
    return mean, numbers(source["stddev"]) * record["scale"][1]


def band(panel, x, mean, stddev, colour, label=None):
    """Draws a mean with one and two standard deviations."""
    panel.plot(x, mean, color=colour, lw=1.5, label=label)
    for width in (1.0, 2.0):
        panel.fill_between(
            x, mean - width * stddev, mean + width * stddev, color=colour, alpha=0.18, lw=0
        )


def rows_of(panel, record):
    """Draws the training rows."""
    x = numbers(record["x"]) * record["scale"][0] + record["center"][0]
    panel.plot(x, numbers(record["y"]) * record["scale"][1] + record["center"][1], "k.", ms=4)


def cubic(records):
    """Draws figure 1: methods in rows, networks in columns."""
    _grid_of(records, np.linspace(-6.0, 6.0, 121), (-300.0, 300.0), "fbnn_cubic.png")


def periodic(records):
    """Draws figure 2."""
    _grid_of(records, np.linspace(-4.0, 4.0, 161), (-5.0, 5.0), "fbnn_periodic.png")


def _grid_of(records, grid, limits, name):
    """Puts methods in rows and networks in columns, or methods in columns for one network."""
    nets = list(dict.fromkeys(r["net"] for r in records))
    shape = (2, len(nets)) if len(nets) > 1 else (1, 2)
    figure, panels = plt.subplots(
        *shape,
        figsize=(9.6, 2.7 * shape[0] + 0.3),
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for record in records:
        place = list(NAMES).index(record["method"]) * len(nets) + nets.index(record["net"])
        panel = panels.flat[place]
        exact = in_units(record, "exact")
        band(panel, grid, *in_units(record), COLOURS[record["method"]])
        for sign in (-2.0, 0.0, 2.0):
            style = "-" if sign == 0.0 else ":"
            panel.plot(grid, exact[0] + sign * exact[1], style, color=GREY, lw=1.0)
        rows_of(panel, record)
        panel.set(ylim=limits, title=f"{NAMES[record['method']]}, {record['net']}")
    for panel in panels.flat[-shape[1] :]:
        panel.set_xlabel("x")
    save(figure, name)


def piecewise(records):
    """Draws figure 3: draws of the prior, and runs with four posterior draws."""
    kinds, grid = ("constant", "linear"), np.linspace(0.0, 1.0, 101)
    runs = sorted({r["seed"] for r in records})
    figure, panels = plt.subplots(
        2,
        1 + len(runs),
        figsize=(3.2 * (1 + len(runs)), 5.0),
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for record in records:
        row = panels[kinds.index(record["data"])]
        if record["seed"] == runs[0]:
            for text in record["prior_functions"]:
                row[0].plot(grid, numbers(text), lw=1.2)
            row[0].set_title(f"prior, piecewise {record['data']}")
        panel = row[1 + runs.index(record["seed"])]
        panel.plot(grid, numbers(record["truth"]), color=GREY, lw=1.5, ls="--")
        for text in record["functions"]:
            panel.plot(grid, numbers(text), color=BLUE, lw=0.9)
        mean, stddev = in_units(record)
        band(panel, grid, mean, stddev, BLUE)
        rows_of(panel, record)
        panel.set(ylim=(-0.6, 1.6), title=f"fBNN, run {record['seed']}")
    for panel in panels[-1]:
        panel.set_xlabel("x")
    save(figure, "fbnn_piecewise.png")


def mauna(records):
    """Draws figure 4: fBNN, Bayes by Backprop, fBNN of random cosines and the exact process."""
    grid = np.arange(1958.0, 2048.01, 0.25 / 3.0)
    parts = [
        (f"{NAMES[r['method']]}, {r['net']}", COLOURS[r["method"]], in_units(r)) for r in records
    ]
    parts.append(("exact Gaussian process", "#009E73", in_units(records[0], "exact")))
    figure, panels = plt.subplots(
        1,
        len(parts),
        figsize=(3.4 * len(parts), 3.2),
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for panel, (name, colour, values) in zip(panels, parts, strict=True):
        band(panel, grid, *values, colour)
        panel.axvline(2004.0, color=GREY, lw=1.0, ls=":")
        panel.set(title=name, xlabel="year", ylim=(300.0, 520.0))
    panels[0].set_ylabel("CO$_2$, ppm")
    save(figure, "fbnn_mauna_loa.png")


PICTURES = {"cubic": cubic, "periodic": periodic, "piecewise": piecewise, "mauna": mauna}
