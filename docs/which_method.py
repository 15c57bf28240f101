"""Draws the decision picture of docs/which_method.md.

python docs/which_method.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PICTURE = Path(__file__).resolve().parent / "images" / "which_method.png"
BLUE, VERMILLION, GREY, INK = "#0072B2", "#D55E00", "#6E6E6E", "#1A1A1A"

#: Question, answer if yes, why. They are asked from the top.
QUESTIONS = [
    (
        "A table with a target,\nand nothing to choose?",
        "several methods, weighed",
        "fns.sklearn.FunctionSpaceRegressor, Classifier",
    ),
    (
        "A few hundred rows, smooth,\nand a kernel comes to mind?",
        "an exact Gaussian process",
        "scikit-learn, GPflow, GPyTorch",
    ),
    (
        "Jumps or edges,\nwith one or two inputs?",
        "stable process",
        "fns.stable_process: functions that jump; MCMC",
    ),
    (
        "Several values at one x,\nor noise of odd shapes?",
        "SIP",
        "fns.sip: predictive distributions of any shape",
    ),
    (
        "Many rows or a stream,\nand no time to tune?",
        "TAGI",
        "fns.tagi: no learning rate, linear in rows",
    ),
    (
        "Can you say, or simulate,\nwhat functions you believe in?",
        "fBNN",
        "fns.fbnn: any process as the prior of a network",
    ),
    (
        "Is the right kernel unknown,\nor are the targets classes?",
        "DIWP",
        "fns.diwp: a deep kernel that is learnt",
    ),
]
LAST = ("DIWP first, then TAGI", "compare by nll on rows held out")


def box(ax, x, y, text, *, colour, filled, width):
    """A rounded box with text in it."""
    style = {"boxstyle": "round,pad=0.02,rounding_size=0.1", "lw": 1.6, "ec": colour}
    face = colour if filled else "white"
    patch = plt.matplotlib.patches.FancyBboxPatch(
        (x - width / 2, y - 0.33), width, 0.66, fc=face, **style
    )
    ax.add_patch(patch)
    ax.text(x, y, text, ha="center", va="center", color="white" if filled else INK, fontsize=13)


def arrow(ax, start, end, label, offset):
    """An arrow with a word beside it."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "lw": 1.6, "color": GREY})
    x, y = (start[0] + end[0]) / 2 + offset[0], (start[1] + end[1]) / 2 + offset[1]
    ax.text(x, y, label, ha="center", va="center", color=GREY, fontsize=12)


def main():
    """Draws the picture and writes it."""
    figure, ax = plt.subplots(figsize=(9.5, 9.5))
    figure.subplots_adjust(0, 0, 1, 1)
    left, right = 1.85, 6.3
    for i, (question, answer, why) in enumerate(QUESTIONS):
        y = -1.25 * i
        box(ax, left, y, question, colour=GREY, filled=False, width=3.4)
        colour = BLUE if why.startswith("fns.") else VERMILLION  # not of this library
        box(ax, right, y, answer, colour=colour, filled=True, width=3.3)
        ax.text(right, y - 0.5, why, ha="center", va="center", color=INK, fontsize=11)
        arrow(ax, (left + 1.75, y), (right - 1.7, y), "yes", (0, 0.14))
        arrow(ax, (left, y - 0.37), (left, y - 0.88), "no", (0.25, 0))
    y = -1.25 * len(QUESTIONS)
    box(ax, left, y, LAST[0], colour=BLUE, filled=True, width=3.4)
    ax.text(left, y - 0.5, LAST[1], ha="center", va="center", color=INK, fontsize=11)
    ax.set(xlim=(0, 8.1), ylim=(y - 0.7, 0.45))
    ax.axis("off")
    figure.savefig(PICTURE, dpi=110)
    print(f"wrote {PICTURE.name}")


if __name__ == "__main__":
    main()
