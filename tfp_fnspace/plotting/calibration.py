"""Is the uncertainty right? Calibration curve, PIT histogram, reliability of classes, sharpness."""

from typing import TYPE_CHECKING

import numpy as np
import tensorflow_probability as tfp

from tfp_fnspace.boundary import arguments
from tfp_fnspace.metrics import (
    calibration_error,
    expected_calibration_error,
    interval_coverage,
    interval_width,
    pit,
)
from tfp_fnspace.metrics.scores_of_classes import class_probabilities
from tfp_fnspace.plotting import style
from tfp_fnspace.typing import Array, ArrayLike, Distribution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

tfd = tfp.distributions

_LEVELS = np.linspace(0.0, 1.0, 101)

#: Levels of the intervals of `plot_sharpness`, and those whose points have a label.
_INTERVALS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_LABELLED = (0.5, 0.8, 0.9, 0.95)


def plot_calibration(
    y: ArrayLike, distribution: Distribution, *, ax: "Axes | None" = None
) -> "Axes":
    """Draws the frequencies with which observations fall below their predictive quantiles.

    With the probability integral transform u = F(y) of each observation, the curve is the share of
    u <= p against the nominal probability p. A calibrated distribution gives the diagonal up to
    sampling error. The area between the two is shaded; `metrics.calibration_error` in the legend
    measures it at 19 levels. The outputs are pooled.

    Args:
        y: `[N, D]` observations, NaN if missing.
        distribution: `tfd.Distribution` with batch `[N]` and event `[D]`, such as
            `model.predict_distribution(x)`.
        ax: Axes to draw into; None makes a new figure.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ValueError: If `y` does not fit the distribution.
        ImportError: If matplotlib is not installed.
    """
    transformed = np.sort(_transformed(y, distribution))
    observed = np.searchsorted(transformed, _LEVELS, side="right") / transformed.size
    error = float(calibration_error(y, distribution))

    ax = style.axes(ax, figsize=(4.8, 4.8))
    ax.plot([0, 1], [0, 1], color=style.GREY, lw=1.2, ls=style.DASHED, label="perfectly calibrated")
    style.shade(ax, _LEVELS, _LEVELS, observed, alpha=0.2, label=f"calibration error {error:.3f}")
    ax.plot(
        _LEVELS,
        observed,
        color=style.BLUE,
        lw=2.2,
        label=f"model ({transformed.size} observations)",
    )
    ticks = np.linspace(0, 1, 6)
    ax.set(xlabel="nominal probability", ylabel="observed frequency", xticks=ticks, yticks=ticks)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return style.finish(ax)


def plot_pit_histogram(
    y: ArrayLike,
    distribution: Distribution,
    *,
    num_bins: int = 10,
    level: float = 0.9,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws the histogram of the probability integral transforms u = F(y), which should be flat.

    A hump in the middle means that the distributions are too wide, a U that they are too narrow,
    and a slope that they are too low or too high. If the distributions are calibrated and the
    observations independent, the number of u in one of B bins is binomial with n trials of
    probability 1 / B. The band has binomial quantiles at `(1 - level) / (2 B)` and its complement,
    so that all bars lie within it with a probability of at least `level` (Bonferroni). The outputs
    are pooled.

    Args:
        y: `[N, D]` observations, NaN if missing.
        distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
        num_bins: Number of bins, B.
        level: Probability of the band, between 0 and 1.
        ax: Axes to draw into; None makes a new figure.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ValueError: If `y` does not fit the distribution, or `num_bins` or `level` is out of range.
        ImportError: If matplotlib is not installed.

    References:
        Gneiting, Balabdaoui & Raftery (2007), Probabilistic forecasts, calibration and sharpness,
        JRSS B 69.
    """
    num_bins, level = arguments.checked_count("num_bins", num_bins), arguments.checked_level(level)
    transformed = _transformed(y, distribution)
    counts, edges = np.histogram(transformed, bins=num_bins, range=(0.0, 1.0))
    low, high = _binomial_band([transformed.size], [1.0 / num_bins], level, num_bins)

    ax = style.axes(ax)
    bars = num_bins * counts / transformed.size
    label = f"model ({transformed.size} observations)"
    ax.bar(
        edges[:-1],
        bars,
        1.0 / num_bins,
        align="edge",
        color=style.BLUE,
        alpha=0.55,
        lw=0.8,
        edgecolor="white",
        label=label,
    )
    ax.axhline(1.0, color=style.GREY, lw=1.2, ls=style.DASHED, label="perfectly calibrated")
    band = f"all bars of {100 * level:g} % of calibrated models"
    ax.axhspan(*(num_bins * np.r_[low, high]), color=style.GREY, alpha=0.22, lw=0, label=band)
    ax.set(xlabel="probability integral transform", ylabel="density", xlim=(0, 1))
    ax.set_ylim(0, 1.08 * max(np.max(bars), num_bins * high[0]))
    return style.finish_below_legend(ax)


def plot_reliability(
    y: ArrayLike,
    distribution: Distribution,
    *,
    label: int | None = None,
    num_bins: int = 10,
    level: float = 0.9,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws how often predictions of classes come true against their probabilities.

    Bin b = 1, ..., B holds the n_b predictions with a probability in `((b - 1) / B, b / B]`. Each
    point has the mean probability of a bin and the share of its predictions that came true. A
    calibrated classifier gives the diagonal up to sampling error: the number that comes true is
    then about binomial with n_b trials and the mean probability of the bin. The bars are binomial
    quantiles at levels such that all points lie within them with a probability of about `level`
    (Bonferroni). The numbers at the bottom are the n_b.

    Args:
        y: Labels `[N]` or `[N, 1]`, for independent Bernoulli outputs `[N, D]`, which are pooled;
            NaN if missing.
        distribution: `tfd.Categorical` with batch `[N]`, or (independent) `tfd.Bernoulli`, such as
            `model.predict_distribution(x)`.
        label: Class whose probability is compared with its frequency. For None it is the predicted
            class of each row, whose probability is the confidence; the legend then has
            `metrics.expected_calibration_error`.
        num_bins: Number of bins, B.
        level: Probability of the bars, between 0 and 1.
        ax: Axes to draw into; None makes a new figure.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        TypeError: If the distribution is of another kind.
        ValueError: If `y` does not fit the distribution, there is no such label, or `num_bins` or
            `level` is out of range.
        ImportError: If matplotlib is not installed.

    References:
        Bröcker & Smith (2007), Increasing the reliability of reliability diagrams, Weather and
        Forecasting 22 (the bars).
    """
    num_bins, level = arguments.checked_count("num_bins", num_bins), arguments.checked_level(level)
    probabilities, right = _forecasts(y, distribution, label)
    bins = np.clip(np.ceil(probabilities * num_bins).astype(int) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    used = np.flatnonzero(counts)
    counts = counts[used]
    mean = np.bincount(bins, probabilities, num_bins)[used] / counts
    share = np.bincount(bins, right, num_bins)[used] / counts
    low, high = _binomial_band(counts, mean, level, len(used))

    ax = style.axes(ax, figsize=(4.8, 4.8))
    ax.plot([0, 1], [0, 1], color=style.GREY, lw=1.2, ls=style.DASHED, label="perfectly calibrated")
    band = f"all points of {100 * level:g} % of calibrated models"
    ax.bar(
        (used + 0.5) / num_bins,
        high - low,
        0.94 / num_bins,
        low,
        color=style.GREY,
        alpha=0.22,
        lw=0,
        label=band,
    )
    if label is None:
        error = float(expected_calibration_error(y, distribution))
        name, xlabel = f"model (expected calibration error {error:.3f})", "confidence"
        ylabel = "share of right predictions"
    else:
        name, xlabel = f"model ({len(right)} observations)", f"predicted probability of {label}"
        ylabel = f"observed frequency of {label}"
    ax.plot(mean, share, color=style.BLUE, lw=1.2, alpha=0.5)
    ax.plot(mean, share, "o", color=style.BLUE, ms=6.0, mec="white", mew=0.6, label=name)
    for place, count in zip(used, counts, strict=True):
        at = (place + 0.5) / num_bins, -0.035
        ax.text(*at, str(count), ha="center", va="center", fontsize="small", color=style.GREY)
    ticks = np.linspace(0, 1, 6)
    ax.set(xlabel=xlabel, ylabel=ylabel, xticks=ticks, yticks=ticks)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.07, 1.03), aspect="equal")
    return style.finish(ax, loc="upper left")


def plot_sharpness(
    y: ArrayLike,
    distribution: Distribution,
    reference: Distribution | None = None,
    *,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws the mean width of central intervals against the share of observations inside.

    For each level there is a point with the observed coverage and the mean width. Of two models
    with the same coverage the one with the narrower intervals is better, so the lower curve is the
    better one. The dashed curve has the nominal levels instead: a calibrated model lies on it, and
    one to the left of it has intervals that are too narrow. Widths are on a logarithmic scale. The
    outputs are pooled.

    Args:
        y: `[N, D]` observations, NaN if missing.
        distribution: `tfd.Distribution` with batch `[N]` and event `[D]`.
        reference: Distribution with the same batch and event to compare with, such as the
            climatology: the distribution of all observations, whatever the inputs are.
        ax: Axes to draw into; None makes a new figure.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ValueError: If `y` does not fit a distribution.
        ImportError: If matplotlib is not installed.

    References:
        Gneiting, Balabdaoui & Raftery (2007), Probabilistic forecasts, calibration and sharpness,
        JRSS B 69.
    """
    ax = style.axes(ax)
    if reference is not None:
        coverage, width = _coverage_and_width(y, reference)
        ax.plot(coverage, width, "s-", color=style.VERMILLION, lw=1.6, ms=4.0, label="reference")
    coverage, width = _coverage_and_width(y, distribution)
    nominal = "model, if it were calibrated"
    ax.plot(_INTERVALS, width, color=style.GREY, lw=1.2, ls=style.DASHED, label=nominal)
    ax.plot(coverage, width, "o-", color=style.BLUE, lw=2.2, ms=5.0, label="model")
    for level in _LABELLED:
        place = _INTERVALS.index(level)
        point, offset = (coverage[place], width[place]), {"textcoords": "offset points"}
        text = {"ha": "right", "fontsize": "small", "color": style.BLUE}
        ax.annotate(f"{100 * level:g} %", point, xytext=(-4, 5), **offset, **text)
    ax.set(xlabel="observed coverage", ylabel="mean width of the interval", xlim=(0, 1.02))
    ax.set_yscale("log")
    return style.finish_below_legend(ax)


def _transformed(y, distribution):
    """Returns the probability integral transforms of all observations, one axis."""
    transformed = np.asarray(pit(y, distribution)).reshape(-1)
    transformed = transformed[~np.isnan(transformed)]
    if not transformed.size:
        raise ValueError("`y` must have an observation. Received: y without known values")
    return transformed


def _coverage_and_width(y, distribution):
    """Returns observed coverages and mean widths of the intervals, both `[L]`."""
    coverage = [float(interval_coverage(y, distribution, level)) for level in _INTERVALS]
    width = [float(interval_width(y, distribution, level)) for level in _INTERVALS]
    return np.array(coverage), np.array(width)


def _forecasts(y, distribution, label):
    """Returns probabilities and whether what they are of came true, one axis each."""
    labels, probabilities, observed = map(np.asarray, class_probabilities(y, distribution))
    num_classes = probabilities.shape[-1]
    if label is None:
        of = np.argmax(probabilities, axis=-1)
    else:
        choices = range(num_classes)
        of = np.full(labels.shape, arguments.checked_choice("label", label, choices))
    chosen = np.take_along_axis(probabilities, of[..., np.newaxis], axis=-1)[..., 0]
    known = observed > 0.0
    if not np.any(known):
        raise ValueError("`y` must have an observation. Received: y without known values")
    return chosen[known].astype(np.float64), (labels == of)[known]


def _binomial_band(
    counts: ArrayLike, probabilities: ArrayLike, level: float, num_bins: int
) -> tuple[Array, Array]:
    """Returns the range of the shares of successes in which all bins lie together.

    Args:
        counts: Numbers of trials `[B]`.
        probabilities: Probabilities of success `[B]`.
        level: Probability that the shares of all bins are in their ranges.
        num_bins: Number of bins that the rest is shared by.

    Returns:
        Two arrays `[B]`, quantiles of the binomial distributions divided by the counts.
    """
    tail, low, high = 0.5 * (1.0 - level) / num_bins, [], []
    for count, probability in zip(counts, probabilities, strict=True):
        binomial = tfd.Binomial(np.float64(count), probs=np.float64(probability))
        below = binomial.cdf(np.arange(count + 1.0)).numpy()
        low.append(np.searchsorted(below, tail) / count)
        high.append(np.searchsorted(below, 1.0 - tail) / count)
    return np.array(low), np.array(high)
