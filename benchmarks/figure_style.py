"""Colours and names of the methods in the stable process's pictures, and the pictures' folder."""

import pathlib

import matplotlib.pyplot as plt

IMAGES = pathlib.Path("docs/images")

#: Method -> colour, from Okabe and Ito.
COLOURS = {
    "stable_process": "#0072B2",
    "gp_matern32": "#D55E00",
    "gp_rbf": "#E69F00",
    "gp_matern52": "#009E73",
    "gp_matern52_sampled": "#CC79A7",
}

NAMES = {
    "stable_process": "stable process",
    "gp_matern32": "GP, Matérn 3/2",
    "gp_rbf": "GP, squared exponential",
    "gp_matern52": "GP, Matérn 5/2",
    "gp_matern52_sampled": "GP, Matérn 5/2, sampled",
}


def save(figure, name):
    """Writes and closes a figure."""
    figure.savefig(IMAGES / name, dpi=120)
    plt.close(figure)
    print(f"wrote {IMAGES / name}", flush=True)
