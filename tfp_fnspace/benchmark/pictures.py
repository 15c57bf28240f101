"""Pictures of the cells that `benchmark uci` wrote: ranks, calibration, quality against seconds."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from tfp_fnspace.benchmark import tables
from tfp_fnspace.benchmark.cell import LEVELS
from tfp_fnspace.benchmark.estimators import ESTIMATORS
from tfp_fnspace.plotting import BLUE, GREY, VERMILLION


def write(cells, folder):
    """Writes all pictures as PNG.

    Args:
        cells: See `tables.read_cells`.
        folder: Where they go.

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
        figure, path = draw(), folder / f"{name}.png"
        figure.savefig(path, dpi=120)
        plt.close(figure)
        yield path


def is_ours(estimator):
    """Whether an estimator is one of this package's methods."""
    return ".rivals." not in ESTIMATORS.get(estimator, "")


def nemenyi_distance(num_estimators, num_sets, level=0.05):
    """How far apart mean ranks must be to differ by the Nemenyi test, q sqrt(k (k + 1) / (6 N)).

    Args:
        num_estimators: k, at least 2.
        num_sets: N.
        level: Of the test.

    References:
        Demsar (2006), "Statistical comparisons of classifiers over multiple data sets", JMLR 7.
    """
    k = num_estimators
    q = stats.studentized_range.ppf(1.0 - level, k, np.inf) / np.sqrt(2.0)
    return float(q * np.sqrt(k * (k + 1) / (6.0 * num_sets)))


def level_groups(ranks, distance):
    """Runs of sorted ranks that lie within a distance, as pairs of places, none inside another.

    Args:
        ranks: Increasing numbers.
        distance: The most that the ends of a run differ by.
    """
    found, last = [], -1
    for i in range(len(ranks)):
        j = max(k for k in range(i, len(ranks)) if ranks[k] - ranks[i] <= distance)
        if j > max(i, last):
            found.append((i, j))
        last = max(last, j)
    return found


def critical_difference(cells, score):
    """Mean ranks on a line; a bar joins those that the Nemenyi test at 5 % does not tell apart.

    Only of estimators that have all cells.

    Args:
        cells: See `tables.read_cells`.
        score: Column; smaller is better.

    Returns:
        The figure.
    """
    cells = tables.of_all_sets(cells)
    ranks = tables.mean_ranks(cells, score).sort_values()
    num_sets, size = cells["dataset"].nunique(), len(ranks)
    figure, ax = plt.subplots(figsize=(7.0, 0.9 + 0.3 * size), layout="constrained")
    for i, (name, rank) in enumerate(ranks.items()):
        colour = BLUE if is_ours(name) else GREY
        ax.plot([rank, rank, size + 0.3], [0.0, -i - 1.0, -i - 1.0], color=colour, lw=1.0)
        ax.text(size + 0.35, -i - 1.0, f"{name}  {rank:.2f}", va="center", color=colour)
    if size > 1:
        distance = nemenyi_distance(size, num_sets)
        for k, (i, j) in enumerate(level_groups(ranks.to_numpy(), distance)):
            height = 0.35 + 0.35 * k
            ax.plot(ranks.iloc[[i, j]], [height, height], color=VERMILLION, lw=3.0)
        ax.set_title(
            f"Mean rank in {score.upper()} on {num_sets} data sets, smaller is better;\nbars join "
            f"what is within {distance:.2f}; blue: this package",
            fontsize=9,
            loc="left",
        )
    ax.set(xlim=(0.8, size + 2.5), yticks=[], xticks=range(1, size + 1))
    ax.xaxis.tick_top()
    ax.spines[["left", "right", "bottom"]].set_visible(False)
    return figure


def calibration(cells):
    """Frequency of the PIT less the level, the mean over data sets, a panel for each estimator.

    Below 0 on the left and above 0 on the right the distributions are too wide, the other way
    round too narrow. The band is where 80 % of the data sets lie.

    Args:
        cells: See `tables.read_cells`.

    Returns:
        The figure.
    """
    done = cells[cells["status"] == "done"]
    groups = list(done.groupby("estimator"))
    rows = -(-len(groups) // 4)
    figure, axes = plt.subplots(
        rows, 4, figsize=(9.0, 2.1 * rows), sharex=True, sharey=True, layout="constrained"
    )
    title = "Frequency of targets below the quantile, less its level (blue: this package)"
    figure.suptitle(title, fontsize=10)
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
        ax.set_title(name, fontsize=9)
        ax.set(xlim=(0.0, 1.0), ylim=(-0.25, 0.25))
        ax.tick_params(labelbottom=True, labelsize=8)
    return figure


def quality_against_seconds(cells):
    """CRPS relative to conformal boosting against the median seconds of a cell.

    Args:
        cells: See `tables.read_cells`.

    Returns:
        The figure.
    """
    table = tables.summary(cells).dropna(subset=["crps", "seconds"])
    sets = cells["dataset"].nunique()
    figure, ax = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
    for i, (name, row) in enumerate(table.sort_values("seconds").iterrows()):
        colour = BLUE if is_ours(name) else GREY
        label = name if row["sets"] == sets else f"{name} ({row['sets']} of {sets} sets)"
        ax.plot(row["seconds"], row["crps"], "o", color=colour)
        ax.annotate(
            label,
            (row["seconds"], row["crps"]),
            xytext=(5, 4 if i % 2 else -11),  # neighbours on either side
            textcoords="offset points",
            fontsize=8,
            color=colour,
        )
    ax.set_xscale("log")
    ax.margins(x=0.25, y=0.1)
    ax.set(xlabel="median seconds of fit and prediction", ylabel="CRPS, conformal boosting = 1")
    ax.set_title("Blue: this package", fontsize=9, loc="left")
    return figure
