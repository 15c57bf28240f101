"""What all figures share: colours, axes, points, shades, grid and legend."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfp_fnspace.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito (2008): distinguishable with every common kind of colour blindness.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY_BLUE, BLACK, GREY = "#E69F00", "#56B4E9", "#1A1A1A", "#6E6E6E"

#: Colours of curves that are drawn together, in this order.
CURVES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY_BLUE, BLACK)

#: Line style of what is expected, not observed.
DASHED = (0, (5, 3))


def axes(ax: "Axes | None", figsize: tuple[float, float] = (7.0, 4.2)) -> "Axes":
    """Returns the given axes, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    return _pyplot().subplots(figsize=figsize, dpi=120, layout="constrained")[1]


def figure(figsize: tuple[float, float]) -> "Figure":
    """Returns a new figure of a size in inches that no window shows."""
    _pyplot()
    from matplotlib.figure import Figure

    return Figure(figsize=figsize, dpi=120, layout="constrained")


def finish(ax: "Axes", **legend: Any) -> "Axes":
    """Draws grid and legend, and returns the axes."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color=GREY, alpha=0.18, lw=0.6)
    ax.set_axisbelow(True)
    ax.legend(frameon=False, fontsize="small", **legend)
    return ax


def finish_below_legend(ax: "Axes") -> "Axes":
    """Does what `finish` does, with the legend above the axes, in columns that fit its width."""
    wide = ax.figure.bbox.width > 6.0 * ax.figure.dpi
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0.2}
    return finish(ax, ncols=3 if wide else 2, **place)


def shade(
    ax: "Axes", x: ArrayLike, low: ArrayLike, high: ArrayLike, color: str = BLUE, **style: Any
) -> None:
    """Fills the area between two curves."""
    ax.fill_between(x, low, high, color=color, lw=0, **style)


def points(ax: "Axes", x: ArrayLike, y: ArrayLike, **style: Any) -> None:
    """Draws points, small ones if there are many."""
    if len(x) <= 100:
        size = {"ms": 5.5, "mec": "white", "mew": 0.6, "zorder": 4}
    else:  # a thousand full-size points would hide the lines and bands
        size = {"ms": 2.5, "mew": 0.0, "alpha": 0.45, "zorder": 1.5}
    ax.plot(x, y, **{"ls": "none", "marker": "o", "color": BLACK, **size, **style})


def _pyplot() -> ModuleType:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Plots need matplotlib: `pip install matplotlib`. "
            f"Received: {type(error).__name__}: {error}"
        ) from error
    return plt
