"""Pictures of TAGI: the paper's figures 1, 2, 5, 6, 7 and 8.

    python benchmarks/tagi_figures.py [--only products,correlations,hmc,posterior,sum,inputs]

- products (figure 1): a hidden unit, which is the sum of A products of standard normals, against
  the Gaussian of TAGI.
- correlations (figure 2): those of two hidden units given the weights, for 1000 draws of these.
- hmc (figure 5): the cubic toy, with TAGI at the best epoch beside HMC of TensorFlow Probability.
  HMC has the same network and noise and independent priors, N(0, 1) for the first layer and
  N(0, 1/100) for the second: 4 chains of 2000 draws after 2000 steps, 40 leapfrog steps each.
- posterior (figure 6): correlations with full covariances of parameters and units. The data are the
  cubic toy, one row at a time.
- sum (figure 7): posterior correlation of A standard normals given their sum.
- inputs (figure 8): x^3 with known weights, and inputs with a standard deviation of 0.2.

The numbers in the pictures are written to `benchmarks/results/tagi_figures.json`.
"""

import argparse

import keras
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tagi_cubic
import tensorflow as tf
import tensorflow_probability as tfp
from figure_style import IMAGES, save
from scipy import stats

from tfp_fnspace import datasets, likelihoods, tagi
from tfp_fnspace.benchmark import add_records, machine, versions

RESULTS = "benchmarks/results/tagi_figures.json"
BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#6E6E6E"


def _rounded(value):
    return round(float(value), 4)


def products(seed=0):
    """Draws figure 1."""
    rng = np.random.default_rng(seed)
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 2.9), layout="constrained")
    for panel, count in zip(panels, (1, 10, 100), strict=True):
        sums = np.zeros(400000)
        for _ in range(count):
            sums += rng.normal(size=sums.shape) * rng.normal(size=sums.shape)
        width = 4.0 * np.sqrt(count)
        grid = np.linspace(-width, width, 401)
        bins = np.linspace(-width, width, 121)
        panel.hist(sums, bins, density=True, color=BLUE, alpha=0.4, label="draws")
        layer = tagi.Dense(1, use_bias=False)
        layer.build((None, count))
        layer.kernel_mean.assign(np.zeros((count, 1)))
        layer.kernel_variance.assign(np.ones((count, 1)))
        mean, variance = layer((np.zeros((1, count)), np.ones((1, count))))
        distribution = stats.norm(float(mean[0, 0]), float(variance[0, 0]) ** 0.5)
        panel.plot(grid, distribution.pdf(grid), color=VERMILLION, label="TAGI")
        panel.set(title=f"A = {count}", xlabel="hidden unit", yticks=[])
        if count == 1:
            panel.set_ylim(0.0, 1.6)
    panels[0].set_ylabel("density")
    panels[0].legend(frameon=False)
    save(figure, "tagi_products.png")


def correlations(seed=0):
    """Draws figure 2."""
    rng = np.random.default_rng(seed)
    counts = np.unique(np.geomspace(1, 1000, 25).astype(int))
    spread = []
    for count in counts:
        first, second = rng.normal(size=(2, 1000, count))
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        values = np.sum(first * second, axis=1) / norms
        spread.append((values.mean(), values.std()))
    mean, stddev = np.transpose(spread)
    figure, panel = plt.subplots(figsize=(5.2, 3.2), layout="constrained")
    panel.fill_between(
        counts, mean - stddev, mean + stddev, color=BLUE, alpha=0.25, lw=0, label="± 1 stddev"
    )
    panel.plot(counts, mean, color=BLUE, label="mean over 1000 draws of weights")
    panel.plot(counts, 1 / np.sqrt(counts), "--", color=GREY, lw=1, label="± A$^{-1/2}$")
    panel.plot(counts, -1 / np.sqrt(counts), "--", color=GREY, lw=1)
    panel.set(xscale="log", xlabel="units of the layer before, A")
    panel.set_ylabel("correlation of two units")
    panel.legend(frameon=False)
    save(figure, "tagi_correlations.png")


# Figure 5 ----------------------------------------------------------------------------------------


def hmc_draws(x, y, noise, grid, units, seed=0):
    """Draws posterior functions on the grid, `[draws, len(grid)]`, by HMC; R-hat of f too."""
    shapes = [(1, units), (units,), (units, 1), (1,)]
    scales = [1.0, 1.0, units**-0.5, units**-0.5]
    sizes = [int(np.prod(shape)) for shape in shapes]

    def network(state, inputs):
        parts = tf.split(state, sizes, axis=-1)
        w1, b1, w2, b2 = (
            tf.reshape(part * scale, [-1, *shape])
            for part, scale, shape in zip(parts, scales, shapes, strict=True)
        )
        hidden = tf.nn.relu(tf.einsum("ni,ciu->cnu", inputs, w1) + b1[:, tf.newaxis])
        return tf.einsum("cnu,cuo->cn", hidden, w2) + b2

    x, y, grid = (tf.constant(v, tf.float32) for v in (x, y[:, 0], grid))

    def log_density(state):
        misfit = tf.reduce_sum(tf.square((y - network(state, x)) / noise), axis=-1)
        return -0.5 * (misfit + tf.reduce_sum(tf.square(state), axis=-1))

    kernel = tfp.mcmc.HamiltonianMonteCarlo(log_density, step_size=0.01, num_leapfrog_steps=40)
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, num_adaptation_steps=1600)
    start = tf.random.stateless_normal([4, sum(sizes)], [seed, 0])

    @tf.function(jit_compile=True)
    def run():
        return tfp.mcmc.sample_chain(
            2000,
            start,
            kernel=kernel,
            num_burnin_steps=2000,
            trace_fn=lambda _, results: results.inner_results.is_accepted,
            seed=[seed, 1],
        )

    states, accepted = run()
    functions = np.stack([network(states[i], grid).numpy() for i in range(0, 2000, 10)])
    found = tfp.mcmc.potential_scale_reduction(functions).numpy()
    record = {"accepted": _rounded(accepted.numpy().mean()), "rhat": _rounded(found.max())}
    return functions.reshape(-1, functions.shape[-1]), record


def hmc(seed=0):
    """Draws figure 5, e: TAGI beside HMC."""
    model, snapshots, record, (train, _), (x_scale, y_scale) = tagi_cubic.run(seed)
    model.set_weights(snapshots.weights[record["best_epoch"]])
    grid = np.linspace(-6.0, 6.0, 241)[:, np.newaxis]
    noise = 3.0 / y_scale
    outputs = model.predict(grid / x_scale)
    functions, chains = hmc_draws(
        train.x / x_scale, train.y / y_scale, noise, grid / x_scale, tagi_cubic.UNITS, seed
    )
    records = [{"what": "HMC", **chains}]
    bands = {
        f"TAGI, epoch {record['best_epoch']}": (outputs["mean"][:, 0], outputs["stddev"][:, 0]),
        "HMC": (functions.mean(axis=0), np.sqrt(functions.var(axis=0) + noise**2)),
    }
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.6), sharey=True, layout="constrained")
    for panel, (name, (mean, stddev)) in zip(panels, bands.items(), strict=True):
        mean, stddev = mean * y_scale, stddev * y_scale
        panel.fill_between(
            grid[:, 0],
            mean - 3 * stddev,
            mean + 3 * stddev,
            color=BLUE,
            alpha=0.2,
            lw=0,
            label="mean ± 3 standard deviations",
        )
        panel.plot(grid, mean, color=BLUE)
        panel.plot(grid, grid**3, "--", color="black", lw=1, label="$x^3$")
        panel.plot(train.x, train.y, ".", color=VERMILLION, label="data")
        panel.set(title=name, xlabel="x", ylim=(-220, 220))
        inside, outside = np.abs(grid[:, 0]) < 3.0, np.abs(grid[:, 0]) > 5.5
        widths = [stddev[where].mean() for where in (inside, outside)]
        widths = {"stddev_inside_3": widths[0], "stddev_outside_5.5": widths[1]}
        records.append({"what": name, **{k: _rounded(v) for k, v in widths.items()}})
    panels[0].legend(frameon=False, loc="upper left")
    save(figure, "tagi_hmc.png")
    return records


# Figure 6 ----------------------------------------------------------------------------------------


def _upper(covariance):
    """Returns 200 quantiles of the correlations above the diagonal."""
    stddev = np.sqrt(np.diag(covariance))
    rows, columns = np.triu_indices(len(stddev), 1)
    values = covariance[rows, columns] / (stddev[rows] * stddev[columns])
    return np.quantile(np.nan_to_num(values), np.linspace(0.0, 1.0, 200))


def _correlations(model, x, y):
    """Returns correlations of the widest layer's parameters, and of its units given the row."""
    widths = [layer.kernel_mean.shape.num_elements() for layer in model.chain.dense_layers]
    layer = model.chain.dense_layers[int(np.argmax(widths))]
    covariance = model.chain._parameter_covariance(layer).numpy()
    size = int(np.prod(covariance.shape[:2]))
    noise = model.likelihood.noise_variance()
    seen, pairs = model.chain.innovations(
        *(tf.constant(x, tf.float32), None, tf.constant(y, tf.float32)),
        *(tf.ones_like(y, tf.bool), noise),
    )
    place = model.chain.steps.index(layer) + 1
    units, (_, matrix) = seen[place].covariance[0], pairs[place]
    posterior = units + units @ matrix[0] @ units
    return _upper(covariance.reshape(size, size)), _upper(posterior.numpy())


def posterior(epochs=20, seed=0):
    """Draws figure 6."""
    data = datasets.cubic(seed)
    x, y = data.x / np.abs(data.x).max(), data.y / np.abs(data.y).max()
    figure, panels = plt.subplots(2, 4, figsize=(11, 5), layout="constrained")
    records = []
    cases = [(1, 5), (2, 5), (1, 50), (2, 50)]
    for column, (depth, units) in zip(panels.T, cases, strict=True):
        tensor = inputs = keras.Input((1,))
        for _ in range(depth):
            tensor = tagi.Dense(units, activation="relu")(tensor)
        model = tagi.TAGIModel(
            inputs,
            tagi.Dense(1)(tensor),
            likelihood=likelihoods.Gaussian(3.0 / np.abs(data.y).max()),
            update="exact",
            covariance="full_parameters",
            standardize=False,
            seed=seed,
        )
        model.compile(jit_compile=False)
        maps = []
        for epoch in range(epochs):
            if epoch == 0:
                for i in range(len(x)):
                    model.train_on_batch(x[i : i + 1], y[i : i + 1])
                    maps.append(_correlations(model, x[i : i + 1], y[i : i + 1]))
            else:
                model.fit(x, y, batch_size=len(x), shuffle=False, verbose=0)
                maps.append(_correlations(model, x[-1:], y[-1:]))
        record = {"depth": depth, "units": units}
        for panel, values, name in zip(
            column, zip(*maps, strict=True), ("parameters", "units"), strict=True
        ):
            image = panel.imshow(
                np.transpose(values), aspect="auto", vmin=-1, vmax=1, cmap="RdBu_r", origin="lower"
            )
            panel.axvline(len(x) - 0.5, color="black", lw=1)
            panel.set(yticks=[], xticks=[0, 19, 19 + epochs - 1])
            panel.set_xticklabels(["1", "20 | 1", str(epochs)])
            panel.set_ylabel(f"{name}, sorted" if depth == 1 and units == 5 else "")
            share = np.mean(np.abs(values[-1]) > 0.1)
            record[f"share_of_{name}_above_0.1"] = _rounded(share)
        column[0].set_title(f"L = {depth}, A = {units}")
        column[1].set_xlabel("row of epoch 1 | epoch")
        error = np.sqrt(np.mean((model.predict(x)["mean"] - y) ** 2))
        records.append({**record, "rmse": _rounded(error)})
    figure.colorbar(image, ax=panels, label="correlation", shrink=0.8)
    save(figure, "tagi_posterior_correlations.png")
    return records


# Figures 7 and 8 ---------------------------------------------------------------------------------


def known(layer, kernel, bias=None):
    """Gives a dense layer weights without variance."""
    bias = np.zeros(layer.units) if bias is None else bias
    layer.kernel_mean.assign(kernel)
    layer.bias_mean.assign(bias)
    for variance in (layer.kernel_variance, layer.bias_variance):
        variance.assign(tf.zeros_like(variance))


def sum_of_units():
    """Draws figure 7."""
    counts = [2, 3, 5, 10, 20, 50, 100, 200, 500, 1000]
    found = []
    for count in counts:
        inputs = keras.Input((count,))
        layer = tagi.Dense(1)
        outputs = layer(inputs)
        options = {"covariance": "full", "standardize": False, "input_stddev": 1.0}
        model = tagi.TAGIModel(inputs, outputs, likelihood=likelihoods.Gaussian(1e-3), **options)
        known(layer, np.ones((count, 1)))
        x = tf.zeros([1, count])
        _, pairs = model.chain.innovations(
            *(x, model.input_variance(), tf.ones([1, 1]), tf.ones([1, 1], tf.bool)),
            model.likelihood.noise_variance(),
        )
        corner = np.eye(2) + pairs[0][1].numpy()[0, :2, :2]
        found.append(corner[0, 1] / corner[0, 0])
    grid = np.geomspace(2, 1000, 200)
    figure, panel = plt.subplots(figsize=(5.2, 3.2), layout="constrained")
    panel.plot(grid, -1.0 / (grid - 1.0), color=GREY, lw=1, label="exact, −1/(A − 1)")
    panel.plot(counts, found, "o", color=BLUE, label='covariance="full"')
    panel.set(xscale="log", xlabel="units in the sum, A", ylabel="posterior correlation")
    panel.legend(frameon=False)
    save(figure, "tagi_sum.png")
    error = np.abs(np.array(found) + 1.0 / (np.array(counts) - 1.0)).max()
    return [{"largest_error": float(f"{error:.1g}")}]


def _cubic_network(depth, units=50, seed=0):
    """Trains an ordinary network on x^3."""
    keras.utils.set_random_seed(seed)
    hidden = [keras.layers.Dense(units, activation="relu") for _ in range(depth)]
    network = keras.Sequential([keras.Input((1,)), *hidden, keras.layers.Dense(1)])
    steps = 12000
    rate = keras.optimizers.schedules.CosineDecay(0.01, steps)
    network.compile(optimizer=keras.optimizers.Adam(rate), loss="mse", jit_compile=True)
    x = np.linspace(-1.05, 1.05, 512).astype("float32")[:, np.newaxis]
    network.fit(x, x**3, batch_size=512, epochs=1, steps_per_epoch=1, verbose=0)
    repeated = tf.data.Dataset.from_tensors((x, x**3)).repeat()
    network.fit(repeated, epochs=1, steps_per_epoch=steps, verbose=0)
    return network


def uncertain_inputs():
    """Draws figure 8."""
    grid = np.linspace(-1.0, 1.0, 201)[:, np.newaxis]
    reference = 0.6 * grid[:, 0] ** 2
    figure, panels = plt.subplots(2, 2, figsize=(9, 5.6), sharex=True, layout="constrained")
    records = []
    for column, depth in zip(panels.T, (1, 2), strict=True):
        trained = _cubic_network(depth)
        for rule, colour in (("full", BLUE), ("diagonal", VERMILLION)):
            tensor = inputs = keras.Input((1,))
            layers = []
            for layer in trained.layers:
                activation = "relu" if layer.units > 1 else None
                layers.append(tagi.Dense(layer.units, activation=activation))
                tensor = layers[-1](tensor)
            model = tagi.TAGIModel(
                inputs,
                tensor,
                likelihood=likelihoods.Gaussian(0.01),
                covariance=rule,
                standardize=False,
                input_stddev=0.2,
            )
            for ours, theirs in zip(layers, trained.layers, strict=True):
                known(ours, *theirs.get_weights())
            outputs = model.predict(grid)
            mean, stddev = outputs["mean"][:, 0], outputs["epistemic_stddev"][:, 0]
            style = {"color": colour, "alpha": 0.2, "lw": 0, "label": f"± stddev, {rule}"}
            column[0].fill_between(grid[:, 0], mean - stddev, mean + stddev, **style)
            column[1].plot(grid, stddev, color=colour, label=rule)
            error = np.sqrt(np.mean((stddev - reference) ** 2))
            records.append({"depth": depth, "rule": rule, "rms_difference": _rounded(error)})
        column[0].plot(grid, mean, color="black", lw=1, label="mean")
        column[1].plot(grid, reference, "--", color="black", lw=1, label="$6x^2/10$")
        column[0].set(title=f"{depth} hidden layer{'s' * (depth > 1)}", ylim=(-2, 2))
        column[1].set(xlabel="x", ylim=(0, 1.2))
    panels[0, 0].set_ylabel("output")
    panels[1, 0].set_ylabel("stddev of the output")
    panels[0, 0].legend(frameon=False)
    panels[1, 0].legend(frameon=False)
    save(figure, "tagi_uncertain_inputs.png")
    return records


PICTURES = {
    "products": products,
    "correlations": correlations,
    "hmc": hmc,
    "posterior": posterior,
    "sum": sum_of_units,
    "inputs": uncertain_inputs,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PICTURES), help="comma-separated")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in parser.parse_args().only.split(","):
        found = PICTURES[name]() or []
        common = {"versions": versions(), "machine": machine()}
        new = [{"picture": name, **row, **common} for row in found]
        add_records(RESULTS, new, lambda record, name=name: record["picture"] == name)
        for row in found:
            print(name, row, flush=True)


if __name__ == "__main__":
    main()
