"""The cubic toy of the TAGI paper (section 4.1, figure 5): how the posterior changes by epoch.

The data are y = x^3 + v, v ~ N(0, 9), with 20 training and 20 validation points on [-4, 4]. The
network has one hidden layer of 100 ReLU units, and inputs and targets are normalised to [-1, 1].
Learning takes one observation at a time (update="exact", the paper's recursion), and the noise
scale is the true one. The likelihood of the validation set says when to stop.

    python benchmarks/tagi_cubic.py --figure docs/images/tagi_cubic.png
"""

import argparse
import pathlib

import keras
import numpy as np

import tfp_fnspace as fns
from tfp_fnspace.benchmark import machine, versions, write_records

EPOCHS = 100
UNITS = 100


class Snapshots(keras.callbacks.Callback):
    """Keeps the weights, and scores the training set, after every epoch."""

    def __init__(self, x, y):
        super().__init__()
        self.data = x, y
        self.weights, self.log_likelihood = [], []

    def keep(self):
        self.weights.append(self.model.get_weights())
        scores = self.model.evaluate(*self.data, return_dict=True, verbose=0)
        self.log_likelihood.append(-scores["nll"])

    def on_train_begin(self, logs=None):
        self.keep()

    def on_epoch_end(self, epoch, logs=None):
        self.keep()


def make_model(noise_scale, seed):
    """Makes one hidden layer with the paper's prior."""
    inputs = keras.Input((1,))
    outputs = fns.tagi.Dense(1)(fns.tagi.Dense(UNITS, activation="relu")(inputs))
    noise = fns.likelihoods.Gaussian(scale=noise_scale)
    return fns.tagi.TAGIModel(
        inputs, outputs, likelihood=noise, update="exact", standardize=False, seed=seed
    )


def run(seed):
    """Fits, and returns the model, the snapshots, the record and the scales of x and y."""
    train, held_out = fns.datasets.cubic(seed), fns.datasets.cubic(seed + 1)
    x_scale, y_scale = np.abs(train.x).max(), np.abs(train.y).max()
    model = make_model(3.0 / y_scale, seed)
    model.compile()
    data = [(d.x / x_scale, d.y / y_scale) for d in (train, held_out)]
    snapshots = Snapshots(*data[0])
    before = -model.evaluate(*data[1], return_dict=True, verbose=0)["nll"]
    history = model.fit(
        *data[0],
        epochs=EPOCHS,
        batch_size=1,
        validation_data=data[1],
        callbacks=[snapshots],
        verbose=0,
    )
    validation = [before, *(-np.array(history.history["val_nll"]))]
    record = {
        "seed": seed,
        "epochs": EPOCHS,
        "units": UNITS,
        "noise_scale": 3.0 / y_scale,
        "best_epoch": int(np.argmax(validation)),
        "validation_log_likelihood": [round(float(v), 5) for v in validation],
        "training_log_likelihood": [round(float(v), 5) for v in snapshots.log_likelihood],
        "versions": versions(),
        "machine": machine(),
    }
    return model, snapshots, record, (train, held_out), (x_scale, y_scale)


def draw(model, snapshots, record, data, scales, path):
    """Draws four predictive bands, and the likelihoods against the epochs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    train, held_out = data
    x_scale, y_scale = scales
    best = record["best_epoch"]
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
    grid = np.linspace(-5.0, 5.0, 301)[:, np.newaxis]
    for ax, epoch in zip(axes.flat, (0, 1, best, EPOCHS), strict=False):
        model.set_weights(snapshots.weights[epoch])
        outputs = model.predict(grid / x_scale)
        mean, stddev = (outputs[key][:, 0] * y_scale for key in ("mean", "stddev"))
        ax.fill_between(
            grid[:, 0],
            mean - 3 * stddev,
            mean + 3 * stddev,
            color="#0072B2",
            alpha=0.2,
            lw=0,
            label="mean ± 3 standard deviations",
        )
        ax.plot(grid, mean, color="#0072B2", label="mean")
        ax.plot(grid, grid**3, "--", color="black", lw=1, label="true function")
        ax.plot(train.x, train.y, ".", color="#D55E00", label="training points")
        ax.set(title=f"epoch {epoch}" + (" (best)" if epoch == best else ""), ylim=(-130, 130))
        ax.set(xlabel="x", ylabel="y")
    ax = axes.flat[4]
    epochs = np.arange(EPOCHS + 1)
    ax.plot(epochs, record["training_log_likelihood"], color="#009E73", label="training set")
    ax.plot(epochs, record["validation_log_likelihood"], color="#D55E00", label="validation set")
    ax.axvline(best, color="black", lw=1, ls=":", label=f"best epoch, {best}")
    values = np.array(record["validation_log_likelihood"][1:])
    ax.set(xlabel="epoch", ylabel="mean log-likelihood (normalised units)")
    ax.set(title="when to stop", ylim=(np.percentile(values, 2) - 0.3, None))
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    axes.flat[5].axis("off")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    axes.flat[5].legend(handles, labels, frameon=False, loc="center", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", default="docs/images/tagi_cubic.png", type=pathlib.Path)
    parser.add_argument("--out", default="benchmarks/results/tagi_cubic.json")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model, snapshots, record, data, scales = run(options.seed)
    write_records(options.out, [record])
    draw(model, snapshots, record, data, scales, options.figure)
    best = record["best_epoch"]
    values = record["validation_log_likelihood"]
    print(
        f"best epoch {best}: {values[best]:.3f}; epoch 1: {values[1]:.3f}; last: {values[-1]:.3f}"
    )
    print(f"wrote {options.figure} and {options.out}")


if __name__ == "__main__":
    main()
