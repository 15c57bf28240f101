"""Proposition 1 of the stable process paper: wide networks with stable weights, and their limit.

f(x) = sum_j v_j sign(b_j + w_j x), (b, w) standard normal, v symmetric alpha-stable of scale
(nu/2)^(1/2) p^(-1/alpha) for p hidden units, nu = 1. The figure has draws of f on a line for
several widths beside draws of the process. Below them it has the largest distance between the
distribution functions of an increment f(x') - f(x) of the network and of the process, without
Monte Carlo error.

At one point a network of any width has the distribution of the process. An increment is 2 times the
sum of the weights of the units that change sign between x and x', K ~ Binomial(p, q) of them. It is
symmetric stable of scale 2 (nu/2)^(1/2) (K/p)^(1/alpha), in the limit 2 (nu/2)^(1/2) q^(1/alpha).

    python benchmarks/stable_network.py --figure docs/images/stable_network.png
"""

import argparse
import math
import pathlib

import numpy as np
import tensorflow as tf
from scipy import stats

from tfp_fnspace.benchmark import machine, versions, write_records
from tfp_fnspace.distributions import Stable, StableProcess
from tfp_fnspace.methods.stable_process import hyperplanes
from tfp_fnspace.plotting.style import BLUE, GREEN, PURPLE, VERMILLION

ALPHAS = (0.5, 1.1, 2.0)
WIDTHS = (10, 100, 10_000)
DISTANCE_WIDTHS = tuple(int(round(10 ** (k / 4))) for k in range(17))  # 1 to 10,000
INCREMENT = (0.0, 0.5)  # x, x'
DRAWS = 4
NU = 1.0


def grid():
    return np.linspace(-3.0, 3.0, 601)[:, np.newaxis]


def stable_weights(alpha, scale, shape, seed):
    distribution = Stable(*(tf.constant(v, tf.float64) for v in (alpha, 0.0, 0.0, scale)))
    return distribution.sample(shape, seed=[0, seed]).numpy()


def network_draws(x, width, alpha, seed):
    """Draws f of a finite network, `[DRAWS, N]`."""
    rng = np.random.default_rng([seed, width])
    scale = math.sqrt(NU / 2.0) * width ** (-1.0 / alpha)
    weights = stable_weights(alpha, scale, (DRAWS, width), seed + width)
    draws = []
    for output_weights in weights:
        bias, slope = rng.normal(size=(2, width))
        draws.append(np.where(x * slope + bias > 0.0, 1.0, -1.0) @ output_weights)
    return np.stack(draws)


def process_draws(x, alpha, seed):
    """Draws the limit, `[DRAWS, N]`."""
    alpha = tf.constant(alpha, tf.float64)
    distribution = StableProcess(x, alpha, NU, partition=hyperplanes.exact(x))
    return distribution.sample(DRAWS, seed=[0, seed]).numpy()


def increment_distance(width, alpha):
    """Returns the largest difference of two distribution functions of f(x') - f(x).

    They are those of the network and of the process. Both distributions are symmetric, so positive
    arguments suffice. The arguments are in units of the limit's scale.
    """
    q = abs(math.atan(INCREMENT[1]) - math.atan(INCREMENT[0])) / math.pi
    counts = np.arange(width + 1)
    probability = stats.binom.pmf(counts, width, q)
    counts, probability = (part[probability > 1e-12] for part in (counts, probability))
    table, at = np.geomspace(1e-12, 1e12, 8001), np.geomspace(1e-4, 1e4, 2001)
    distribution = Stable(*(tf.constant(v, tf.float64) for v in (alpha, 0.0, 0.0, 1.0)))
    cdf, limit = distribution.cdf(table).numpy(), distribution.cdf(at).numpy()
    ratio = (counts / (width * q)) ** (1.0 / alpha)
    network = sum(
        p * (np.interp(np.log(at / r), np.log(table), cdf) if r > 0.0 else 1.0)
        for p, r in zip(probability, ratio, strict=True)
    )
    # At 0+ the network has a jump, the probability that no unit changes sign.
    return float(max(np.max(np.abs(network - limit)), 0.5 * probability[counts == 0].sum()))


def run(seed):
    """Returns distances for every index and width."""
    return [
        {
            "alpha": alpha,
            "nu": NU,
            "seed": seed,
            "increment": INCREMENT,
            "widths": DISTANCE_WIDTHS,
            "distance": [increment_distance(width, alpha) for width in DISTANCE_WIDTHS],
            "versions": versions(),
            "machine": machine(),
        }
        for alpha in ALPHAS
    ]


def draw(records, seed, path):
    """Draws a row for each index: draws of networks and process; below, the distances.

    For alpha < 1 single draws are far larger than the others, so the axis is logarithmic beyond
    +-1.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colors = (BLUE, VERMILLION, GREEN, PURPLE)
    figure = plt.figure(figsize=(13, 11), layout="constrained")
    layout = figure.add_gridspec(4, 4, height_ratios=(1, 1, 1, 1.25))
    x = grid()
    for i, alpha in enumerate(ALPHAS):
        first = None
        columns = [
            (f"network, {width:,} units", network_draws(x, width, alpha, seed)) for width in WIDTHS
        ]
        columns.append(("stable process", process_draws(x, alpha, seed)))
        for j, (title, f) in enumerate(columns):
            ax = figure.add_subplot(layout[i, j], sharey=first)
            first = first or ax
            for values, color in zip(f, colors, strict=True):
                ax.plot(x[:, 0], values, color=color, lw=1.2)
            if i == 0:
                ax.set_title(title, fontsize=11)
            if alpha < 1.0:
                ax.set_yscale("symlog", linthresh=1.0)
            if j == 0:
                ax.set_ylabel(f"α = {alpha:g}\nf(x)")
            else:
                ax.tick_params(labelleft=False)
            ax.set_xlabel("x" if i == len(ALPHAS) - 1 else "")
            ax.set_xticks([-2, 0, 2])
            ax.margins(x=0)
            _tidy(ax)
    ax = figure.add_subplot(layout[3, :])
    for record, color, marker in zip(records, colors, "os^", strict=False):
        ax.loglog(
            record["widths"],
            record["distance"],
            marker=marker,
            ms=5,
            color=color,
            label=f"α = {record['alpha']:g}",
        )
    ax.set(xlabel="hidden units", ylabel="largest difference\nof distribution functions")
    ax.set_title(
        f"increment f({INCREMENT[1]:g}) − f({INCREMENT[0]:g}): network against process", fontsize=11
    )
    ax.legend(frameon=False)
    _tidy(ax)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _tidy(ax):
    ax.spines[["top", "right"]].set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", default="docs/images/stable_network.png", type=pathlib.Path)
    parser.add_argument("--out", default="benchmarks/results/stable_network.json")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    records = run(options.seed)
    write_records(options.out, records)
    draw(records, options.seed, options.figure)
    for record in records:
        ends = ", ".join(
            f"{width}: {distance:.2g}"
            for width, distance in zip(record["widths"], record["distance"], strict=True)
            if width in (1, *WIDTHS)
        )
        print(f"alpha {record['alpha']}: {ends}")
    print(f"wrote {options.figure} and {options.out}")


if __name__ == "__main__":
    main()
