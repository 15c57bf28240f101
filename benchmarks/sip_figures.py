"""Pictures of sparse implicit processes: the paper's figures 2, 3, 6, 8 and 9.

    python benchmarks/sip_figures.py [--data-dir ../shared/data] [--only bimodal,heteroscedastic]

The script runs one cell (data set, method) at a time. `benchmarks/results/sip_figures.json` keeps
the cells that are done, with the numbers of `sip_predictive.py` and the draws that the pictures
show. Protocol:

- Rows: `sip/bimodal.npz`, permutation 0, has 1800 rows to train on and 200 kept out. The others
  have 1000 points of the generators of `tfp_fnspace.datasets` (seed 0). `log_likelihood` and the
  numbers are of 2000 other points of the generator (seed 1). `kept_out` is the log-likelihood of
  the 200.
- All methods have a Bayesian network of two layers of 50 tanh units as the prior, 50 inducing
  points, alpha = 1, batches of 50, 400 epochs of Adam with 1e-3, and seed 0. SIP with adaptive
  contrast has 800 epochs.
- HMC has the prior and the noise that SIP learned: 4 chains of 500 iterations after 500 to adapt.
- Figure 3 has the data of Snelson and Ghahramani, 15 inducing points that start at one place,
  batches of 10, and 1200 epochs of Adam with 1e-2. One run has a posterior that stays as it was
  drawn, as in the paper. Figure 9 has 50 inducing points.
"""

import argparse
import functools
import os
import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np
import sip_predictive
import tensorflow as tf
import tensorflow_probability as tfp
from figure_style import save
from packing import numbers, packed

from tfp_fnspace import datasets, fbnn, sip
from tfp_fnspace.benchmark import read_records, run_missing
from tfp_fnspace.methods.sip.networks import mlp

RESULTS = pathlib.Path("benchmarks/results/sip_figures.json")

EPOCHS, BATCH, INDUCING = 400, 50, 50
GRID = np.linspace(-5.0, 5.0, 121, dtype=np.float32)[:, np.newaxis]
SETS = {"bimodal": datasets.bimodal, "heteroscedastic": datasets.heteroscedastic}
METHODS = ("vip", "fbnn", "sip", "sip_contrast", "sip_forward")
NAMES = {
    "vip": "VIP",
    "fbnn": "fBNN",
    "sip": "SIP",
    "sip_contrast": "SIP, contrast",
    "sip_forward": "SIP, forward KL",
}


class InducingPlaces(keras.callbacks.Callback):
    """Records where the inducing points are at the start and after some epochs."""

    def __init__(self, every):
        super().__init__()
        self.every, self.places = every, []

    def on_epoch_begin(self, epoch, logs=None):
        if epoch % self.every == 0:
            self.places.append(self.model.inducing_inputs_in_user_units()[:, 0])


def arrays(data):
    """Returns inputs and targets in float32."""
    return data.x.astype(np.float32), data.y.astype(np.float32)


def make_model(method, **options):
    """Makes an unfitted model of the protocol."""
    if method == "fbnn":
        prior, inputs = sip.bnn_prior(1), keras.Input((1,))
        prior.trainable = False
        network = keras.models.clone_model(sip.bnn_prior(1).network)
        model = fbnn.FBNNModel((inputs, network(inputs)), prior, seed=0)
    elif method == "vip":
        model = sip.VIPModel("bnn", alpha=1.0, seed=0)
    else:
        kl = "forward" if method == "sip_forward" else "symmetric"
        options = {"inducing_points": INDUCING, "alpha": 1.0, "seed": 0, **options}
        divergence = sip.Adversarial(kl, adaptive_contrast=method == "sip_contrast")
        model = sip.SIPModel("bnn", divergence=divergence, **options)
    model.compile(optimizer=keras.optimizers.Adam(1e-3))
    return model


def prior_functions(model, x, count):
    """Draws the prior at x, in the user's units."""
    if isinstance(model, sip.SIPModel | sip.VIPModel):
        return model.sample_prior_functions(x, count, seed=1)[..., 0]
    (x,) = model.units.scaled([tf.constant(x)])
    draws = model.prior.sample(x, count, 1)
    return model.units.functions(draws).numpy()[..., 0]


def training_rows(dataset, data_dir):
    """Returns rows to train on, and rows of the same file that are kept out (None if no file)."""
    if dataset != "bimodal":
        return arrays(SETS[dataset](0, 1000)), None
    with np.load(os.path.join(data_dir, "sip", "bimodal.npz")) as file:
        order = file["permutations"][0]
        x, y = (file[name].astype(np.float32)[order] for name in ("x", "y"))
    return (x[:1800], y[:1800]), (x[1800:], y[1800:])


def run(dataset, method, data_dir):
    """Fits a method, measures its predictive distribution, and draws what the picture shows."""
    keras.utils.set_random_seed(0)
    (x, y), kept_out = training_rows(dataset, data_dir)
    test = SETS[dataset](1, 2000)
    x_test, y_test = arrays(test)
    model = make_model(method)
    epochs = EPOCHS * (2 if method == "sip_contrast" else 1)
    history = model.fit(x, y, epochs=epochs, batch_size=BATCH, verbose=0).history
    scores = model.evaluate(x_test, y_test, verbose=0, return_dict=True)
    distribution = model.predict_distribution(GRID)
    measure = sip_predictive.bimodal if dataset == "bimodal" else sip_predictive.heteroscedastic
    record = {
        "log_likelihood": round(-scores["nll"], 4),
        "rmse": round(scores["rmse"], 4),
        "crps": round(scores["crps"], 4),
        "epochs": epochs,
        "law": measure(model, test.x, test.y),
        "prior_law": sip_predictive.prior_beside_rows(
            prior_functions(model, x_test, 1000), y_test, sip_predictive.mean(dataset, test.x)
        ),
        "history": {k: packed(v[:: epochs // 20]) for k, v in history.items()},
        "prior": packed(prior_functions(model, GRID, 30)),
        "predictive": packed(distribution.sample(20, seed=2).numpy()[..., 0]),
    }
    if kept_out is not None:
        record["kept_out"] = round(
            -model.evaluate(*kept_out, verbose=0, return_dict=True)["nll"], 4
        )
    if method == "sip":
        record["hmc"] = packed(hamiltonian(model, x, y))
    return record


def hamiltonian(model, x, y, chains=4, steps=500):
    """Draws predictions of the exact posterior under the prior and the noise that SIP learned."""
    (inputs,) = model.units.scaled([tf.constant(x)])
    targets = model.units.target_scaler(tf.constant(y))
    (grid,) = model.units.scaled([tf.constant(GRID)])
    parts = []
    for layer in model.prior.network.layers:
        means, variances = layer.posterior.means, layer.posterior.variances()
        parts += [(means[n].value, tf.sqrt(variances[n])) for n in ("kernel", "bias")]
    sizes = [int(tf.size(mean)) for mean, _ in parts]
    noise = float(model.likelihood.scale)

    def functions(z, points):
        pieces = tf.split(z, sizes, axis=-1)
        values = points[tf.newaxis]
        weights = [
            mean + scale * tf.reshape(piece, [-1, *mean.shape])
            for piece, (mean, scale) in zip(pieces, parts, strict=True)
        ]
        for i in range(0, len(weights), 2):
            values = tf.matmul(values, weights[i]) + weights[i + 1][:, tf.newaxis]
            values = tf.tanh(values) if i + 2 < len(weights) else values
        return values

    def log_prob(z):
        errors = (targets - functions(z, inputs)) / noise
        return -0.5 * (tf.reduce_sum(z**2, -1) + tf.reduce_sum(errors**2, [-2, -1]))

    kernel = tfp.mcmc.HamiltonianMonteCarlo(log_prob, step_size=1e-3, num_leapfrog_steps=25)
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, int(0.8 * steps))

    @tf.function(autograph=False)
    def sample():
        start = tf.random.stateless_normal([chains, sum(sizes)], [0, 1])
        return tfp.mcmc.sample_chain(
            steps, start, kernel=kernel, num_burnin_steps=steps, trace_fn=None, seed=[1, 2]
        )

    draws = tf.reshape(sample()[:: steps // 5], [-1, sum(sizes)])
    values = functions(draws, grid)
    values += noise * tf.random.stateless_normal(tf.shape(values), [3, 4])
    return model.units.target_scaler.inverse(values).numpy()[..., 0]


def compare(dataset, data_dir):
    """Draws figures 2 (with 6) and 8: data, HMC, priors and predictive distributions."""
    (x, y), _ = training_rows(dataset, data_dir)
    records = {r["method"]: r for r in read_records(RESULTS) if r["dataset"] == dataset}
    shown = [method for method in METHODS if method in records]
    figure, panels = plt.subplots(
        2, len(shown) + 1, figsize=(2.5 * (len(shown) + 1), 4.6), sharex=True, sharey=True
    )
    panels[0, 0].plot(x[:, 0], y[:, 0], ".", color="black", markersize=1.5)
    panels[0, 0].set_title("data")
    grid = GRID[:, 0]
    points = {"color": "#0072B2", "markersize": 1.5, "linestyle": "", "marker": "."}
    panels[1, 0].plot(grid, numbers(records["sip"]["hmc"]).T, **points)
    panels[1, 0].set_title("HMC, SIP's prior")
    for column, method in zip(panels.T[1:], shown, strict=True):
        record = records[method]
        column[0].plot(grid, numbers(record["prior"]).T, color="#009E73", linewidth=0.6)
        column[0].set_title(NAMES[method] + ":\nprior", fontsize=10)
        column[1].plot(grid, numbers(record["predictive"]).T, **points)
        column[1].set_title(f"log-likelihood {record['log_likelihood']:.2f}", fontsize=10)
    low, high = y.min(), y.max()
    panels[0, 0].set_ylim(low - 0.4 * (high - low), high + 0.4 * (high - low))
    figure.tight_layout()
    save(figure, f"sip_{dataset}.png")


def places(dataset, method, data_dir):
    """Fits SIP and keeps the path of the inducing points: figures 3 and 9."""
    keras.utils.set_random_seed(0)
    if dataset == "snelson":
        file = np.load(os.path.join(data_dir, "toy", "snelson.npz"))
        x, y = (file[name].astype(np.float32) for name in ("x", "y"))
        start = np.full((15, 1), 3.0) + 0.05 * np.linspace(-1.0, 1.0, 15)[:, np.newaxis]
        options = {"inducing_points": start, "batch_size": 10}
        if method != "sip":  # the posterior stays as it is
            options["posterior"] = mlp(100, len(start), seed=0)
            options["posterior"].trainable = False
        rate, epochs = 1e-2, 1200
    else:
        x, y = arrays(datasets.kinked(0, 1000))
        start = np.random.default_rng(0).uniform(-4.0, 5.0, (50, 1))
        options, rate, epochs = {"inducing_points": start, "batch_size": BATCH}, 1e-3, EPOCHS
    batch = options.pop("batch_size")
    model = make_model("sip", **options)
    model.compile(optimizer=keras.optimizers.Adam(rate))
    way = InducingPlaces(epochs // 50)
    model.fit(x, y, epochs=epochs, batch_size=batch, verbose=0, callbacks=[way])
    way.places.append(model.inducing_inputs_in_user_units()[:, 0])
    margin = 0.15 * (x.max() - x.min())
    grid = np.linspace(x.min() - margin, x.max() + margin, 121, dtype=np.float32)[:, np.newaxis]
    distribution = model.predict_distribution(grid)
    return {
        "epochs": epochs,
        "start": spread(way.places[0], x),
        "end": spread(way.places[-1], x),
        "way": packed(way.places),
        "grid": packed(grid[:, 0]),
        "mean": packed(distribution.mean().numpy()[:, 0]),
        "predictive": packed(distribution.sample(20, seed=2).numpy()[..., 0]),
        "data": packed(np.stack([x[:, 0], y[:, 0]])),
    }


def spread(places, x):
    """Returns first and last inducing point and the widest gap, as parts of the data's range."""
    low, width = float(x.min()), float(np.ptp(x))
    places = np.sort((np.asarray(places) - low) / width)
    return {
        "first": round(float(places[0]), 3),
        "last": round(float(places[-1]), 3),
        "widest_gap": round(float(np.max(np.diff(places))), 3),
    }


def plot_places(dataset):
    """Draws predictions above, and the path of the inducing points below."""
    (record,) = (
        r for r in read_records(RESULTS) if (r["dataset"], r["method"]) == (dataset, "sip")
    )
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(6.0, 5.6), sharex=True)
    x, y = numbers(record["data"])
    way, line = numbers(record["way"]), numbers(record["grid"])
    top.plot(line, numbers(record["predictive"]).T, ".", color="#56B4E9", markersize=2)
    top.plot(x, y, ".", color="black", markersize=2.5)
    top.plot(line, numbers(record["mean"]), color="#0072B2")
    low, high = y.min(), y.max()
    for i, height in ((0, high + 0.3 * (high - low)), (-1, low - 0.3 * (high - low))):
        top.plot(way[i], np.full(len(way[i]), height), "+", color="#D55E00")
    top.set_ylabel("y (crosses: inducing points,\nstart above, end below)")
    epochs = np.linspace(0, record["epochs"], len(way))
    bottom.plot(way, epochs, color="#D55E00", linewidth=0.9)
    bottom.set(xlabel="x", ylabel="epoch")
    figure.tight_layout()
    save(figure, f"sip_inducing_{dataset}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("TFP_FNSPACE_DATA", "../shared/data")
    parser.add_argument("--data-dir", default=default)
    parser.add_argument("--only", default="bimodal,heteroscedastic,snelson,kinked")
    parser.add_argument("--methods", default=",".join(METHODS))
    options = parser.parse_args()
    for name in options.only.split(","):
        if name in SETS:
            cells = [{"dataset": name, "method": m} for m in options.methods.split(",")]
            task, plot = run, functools.partial(compare, data_dir=options.data_dir)
        else:
            methods = ("sip", "sip_fixed_posterior") if name == "snelson" else ("sip",)
            cells = [{"dataset": name, "method": method} for method in methods]
            task, plot = places, plot_places
        task = functools.partial(task, data_dir=options.data_dir)
        for record in run_missing(RESULTS, cells, task):
            print(record["dataset"], record["method"], f"{record['seconds']} s", flush=True)
        plot(name)


if __name__ == "__main__":
    main()
