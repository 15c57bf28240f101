"""Where the training of a deep inverse Wishart process starts."""

import dataclasses

import keras

from tfp_fnspace.boundary import arguments
from tfp_fnspace.boundary.options import Options
from tfp_fnspace.model import inducing

FITS = ("marginal_likelihood", "lower_bound")


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
@dataclasses.dataclass(frozen=True)
class Start(Options):
    """Where training starts.

    Args:
        rows: The rows at which the inducing points start. `"random"` takes random rows. `"greedy"`
            takes each where a smooth process has the largest variance given its values at the
            previous ones (`math.selection.greedy_rows`, among at most 10,000 random rows).
        fit: What is fitted before training. With `None`, the pseudo-targets of the posterior are
            the targets at the inducing points, and all other parameters have fixed values.
            `"marginal_likelihood"` starts at the Gaussian process that results when the random
            matrices are at their prior means, which is a good approximation for large delta. Scale
            and bias of the inputs, amplitude and noise are then fitted to at most 500 random rows
            (P if that is more) by L-BFGS; v and A follow in closed form from at most 10,000 rows.
            `"greedy"` then chooses among the 500 rows, under the fitted kernel. `"lower_bound"`
            continues from there: the inducing points, unless they are frozen, move together with
            kernel and noise to a larger lower bound of those rows; it is for a few hundred rows
            with little noise. Both need Gaussian noise, and do not support
            `DeepKernel(hidden="gaussian_process")`.

    Raises:
        ValueError: If a word is not one of these.
    """

    rows: str = "random"
    fit: str | None = None

    def __post_init__(self):
        arguments.checked_choice("rows", self.rows, inducing.INITS)
        if self.fit is not None:
            arguments.checked_choice("fit", self.fit, FITS)
