"""Numbers for the predictive distributions of `sip_figures.py`."""

import diptest
import numpy as np
from scipy import optimize, stats

#: Inputs where the two curves of the bimodal set are far apart.
PLACES = (-3.0, -1.0, 3.0)


def curves(x):
    """Returns the two curves of `datasets.bimodal`."""
    return 10.0 * np.sin(x - 0.5), 10.0 * np.cos(x - 0.5)


def mean(dataset, x):
    """Returns the mean of y given x for a generator of `datasets`."""
    if dataset == "bimodal":
        return sum(curves(x)) / 2.0
    return 7.0 * np.sin(x) + 10.0


def bimodal(model, x, y):
    """Compares with the best Gaussian that has a mean and variance for each x; modes at `PLACES`.

    That Gaussian has the moments of the generator, (a + b) / 2 and 1 + (a - b)^2 / 4 for curves a
    and b, so no heteroscedastic Gaussian has more expected log-density. The dip test is that of
    Hartigan and Hartigan (1985), on 2,000 draws.
    """
    first, second = curves(x)
    best = stats.norm.logpdf(y, (first + second) / 2.0, np.sqrt(1.0 + (first - second) ** 2 / 4.0))
    true = np.logaddexp(stats.norm.logpdf(y, first, 1.0), stats.norm.logpdf(y, second, 1.0))
    found = model.predict_distribution(x.astype(np.float32)).log_prob(y.astype(np.float32)).numpy()
    found = found.reshape(best.shape)
    record = {
        "more_than_gaussian": _mean_and_error(found - best),
        "most_possible": _mean_and_error(true - np.log(2.0) - best),
    }
    levels = np.linspace(-14.0, 14.0, 561, dtype=np.float32)
    for place in PLACES:
        distribution = model.predict_distribution(np.full((1, 1), place, np.float32))
        draws = distribution.sample(2000, seed=3).numpy().ravel()
        dip, p_value = diptest.diptest(draws)
        density = np.exp(distribution.log_prob(levels.reshape(-1, 1, 1)).numpy().ravel())
        inner = (density[1:-1] >= density[:-2]) & (density[1:-1] > density[2:])
        tops = np.flatnonzero(inner & (density[1:-1] > 0.1 * density.max())) + 1
        record[f"x = {place:g}"] = {
            "dip": round(float(dip), 4),
            "p_value": float(f"{p_value:.3g}"),
            "modes": [round(float(value), 2) for value in levels[tops]],
            "curves": [round(float(value), 2) for value in sorted(curves(place))],
        }
    return record


def heteroscedastic(model, x, y):
    """Measures the error of the predictive standard deviation, whose truth is 2 |sin(x)|.

    The error is over 141 points of [-3.5, 3.5]. `best_constant` is the same error of the constant
    that suits best.
    """
    grid = np.linspace(-3.5, 3.5, 141, dtype=np.float32)[:, np.newaxis]
    true = 2.0 * np.abs(np.sin(grid[:, 0]))
    found = model.predict_distribution(grid).stddev().numpy()[:, 0]
    rate = np.sqrt(np.mean((found - true) ** 2))
    return {
        "rms_of_stddev": round(float(rate), 3),
        "best_constant": round(float(np.std(true)), 3),
        "correlation": round(float(np.corrcoef(found, true)[0, 1]), 3),
    }


def prior_beside_rows(functions, y, mean):
    """Measures whether draws of the prior follow the rows.

    - `log_density`: mean log-density of the rows under the draws plus the normal noise that suits
      best; `marginal` is that of the normal with the mean and the variance of y, which does not
      know x;
    - `explained`: the share of the variance of the generator's mean over the rows that the mean of
      the draws explains, 1 less the mean square of their difference over that variance.

    Args:
        functions: Draws of the prior at the rows' inputs, in the user's units, `[S, N]`.
        y: Targets `[N, 1]`.
        mean: Mean of the targets given the inputs, `[N, 1]`.
    """

    def cost(log_noise):
        terms = stats.norm.logpdf(y[:, 0], functions, np.exp(log_noise))
        return np.log(len(functions)) - np.mean(np.logaddexp.reduce(terms, axis=0))

    best = optimize.minimize_scalar(cost, bounds=(-4.0, 4.0), method="bounded").fun
    marginal = np.mean(stats.norm.logpdf(y, y.mean(), y.std()))
    error = np.mean((np.mean(functions, axis=0) - mean[:, 0]) ** 2)
    return {
        "log_density": round(float(-best), 3),
        "marginal": round(float(marginal), 3),
        "explained": round(float(1.0 - error / np.var(mean)), 3),
    }


def _mean_and_error(values):
    return [round(float(np.mean(values)), 3), round(float(stats.sem(values, axis=None)), 3)]
