"""Pictures of the cells that `benchmark uci` wrote: ranks, calibration, quality against seconds."""

import os
import pathlib
import textwrap
from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from scipy import stats

from tfp_fnspace.benchmark import tables
from tfp_fnspace.benchmark.cell import LEVELS
from tfp_fnspace.benchmark.estimators import is_ours, title
from tfp_fnspace.plotting.style import BLUE, GREY, VERMILLION
from tfp_fnspace.typing import Array

_TICKS = (0.25, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0)

#: A label that is more points (1/72 inch) than this above or below has a line to its point.
_FAR = 16

#: Places of a label: points to the right and up, and the side of the label that is there.
_PLACES = [
    (side * 7 if height == 0 else side * 4, height, "left" if side > 0 else "right")
    for height in (0, 10, -10, 20, -20, 30, -30, 40, -40, 55, -55, 70, -70)
    for side in (1, -1)
]


def write(
    cells: pd.DataFrame, folder: str | os.PathLike[str], prefix: str = ""
) -> Iterator[pathlib.Path]:
    """Writes all pictures as PNG.

    Args:
        cells: See `tables.read_cells`.
        folder: Folder of the pictures.
        prefix: Prefix of their names.

    Yields:
        Their paths.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in {
        "ranks_crps": lambda: critical_difference(cells, "crps"),
        "ranks_nll": lambda: critical_difference(cells, "nll"),
        "calibration": lambda: calibration(cells),
        "seconds": lambda: quality_against_seconds(cells),
    }.items():
        figure, path = draw(), folder / f"{prefix}{name}.png"
        figure.savefig(path, dpi=120)
        plt.close(figure)
        yield path


def nemenyi_distance(num_estimators: int, num_sets: int, level: float = 0.05) -> float:
    """Returns the critical distance of mean ranks in the Nemenyi test, q sqrt(k (k + 1) / (6 N)).

    Args:
        num_estimators: k, at least 2.
        num_sets: N.
        level: Level of the test.

    References:
        Demsar (2006), "Statistical comparisons of classifiers over multiple data sets", JMLR 7.
    """
    k = num_estimators
    q = stats.studentized_range.ppf(1.0 - level, k, np.inf) / np.sqrt(2.0)
    return float(q * np.sqrt(k * (k + 1) / (6.0 * num_sets)))


def level_groups(ranks: Sequence[float] | Array, distance: float) -> list[tuple[int, int]]:
    """Returns runs of sorted ranks within a distance, as pairs of places, none inside another.

    Args:
        ranks: Increasing numbers.
        distance: The largest difference between the ends of a run.
    """
    found, last = [], -1
    for i in range(len(ranks)):
        j = max(k for k in range(i, len(ranks)) if ranks[k] - ranks[i] <= distance)
        if j > max(i, last):
            found.append((i, j))
        last = max(last, j)
    return found


def critical_difference(cells: pd.DataFrame, score: str) -> Figure:
    """Draws mean ranks on a line; bars join ranks that the Nemenyi test at 5 % cannot distinguish.

    The first panel has all data sets and the estimators that have each of them. If some estimators
    lack data sets, its title names them, and a second panel shows all estimators on the data sets
    that all have.

    Args:
        cells: See `tables.read_cells`.
        score: Column; smaller is better.

    Returns:
        The figure.
    """
    panels = [tables.comparable(cells)]
    if set(panels[0]["estimator"]) < set(cells["estimator"]):
        panels.append(tables.comparable(cells, by_all=True))
    panels = [panel for panel in panels if len(panel)] or panels[:1]
    heights = [1.0 + 0.28 * panel["estimator"].nunique() for panel in panels]
    figure, axes = plt.subplots(
        len(panels),
        figsize=(7.5, 0.6 + sum(heights)),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for ax, panel in zip(axes[:, 0], panels, strict=True):
        missing = sorted(set(cells["estimator"]) - set(panel["estimator"]))
        text = f"Mean rank in {score.upper()} on {panel['dataset'].nunique()} data sets"
        if missing:
            text += f", without those that do not have all: {', '.join(map(title, missing))}"
        elif set(panel["dataset"]) < set(cells["dataset"]):
            text += ", those that all have"
        _ranks_on_a_line(ax, panel, score, text)
    return figure


def _ranks_on_a_line(ax, cells, score, text):
    ranks = tables.mean_ranks(cells, score).sort_values(kind="stable")
    num_sets, size = cells["dataset"].nunique(), len(ranks)
    for i, (name, rank) in enumerate(ranks.items()):
        colour = BLUE if is_ours(name) else GREY
        ax.plot([rank, rank, size + 0.3], [0.0, -i - 1.0, -i - 1.0], color=colour, lw=1.0)
        label = f"{title(name)}  {rank:.2f}"
        ax.text(size + 0.45, -i - 1.0, label, va="center", color=colour, fontsize=9)
    if size > 1:
        distance = nemenyi_distance(size, num_sets)
        for k, (i, j) in enumerate(level_groups(ranks.to_numpy(), distance)):
            height = 0.35 + 0.35 * k
            ax.plot(ranks.iloc[[i, j]], [height, height], color=VERMILLION, lw=3.0)
        text += f". Smaller is better; bars join what is within {distance:.2f}; blue: ours"
    ax.set_title(textwrap.fill(text, 110), fontsize=8, loc="left")
    ax.set(xlim=(0.8, 1.4 * size + 1.2), yticks=[], xticks=range(1, size + 1))
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[["left", "right", "bottom", "top"]].set_visible(False)
    ax.plot([1, max(size, 1)], [0.0, 0.0], color="black", lw=0.8)


def calibration(cells: pd.DataFrame) -> Figure:
    """Draws the frequency of the PIT less the level, averaged over data sets, for each estimator.

    Distributions are too wide if the curve is below 0 on the left and above 0 on the right, and too
    narrow the other way round. The band holds 80 % of the data sets. Our estimators come first.

    Args:
        cells: See `tables.read_cells`.

    Returns:
        The figure.
    """
    done = cells[cells["status"] == "done"]
    groups = sorted(done.groupby("estimator"), key=lambda group: (not is_ours(group[0]), group[0]))
    rows = max(1, -(-len(groups) // 4))
    figure, axes = plt.subplots(
        rows, 4, figsize=(9.0, 2.1 * rows), sharex=True, sharey=True, layout="constrained"
    )
    heading = "Frequency of targets below the quantile, less its level (blue: ours)"
    figure.suptitle(heading, fontsize=10)
    for ax in axes.flat[len(groups) :]:
        ax.axis("off")
    for ax, (name, part) in zip(axes.flat, groups, strict=False):
        by_set = part.groupby("dataset")["frequencies"].apply(lambda f: np.mean(list(f), axis=0))
        gaps = np.stack(list(by_set)) - LEVELS  # [sets, levels]
        colour = BLUE if is_ours(name) else GREY
        low, high = np.quantile(gaps, [0.1, 0.9], axis=0)
        ax.fill_between(LEVELS, low, high, color=colour, alpha=0.25, lw=0)
        ax.plot(LEVELS, gaps.mean(axis=0), color=colour)
        ax.axhline(0.0, color="black", lw=0.6)
        ax.set_title(_with_sets(name, len(by_set), cells), fontsize=9)
        ax.set(xlim=(0.0, 1.0), ylim=(-0.25, 0.25))
        ax.tick_params(labelbottom=True, labelsize=8)
    return figure


def _with_sets(name, number, cells):
    """Returns the title of an estimator, with its number of data sets if others have more."""
    total = cells["dataset"].nunique()
    return title(name) if number == total else f"{title(name)} ({number} of {total} sets)"


def quality_against_seconds(cells: pd.DataFrame) -> Figure:
    """Draws CRPS relative to conformal boosting against the median seconds of a cell.

    Args:
        cells: See `tables.read_cells`.

    Returns:
        The figure.
    """
    table = tables.summary(cells).dropna(subset=["crps", "seconds"]).sort_values("seconds")
    figure, ax = plt.subplots(figsize=(8.0, 5.0))
    ax.set(xscale="log", yscale="log")
    ax.set(xlabel="median seconds of fit and prediction", ylabel="CRPS, conformal boosting = 1")
    heading = "Dots: ours, rings: others; each relative to the same cells of conformal boosting"
    ax.set_title(heading, fontsize=9)
    ax.margins(x=0.25, y=0.15)
    colours = [BLUE if is_ours(name) else GREY for name in table.index]
    for (_, row), colour in zip(table.iterrows(), colours, strict=True):
        # A ring shows a dot that it lies on.
        size, style = (6, "full") if colour == BLUE else (8, "none")
        ax.plot(row["seconds"], row["crps"], "o", color=colour, ms=size, fillstyle=style, mew=1.5)
    low, high = float(table["crps"].min()), float(table["crps"].max())
    ticks = [value for value in _TICKS if 0.9 * low <= value <= 1.1 * high]
    ax.yaxis.set_minor_locator(ticker.NullLocator())
    ax.set_yticks(ticks, [f"{value:g}" for value in ticks])
    figure.tight_layout()
    names = [_with_sets(name, row["sets"], cells) for name, row in table.iterrows()]
    _label(ax, table[["seconds", "crps"]].to_numpy(), names, colours)
    return figure


def _label(ax, points, names, colours):
    """Writes texts beside points, each at the nearest place where it hides no point or text."""
    renderer = ax.figure.canvas.get_renderer()
    inside = ax.get_window_extent(renderer)
    centres = ax.transData.transform(points)
    taken = [Bbox.from_extents(x - 5, y - 5, x + 5, y + 5) for x, y in centres]
    for point, name, colour in zip(points, names, colours, strict=True):
        text = ax.annotate(
            name, point, xytext=(0, 0), textcoords="offset points", fontsize=8, color=colour
        )
        x, y, box = 0, 0, inside
        for x, y, side in _PLACES:
            text.set(position=(x, y), ha=side, va="center")
            box = text.get_window_extent(renderer)
            clear = not any(box.overlaps(other) for other in taken)
            if clear and inside.x0 < box.x0 and box.x1 < inside.x1:
                break
        taken.append(box)
        if abs(y) > _FAR:  # a line leads to its point
            ax.annotate(
                "",
                point,
                xytext=(x, y),
                textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5, "shrinkB": 3},
            )
