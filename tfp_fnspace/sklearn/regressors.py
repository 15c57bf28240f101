"""One regressor for each method."""

from typing import Self

import numpy as np

from tfp_fnspace.sklearn.base import TableRegressor
from tfp_fnspace.sklearn.tagi import WithTAGI
from tfp_fnspace.typing import ArrayLike


class TAGIRegressor(WithTAGI, TableRegressor):
    """Regression by TAGI, a network whose weights are learnt in closed form and online.

    A missing number is treated as a Gaussian with the moments of its column.

    Args:
        time_limit: Seconds that `fit` may take, 15 by default; a step that has begun is finished.
        random_state: As in scikit-learn: an integer makes `fit` repeatable, unless its time limit
            ends it: then it takes as many steps as the machine can do.
        verbose: 1 for a progress bar.

    Attributes:
        model_: The fitted Keras model, `TAGIModel`.
        settings_: The settings that the recipe has chosen, a dict.
        encoder_: The encoder that converts the table to numbers; `get_feature_names_out` names
            them.
        n_features_in_: Number of columns of the table.
        feature_names_in_: Their names, if they are words.

    Example:
        >>> from tfp_fnspace.sklearn import TAGIRegressor
        >>> x = np.linspace(-1.0, 1.0, 40)[:, np.newaxis]
        >>> regressor = TAGIRegressor(time_limit=1.0, random_state=0).fit(x, np.sin(3.0 * x[:, 0]))
        >>> mean, stddev = regressor.predict(x, return_std=True)
        >>> quantiles = regressor.predict_quantiles(x, [0.05, 0.5, 0.95])  # [40, 3]
    """

    method = "tagi"

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learns from further rows, each once; the posterior so far is the prior for them.

        Without an earlier `fit`, this is `fit`. Words and columns are those of the first rows.

        Args:
            X: As for `fit`.
            y: As for `fit`.

        Returns:
            The regressor.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        y = self._targets(y)
        return self._learn(X, y.reshape(len(y), -1))


class StableProcessRegressor(TableRegressor):
    """Regression by the posterior of a wide network with stable weights, drawn by MCMC.

    Its functions may jump, so they suit rough targets with few inputs. Given more than 400 rows it
    uses a random part of them, since its cost is the cube of their number.

    Args:
        time_limit: As for `TAGIRegressor`, but 45 by default, since chains take longer.
        random_state: As for `TAGIRegressor`.
        verbose: As for `TAGIRegressor`.
    """

    method = "stable_process"

    def __init__(
        self,
        *,
        time_limit: float = 45.0,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        super().__init__(time_limit=time_limit, random_state=random_state, verbose=verbose)


class FBNNRegressor(TableRegressor):
    """Regression by a functional variational network, whose prior is a Gaussian process.

    Args:
        time_limit: As for `TAGIRegressor`.
        random_state: As for `TAGIRegressor`.
        verbose: As for `TAGIRegressor`.
    """

    method = "fbnn"


class SIPRegressor(TableRegressor):
    """Regression by a sparse implicit process, a prior of random networks learnt from the data.

    Args:
        time_limit: As for `TAGIRegressor`.
        random_state: As for `TAGIRegressor`.
        verbose: As for `TAGIRegressor`.
    """

    method = "sip"


class DIWPRegressor(TableRegressor):
    """Regression by a deep inverse Wishart process, a deep model of the kernel.

    Args:
        time_limit: As for `TAGIRegressor`.
        random_state: As for `TAGIRegressor`.
        verbose: As for `TAGIRegressor`.
    """

    method = "diwp"
