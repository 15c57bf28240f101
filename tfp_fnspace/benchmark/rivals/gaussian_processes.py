"""The exact Gaussian process of scikit-learn."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from tfp_fnspace.benchmark.rivals.base import Declined, Rival

#: Largest number of rows: a step costs their number cubed.
MOST_ROWS = 2000


class ExactGP(Rival):
    """A Gaussian process: scale, a length for each input and white noise by marginal likelihood.

    The kernel is squared exponential or Matern 5/2, whichever has the higher marginal likelihood.
    Lengths start at the root of the number of inputs, which is about the distance of two
    standardised rows.

    Raises:
        Declined: By `fit`, if there are more than 2,000 rows.
    """

    def _fit(self, x, y):
        if len(x) > MOST_ROWS:
            raise Declined(f"An exact GP takes at most {MOST_ROWS} rows. Received: {len(x)} rows")
        lengths = np.full(x.shape[1], np.sqrt(x.shape[1]))
        shapes = (
            RBF(lengths, (1e-2, 1e3)),
            Matern(lengths, (1e-2, 1e3), nu=2.5),
        )
        models = [self._fitted(shape, x, y) for shape in shapes]
        self._model = max(models, key=lambda model: model.log_marginal_likelihood_value_)

    def _fitted(self, shape, x, y):
        kernel = ConstantKernel(1.0, (1e-3, 1e3)) * shape + WhiteKernel(0.1, (1e-6, 10.0))
        with warnings.catch_warnings():  # lengths of inputs without effect end at their bound
            warnings.simplefilter("ignore", ConvergenceWarning)
            return GaussianProcessRegressor(kernel, random_state=self.random_state).fit(x, y)

    def _predict(self, x):
        return self._model.predict(x, return_std=True)
