"""Classes for TAGI: the tree of appendix C, and normalised units with their moments."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, special, stats
from sklearn.metrics import roc_auc_score

from tfp_fnspace import likelihoods, tagi
from tfp_fnspace.likelihoods.hierarchical import binary_tree
from tfp_fnspace.math.normalized import remax_moments, softmax_moments
from tfp_fnspace.typing import GaussianMoments


def moments(shape, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(size=shape), rng.uniform(0.1, spread, size=shape)
    return GaussianMoments(tf.constant(mean), tf.constant(variance))


# The tree ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "nodes"), [(2, 1), (3, 3), (4, 3), (8, 7), (10, 11), (16, 15)])
def test_number_of_nodes(classes, nodes):
    signs = binary_tree(classes)
    assert signs.shape == (classes, nodes)
    assert np.all(np.abs(signs).sum(axis=1) == np.ceil(np.log2(classes)))
    assert len(np.unique(signs, axis=0)) == classes
    assert np.all(np.any(signs != 0.0, axis=0))


def test_code_of_eight_classes_is_that_of_figure_10():
    """The nodes are y, y0, y1, y00, y01, y10, y11; class {0, 1, 1} passes y, y0 and y01."""
    assert_array_equal(binary_tree(8)[0b011], [1, -1, 0, 0, -1, 0, 0])
    assert_array_equal(binary_tree(8)[0b100], [-1, 0, 1, 0, 0, 1, 0])


@pytest.mark.parametrize("classes", [4, 10])
def test_probabilities_are_integrals_over_f(float64, classes):
    """Quadrature integrates over f at each node of a path; 10 classes are normalised."""
    likelihood = likelihoods.HierarchicalCategorical(classes, scale=0.2, alpha=0.4)
    f = moments((3, likelihood.num_outputs))
    width = np.sqrt(0.2**2 + 0.4**2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    values = f.mean.numpy()[..., np.newaxis] + np.sqrt(f.variance)[..., np.newaxis] * nodes
    plus = special.ndtr(values / width) @ (weights / weights.sum())  # for +1 at each node
    paths = binary_tree(classes)
    factors = np.where(paths > 0.0, plus[:, np.newaxis], 1.0 - plus[:, np.newaxis])
    expected = np.prod(np.where(paths != 0.0, factors, 1.0), axis=-1)
    if classes == 4:
        assert_allclose(expected.sum(axis=1), 1.0)
    expected /= expected.sum(axis=1, keepdims=True)
    distribution = likelihood.predictive(f)
    assert_allclose(distribution.probs_parameter(), expected, rtol=1e-6)
    assert_allclose(likelihood.closed_form_probabilities(f), expected, rtol=1e-6)


def test_log_prob_is_the_product_along_the_path(float64):
    likelihood = likelihoods.HierarchicalCategorical(3)
    values = np.random.default_rng(0).normal(size=(5, 4, 3))
    labels = np.array([0, 1, 2, 2])
    paths = stats.norm.logcdf(values[..., np.newaxis, :] * binary_tree(3) / np.hypot(0.3, 1 / 3))
    paths = np.sum(paths * (binary_tree(3) != 0.0), axis=-1)
    expected = paths - special.logsumexp(paths, axis=-1, keepdims=True)
    expected = np.take_along_axis(expected, np.tile(labels[:, np.newaxis], (5, 1, 1)), -1)[..., 0]
    assert_allclose(likelihood.log_prob(values, labels), expected, rtol=1e-6)
    assert_allclose(likelihood.log_prob(values, labels[:, np.newaxis]), expected, rtol=1e-6)


def test_information_of_the_tree_against_draws(float64, assert_mean_close):
    """The mean entropy of the label given f agrees with draws; false alarms 1e-6."""
    likelihood = likelihoods.HierarchicalCategorical(4)
    f = moments((3, 3))
    mixture = GaussianMoments(*(part[tf.newaxis] for part in f))
    parts = {key: value.numpy() for key, value in likelihood.uncertainty(mixture).items()}
    assert_allclose(parts["entropy"], stats.entropy(parts["probabilities"], axis=1), rtol=1e-6)
    noise = np.random.default_rng(0).normal(size=(20000, 3, 3))
    values = f.mean + np.sqrt(f.variance) * noise
    labels = [likelihood.log_prob(values, np.full(3, k)).numpy() for k in range(4)]
    entropies = -sum(np.exp(p) * p for p in labels)
    assert_mean_close(entropies, parts["entropy"] - parts["mutual_information"])


def test_labels_observe_their_paths_alone(float64):
    likelihood = likelihoods.HierarchicalCategorical(10, scale=0.5)
    f = moments((2, 11))
    signs = binary_tree(10)[[7, 9]]
    dm, ds = likelihood.innovation(f, tf.constant([[7.0], [9.0]]))
    total = f.variance + 0.25
    assert_allclose(dm, np.where(signs != 0.0, (signs - f.mean) / total, 0.0))
    assert_allclose(ds, np.where(signs != 0.0, -1.0 / total, 0.0))


def test_wrong_number_of_nodes():
    with pytest.raises(ValueError, match="have 11 outputs, one for each node. Received: 10 out"):
        model_of(likelihoods.HierarchicalCategorical(10), 10)
    with pytest.raises(ValueError, match="`num_classes` must be an integer of at least 2"):
        likelihoods.HierarchicalCategorical(1)


# Normalised units --------------------------------------------------------------------------------

POSITIVE = {"softmax": (softmax_moments, np.exp), "remax": (remax_moments, lambda z: z.clip(0.0))}


def draws_of(name, f, count=200000):
    noise = np.random.default_rng(0).normal(size=(count, *f.mean.shape))
    z = f.mean.numpy() + np.sqrt(f.variance.numpy()) * noise
    positive = POSITIVE[name][1](z)
    return z, positive


def exact_moments(name, mean, variance):
    """Returns mean and variance of exp(z) in closed form, and of max(z, 0) by quadrature."""
    if name == "softmax":
        first = np.exp(mean + variance / 2.0)
        return first, np.expm1(variance) * first**2
    distribution = stats.norm(mean, np.sqrt(variance))
    first, second = (
        integrate.quad(
            lambda z, k=k: z**k * distribution.pdf(z), 0.0, distribution.isf(1e-16), epsabs=1e-13
        )[0]
        for k in (1, 2)
    )
    return first, second - first**2


@pytest.mark.parametrize("name", POSITIVE)
def test_formula_is_that_of_log_normal_ratios(assert_mean_close, assert_variance_close, name):
    """Draws of (log x, log X) are jointly Gaussian with their own moments; alarms 1e-6 each."""
    f = moments((4,), spread=0.5)
    f = GaussianMoments(f.mean + 1.0, f.variance)
    pairs = zip(f.mean.numpy(), f.variance.numpy(), strict=True)
    mean, variance = np.transpose([exact_moments(name, *pair) for pair in pairs])
    own, total = np.log1p(variance / mean**2), np.log1p(variance.sum() / mean.sum() ** 2)
    shared = np.log1p(variance / (mean * mean.sum()))
    normalized = POSITIVE[name][0](*f)
    rng = np.random.default_rng(1)
    for i in range(4):
        covariance = [[own[i], shared[i]], [shared[i], total]]
        centre = [np.log(mean[i]) - own[i] / 2, np.log(mean.sum()) - total / 2]
        logs = rng.multivariate_normal(centre, covariance, size=100000)
        ratio = np.exp(logs[:, 0] - logs[:, 1])
        assert_mean_close(ratio, normalized.moments.mean[i])
        assert_variance_close(ratio, normalized.moments.variance[i])


@pytest.mark.parametrize("name", POSITIVE)
def test_moments_are_close_to_those_of_draws(name):
    """Variances up to 0.3 show the error of taking ratios as log-normal.

    Errors seen: up to 0.003 in means, 0.011 in stddevs and 0.02 in slopes. With 40,000 draws, six
    standard errors are less than 0.009 for a mean (no probability has a stddev above 0.3), and even
    less for a stddev. What is left of the tolerance fails by chance less than once in a million.
    """
    error = 0.02
    f = moments((6, 5), spread=0.3)
    f = GaussianMoments(f.mean + 1.5, f.variance)
    z, positive = draws_of(name, f, 40000)
    ratio = positive / np.maximum(positive.sum(axis=-1, keepdims=True), 1e-30)
    normalized = POSITIVE[name][0](*f)
    assert_allclose(normalized.moments.mean, ratio.mean(axis=0), atol=error)
    assert_allclose(np.sqrt(normalized.moments.variance), ratio.std(axis=0), atol=error)
    # The innovations are the covariances with z, one probability at a time.
    for j in range(5):
        unit = tf.one_hot(tf.fill([6], j), 5, dtype=tf.float64)
        slope, squared = normalized.innovation(unit, unit)
        centred = ratio[..., [j]] - ratio[..., [j]].mean(axis=0)
        found = np.mean(centred * (z - f.mean.numpy()), axis=0) / f.variance.numpy()
        assert_allclose(slope, found, atol=2.0 * error)
        assert_allclose(squared, slope**2, rtol=1e-10, atol=1e-15)


def test_known_units_give_probabilities_and_the_jacobian():
    mean = tf.constant(np.random.default_rng(0).normal(size=(3, 4)))
    for make, function in ((softmax_moments, tf.nn.softmax), (remax_moments, rectified)):
        normalized = make(mean, tf.zeros_like(mean))
        assert_allclose(normalized.moments.mean, function(mean), atol=1e-8)
        assert_allclose(normalized.moments.variance, 0.0, atol=1e-9)
        cotangent = tf.constant(np.random.default_rng(1).normal(size=(3, 4)))
        with tf.GradientTape() as tape:
            tape.watch(mean)
            value = function(mean)
        expected = tape.gradient(value, mean, output_gradients=cotangent)
        assert_allclose(normalized.innovation(cotangent, cotangent)[0], expected, atol=1e-7)


def rectified(z):
    return tf.nn.relu(z) / tf.reduce_sum(tf.nn.relu(z), axis=-1, keepdims=True)


@pytest.mark.parametrize("make", [softmax_moments, remax_moments])
def test_normalised_moments_are_finite_in_float32_at_extremes(make):
    grid = np.array([-1e3, -30.0, 0.0, 30.0, 1e3], np.float32)
    sizes = np.array([0.0, 1e-6, 1.0, 1e3], np.float32)
    mean, variance = (v.reshape(-1, 5) for v in np.meshgrid(grid, sizes))
    normalized = make(tf.constant(mean), tf.constant(variance))
    parts = [*normalized.moments, *normalized.innovation(*normalized.moments)]
    assert all(np.all(np.isfinite(part)) for part in parts)


# Models ------------------------------------------------------------------------------------------


def model_of(likelihood, num_outputs, **options):
    inputs = keras.Input((2,))
    hidden = tagi.Dense(20, activation="relu")(inputs)
    model = tagi.TAGIModel(
        inputs, tagi.Dense(num_outputs)(hidden), likelihood=likelihood, seed=0, **options
    )
    model.compile(jit_compile=False)
    return model


def rings(count=300, seed=0):
    """Draws three classes; the last surrounds the others."""
    x = np.random.default_rng(seed).uniform(-2.0, 2.0, size=(count, 2))
    inside = np.linalg.norm(x, axis=1) < 1.5
    return x, np.where(inside, (x[:, 0] > 0.0) * 1, 2)


LIKELIHOODS = {
    "tree": likelihoods.HierarchicalCategorical,
    "softmax": lambda classes: likelihoods.Categorical(),
    "remax": lambda classes: likelihoods.Remax(),
}


#: Bounds below the results of several data sets: 0.91 to 0.97, 0.95 to 0.98, and 0.94 to 0.97.
ACCURACIES = {"tree": 0.85, "softmax": 0.85, "remax": 0.88}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_classes_are_learnt_saved_and_served(name, tmp_path):
    x, y = rings()
    model = model_of(LIKELIHOODS[name](3), 3)
    history = model.fit(x, y, epochs=15, batch_size=10, verbose=0)
    assert {"loss", "log_likelihood", "accuracy"} <= set(history.history)
    scores = model.evaluate(*rings(seed=1), return_dict=True, verbose=0)
    assert scores["accuracy"] > ACCURACIES[name] and scores["nll"] < 0.6 * np.log(3.0)
    assert abs(history.history["accuracy"][-1] - scores["accuracy"]) < 0.1
    outputs = model.predict(x)
    assert_allclose(outputs["probabilities"].sum(axis=1), 1.0, rtol=1e-5)
    assert np.all(outputs["mutual_information"] >= 0.0)
    assert np.all(outputs["mutual_information"] <= outputs["entropy"] + 1e-6)
    assert model.sample_functions(x[:4], 5).shape == (5, 4, 3)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert loaded.likelihood.get_config() == model.likelihood.get_config()
    model.export(tmp_path / "served", num_samples=3)
    saved = tf.saved_model.load(str(tmp_path / "served"))
    served = saved.serve(x.astype("float32"))
    for key, value in outputs.items():
        assert_array_equal(loaded.predict(x)[key], value)
        assert_allclose(served[key], value, rtol=1e-4, atol=1e-5)


def test_scale_of_the_signs_is_cross_validated():
    x, y = rings(60)
    model = model_of(likelihoods.HierarchicalCategorical(3, scale=1.0), 3, noise="cross_validate")
    model.fit(x, y, epochs=2, batch_size=20, verbose=0)
    assert len(model.noise_scores) > 3
    best, _ = max(model.noise_scores, key=lambda pair: pair[1])
    assert 0.5 * best < model.likelihood.scale.numpy() < 2.0 * best


def test_missing_labels_are_refused():
    x, y = rings(20)
    with pytest.raises(ValueError, match="`y` must be finite"):
        model_of(likelihoods.Categorical(), 3).fit(x, np.where(y == 2, np.nan, y), verbose=0)


@pytest.mark.slow
def test_of_rare_classes_the_tree_learns_in_few_epochs():
    """Checks docs/howto/classification.md: 2 % positives, 200 rows, 3 epochs; three sets."""
    names = {"tree": [], "probabilities": [], "wider": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(200, 2))
        score = x.sum(axis=1) + 0.2 * rng.normal(size=200)
        y = np.zeros(200, int)
        y[np.argsort(score)[-4:]] = 1
        fresh = np.random.default_rng(99)
        x_new = fresh.normal(size=(4000, 2))
        score = x_new.sum(axis=1) + 0.2 * fresh.normal(size=4000)
        y_new = score > np.quantile(score, 0.98)
        for name, likelihood, outputs in (
            ("tree", likelihoods.HierarchicalCategorical(2), 1),
            ("probabilities", likelihoods.Categorical(), 2),
            ("wider", likelihoods.Categorical(scale=0.3), 2),
        ):
            keras.utils.set_random_seed(seed)
            inputs = keras.Input((2,))
            hidden = tagi.Dense(30, activation="relu")(inputs)
            logits = tagi.Dense(outputs)(hidden)
            model = tagi.TAGIModel(inputs, logits, likelihood=likelihood, seed=seed)
            model.compile(jit_compile=False)
            model.fit(x, y, epochs=3, batch_size=10, verbose=0)
            found = model.predict(x_new)["probabilities"][:, 1]
            names[name].append((found.mean(), roc_auc_score(y_new, found)))
    tree, probabilities, wider = (np.array(values) for values in names.values())
    assert np.median(tree[:, 1]) > 0.98 > np.median(probabilities[:, 1])
    assert np.all((tree[:, 0] > 0.01) & (tree[:, 0] < 0.08))
    assert np.all((wider[:, 0] > 0.01) & (wider[:, 0] < 0.08))
