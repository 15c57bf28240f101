"""Toy problems of the five papers, a real table, and files with fixed splits (NumPy only).

The toys are generated from the formulas in the papers, so they need no files:

| function | paper | inputs | targets |
|---|---|---|---|
| `cubic` | TAGI 4.1, fBNN fig. 1 | U(-4, 4) | x^3 + N(0, 9) |
| `step_1d` | stable process 4.1, S.3.3 | grid on [-2, 2] | up to three jumps, N(0, 0.25) |
| `step_2d` | stable process 4.2, S.3.4 | grid on [-1, 1]^2 | jumps in the plane, N(0, 0.25) |
| `periodic` | fBNN 5.1.1 | U([-2, -0.5] u [0.5, 2]) | 2 sin(4 x) + N(0, 0.04) |
| `piecewise_constant`, `_linear` | fBNN 5.1.2, D.2 | U(0, 0.2) and U(0.8, 1) | a random f |
| `bimodal` | SIP 5.1 | U(-4, 4) | one of two curves + N(0, 1) |
| `heteroscedastic` | SIP D.2 | U(-4, 4) | 7 sin(x) + 10 + sin(x) N(0, 4) |
| `kinked` | SIP D.3 | U(-4, 5) | constant, then a sine, + N(0, 4) |

`example_table` has real rows that come with the package, `load` reads benchmark files, `k_fold`
splits rows for model choice.
"""

from tfp_fnspace.datasets.example import ExampleTable, example_table
from tfp_fnspace.datasets.files import (
    DATA_DIR_VARIABLE,
    Benchmark,
    Split,
    available,
    k_fold,
    load,
)
from tfp_fnspace.datasets.toys import (
    Dataset,
    bimodal,
    cubic,
    heteroscedastic,
    kinked,
    periodic,
    piecewise_constant,
    piecewise_linear,
    step_1d,
    step_2d,
)

__all__ = [
    "Benchmark",
    "DATA_DIR_VARIABLE",
    "Dataset",
    "ExampleTable",
    "Split",
    "available",
    "bimodal",
    "cubic",
    "example_table",
    "heteroscedastic",
    "k_fold",
    "kinked",
    "load",
    "periodic",
    "piecewise_constant",
    "piecewise_linear",
    "step_1d",
    "step_2d",
]
