"""Carbon dioxide at Mauna Loa, forecast by an LSTM of TAGI.

    python benchmarks/tagi_mauna_loa.py [--data-dir DIR]

The data are monthly means. The growth over a year is co2 of a month less that of the same month of
the year before and less a line in time. An LSTM of 40 units with a learnt noise scale predicts it
from the growths of the 24 months before. A tenth of the months before `TRAIN_END`, drawn by the
seed, and the whole of `GAP` are missing. Growths to and from missing months are NaN as targets. In
the windows they are that of the month before, with a variance that grows by the mean squared
difference of two months. Values after a missing month start from the month a year before it and a
growth like that. The model is that of the epoch, of at most `EPOCHS`, with the best density of the
last five years before `TRAIN_END`.

Scores are on the months after. They are one step ahead with measured windows, and for the forecast,
in which each growth comes from moments of the model's own growths before it. The variances of the
years are added up, as if their errors were independent. The growth of the line alone is scored
too.
"""

import argparse
import os

import keras
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from figure_style import save
from scipy import stats

from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.benchmark import read_records, run_missing

RESULTS = "benchmarks/results/tagi_mauna_loa.json"
TRAIN_END, GAP, WINDOW, UNITS, EPOCHS = 2016.0, 1990, 24, 40, 60
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#6E6E6E"


class Series:
    """Months, growths over a year in standard deviations, and windows of those."""

    def __init__(self, data_dir, seed):
        path = os.path.join(data_dir, "timeseries", "mauna_loa.csv")
        table = np.genfromtxt(path, delimiter=",", names=True)
        self.year, self.co2 = table["decimal_year"], table["co2_ppm"]
        train = self.year < TRAIN_END
        drawn = np.random.default_rng(seed).random(len(train)) < 0.1
        self.missing = train & (drawn | (table["year"] == GAP))
        self.num_train = int(train.sum())
        growth = np.full(len(train), np.nan)
        measured = np.where(self.missing, np.nan, self.co2)
        growth[12:] = measured[12:] - measured[:-12]
        seen = train & np.isfinite(growth)
        self.line = np.polynomial.Polynomial.fit(self.year[seen], growth[seen], 1)(self.year)
        self.scale = np.std((growth - self.line)[seen])
        self.growth = (growth - self.line) / self.scale
        spread = np.nanmean(np.diff(self.growth[: self.num_train]) ** 2)
        self.mean, self.variance = self.growth.copy(), np.zeros(len(growth))
        self.mean[:12] = 0.0
        self.variance[:12] = 1.0
        for t in 12 + np.flatnonzero(np.isnan(self.growth[12:])):
            self.mean[t], self.variance[t] = self.mean[t - 1], self.variance[t - 1] + spread
        # Missing months have the level of the year before and their growth.
        seen = ~self.missing
        self.level = np.where(seen, self.co2, np.interp(self.year, self.year[seen], self.co2[seen]))
        self.level_variance = np.zeros(len(growth))
        for t in 12 + np.flatnonzero(self.missing[12:]):
            self.level[t] = self.level[t - 12] + self.line[t] + self.scale * self.mean[t]
            growth_variance = self.scale**2 * self.variance[t]
            self.level_variance[t] = self.level_variance[t - 12] + growth_variance

    def windows(self, times, mean=None, variance=None):
        """Returns moments of the growths before each of these, two arrays `[N, WINDOW, 1]`."""
        steps = np.asarray(times)[:, np.newaxis] + np.arange(-WINDOW, 0)
        parts = (self.mean, self.variance) if mean is None else (mean, variance)
        return [part[steps][..., np.newaxis].astype("float32") for part in parts]

    def added_up(self, growth, variance):
        """Returns means and standard deviations in ppm after training, from growths."""
        level, spread = self.level.copy(), self.level_variance.copy()
        for t in range(self.num_train, len(level)):
            i = t - self.num_train
            level[t] = level[t - 12] + self.line[t] + self.scale * growth[i]
            spread[t] = spread[t - 12] + self.scale**2 * variance[i]
        return level[self.num_train :], np.sqrt(spread[self.num_train :])


def fitted(series, seed):
    """Returns a fitted model, and its best epoch."""
    mean, variance = keras.Input((WINDOW, 1)), keras.Input((WINDOW, 1))
    hidden = tagi.LSTM(UNITS)((mean, variance))
    noise = likelihoods.Gaussian(0.2, trainable=True)
    model = tagi.TAGIModel([mean, variance], tagi.Dense(1)(hidden), likelihood=noise, seed=seed)
    times = np.arange(WINDOW + 12, series.num_train)
    held_out = times >= series.num_train - 60
    x, y = series.windows(times), series.growth[times, np.newaxis]
    train = ([part[~held_out] for part in x], y[~held_out])
    seen = held_out & np.isfinite(y[:, 0])
    stop = keras.callbacks.EarlyStopping(
        "val_nll", mode="min", patience=10, restore_best_weights=True
    )
    validation = ([part[seen] for part in x], y[seen])
    history = model.fit(
        *train,
        epochs=EPOCHS,
        batch_size=16,
        validation_data=validation,
        callbacks=[stop],
        verbose=0,
    ).history
    return model, 1 + int(np.argmin(history["val_nll"]))


def forecast(model, series):
    """Returns means and standard deviations in ppm after the training months, one step and many."""
    times = np.arange(series.num_train, len(series.year))
    found = model.predict(series.windows(times), verbose=0)
    mean = series.level[times - 12] + series.line[times] + series.scale * found["mean"][:, 0]
    variance = np.square(series.scale * found["stddev"][:, 0]) + series.level_variance[times - 12]
    one_step = mean, np.sqrt(variance)
    mean, variance = series.mean.copy(), series.variance.copy()
    for t in times:
        found = model.predict(series.windows([t], mean, variance), verbose=0)
        mean[t], variance[t] = found["mean"][0, 0], found["stddev"][0, 0] ** 2
    return {"one_step": one_step, "forecast": series.added_up(mean[times], variance[times])}


def run(data_dir, seed):
    """Returns scores of one model."""
    series = Series(data_dir, seed)
    model, epoch = fitted(series, seed)
    truth = series.co2[series.num_train :]
    record = {"epoch": epoch, "missing": int(series.missing.sum()), "train": series.num_train}
    for name, (mean, stddev) in forecast(model, series).items():
        inside = np.abs(truth - mean) < stats.norm.ppf(0.95) * stddev
        record[name] = {
            "rmse": round(float(np.sqrt(np.mean((truth - mean) ** 2))), 3),
            "coverage_90": round(float(inside.mean()), 3),
            "nll": round(float(-stats.norm(mean, stddev).logpdf(truth).mean()), 3),
        }
    zeros = np.zeros(len(truth))
    line, _ = series.added_up(zeros, zeros)
    record["line_rmse"] = round(float(np.sqrt(np.mean((truth - line) ** 2))), 3)
    return record


def picture(data_dir, seed=0):
    """Draws the series, its missing months and the forecast."""
    series = Series(data_dir, seed)
    mean, stddev = forecast(fitted(series, seed)[0], series)["forecast"]
    year, after = series.year, series.year[series.num_train :]
    seen = (np.arange(len(year)) < series.num_train) & ~series.missing
    figure, panels = plt.subplots(
        1, 2, figsize=(9.6, 3.4), layout="constrained", width_ratios=(1, 1.4)
    )
    for panel, start in zip(panels, (year[0], 2011.0), strict=True):
        panel.fill_between(
            after,
            mean - 1.645 * stddev,
            mean + 1.645 * stddev,
            color=BLUE,
            alpha=0.3,
            lw=0,
            label="forecast, 90 % of the months",
        )
        panel.plot(after, mean, color=BLUE, lw=1)
        shown = seen & (year >= start)
        panel.plot(year[shown], series.co2[shown], ".", color=GREY, ms=3, label="learnt from")
        panel.plot(
            after, series.co2[series.num_train :], ".", color=VERMILLION, ms=3, label="held out"
        )
        panel.set(xlabel="year")
    panels[0].set(ylabel="CO$_2$ in ppm")
    panels[0].legend(frameon=False, loc="upper left")
    save(figure, "tagi_mauna_loa.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("TFP_FNSPACE_DATA", "../shared/data"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default=RESULTS)
    options = parser.parse_args()
    cells = [{"seed": seed} for seed in range(options.seeds)]
    for _ in run_missing(options.out, cells, lambda seed: run(options.data_dir, seed)):
        pass
    for record in read_records(options.out):
        names = ("seed", "epoch", "missing", "one_step", "forecast", "line_rmse", "seconds")
        print({name: record[name] for name in names})
    picture(options.data_dir)


if __name__ == "__main__":
    main()
