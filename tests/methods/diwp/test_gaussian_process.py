"""The Gaussian process layers, and the limits with a known answer."""

import diwp as reference
import diwp_models
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose
from scipy import special, stats

from tfp_fnspace import diwp, kernels, likelihoods
from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.math.random import fold_in
from tfp_fnspace.typing import GramBlocks

tfd = tfp.distributions

#: Probability that a statistical assertion fails although the distribution is right.
FALSE_FAIL = 1e-6

#: Tolerances of the layers against dense formulas, in float64 with its jitter.
CLOSE = {"rtol": 1e-5, "atol": 1e-7}


def kernel_matrix(size, seed=0):
    x = np.random.default_rng(seed).normal(size=(size, 2))
    return 1.5 * reference.squared_exponential(x @ x.T) + 0.2 * np.eye(size)


def blocks_of(k, num_inducing, joint=False):
    ii, it, tt = reference.split(k, num_inducing)
    parts = (ii, it, tt if joint else np.diag(tt))
    return GramBlocks(*(tf.constant(part[np.newaxis]) for part in parts))


def make_layer(cls, size=4, units=3, **options):
    """Makes a layer with random weights."""
    layer = cls(units, dtype="float64", **options)
    layer.build([(1, size, size), (1, size, None), (1, None)])
    generator = np.random.default_rng(1)
    for weight in layer.weights:
        weight.assign(0.5 * generator.normal(size=weight.shape))
    return layer


def pseudo_noise(layer):
    """Computes A of every unit, `[D, P, P]`, from the weights themselves."""
    posterior = layer.posterior
    diagonal = np.exp(posterior.log_diagonal.numpy())
    factors = [np.diag(row) for row in diagonal]
    if layer.precision == "full":
        lower = np.tril(posterior.lower.numpy(), -1)
        factors = [
            f + low * d[:, np.newaxis] for f, low, d in zip(factors, lower, diagonal, strict=True)
        ]
    return np.stack(
        [factors[d % len(factors)] @ factors[d % len(factors)].T for d in range(layer.units)]
    )


OPTIONS = [(p, s) for p in ("full", "diagonal") for s in (True, False)]


@pytest.mark.parametrize(("precision", "shared"), OPTIONS)
def test_output_moments_and_divergence_are_the_dense_formulas(precision, shared):
    layer = make_layer(diwp.GlobalInducingGP, precision=precision, shared_precision=shared)
    k = np.stack([kernel_matrix(9, seed) for seed in (0, 1)])
    blocks = [blocks_of(gram, 4) for gram in k]
    blocks = GramBlocks(*(tf.concat(parts, axis=0) for parts in zip(*blocks, strict=True)))
    with function_draws(2, (0, 1)) as draws:
        mean, variance = layer(blocks)
    assert mean.shape == variance.shape == (2, 5, 3)
    divergences = []
    for s, gram in enumerate(k):
        for d, noise in enumerate(pseudo_noise(layer)):
            v = layer.posterior.v.numpy()[d]
            expected, covariance = reference.predict(gram, 4, v, noise)
            assert_allclose(mean[s, :, d], expected, **CLOSE)
            assert_allclose(variance[s, :, d], np.diag(covariance), **CLOSE)
            moments = reference.inducing_posterior(gram[:4, :4], v, noise)
            divergences.append(reference.gaussian_kl(*moments, gram[:4, :4]))
    assert_allclose(draws.kl("float64"), np.sum(divergences) / 2.0, **CLOSE)


@pytest.mark.parametrize("shared", [True, False])
def test_joint_draws_of_the_output_have_its_covariance(shared, assert_mean_close):
    layer = make_layer(diwp.GlobalInducingGP, shared_precision=shared)
    k = kernel_matrix(7)
    with function_draws(20_000, (0, 1), "joint"):
        draws, variance = layer(blocks_of(k, 4, joint=True))
    assert draws.shape == (20_000, 3, 3) and np.all(variance == 0.0)
    for d, noise in enumerate(pseudo_noise(layer)):
        mean, covariance = reference.predict(k, 4, layer.posterior.v.numpy()[d], noise)
        centred = draws.numpy()[:, :, d] - mean
        assert_mean_close(centred, np.zeros(3), FALSE_FAIL)
        assert_mean_close(centred[:, :, None] * centred[:, None], covariance, FALSE_FAIL)


@pytest.mark.parametrize(("precision", "shared"), OPTIONS)
@pytest.mark.parametrize("noise", ["independent", "shared", "joint"])
def test_sampled_features_have_the_posteriors_moments(precision, shared, noise, assert_mean_close):
    options = {"precision": precision, "shared_precision": shared}
    layer = make_layer(diwp.GaussianProcessGram, **options)
    k = kernel_matrix(6)
    with function_draws(20_000, (0, 1), noise) as draws:
        ii, it, tt = (part.numpy() for part in layer(blocks_of(k, 4, noise == "joint")))
    second, divergence = 0.0, 0.0
    for d, a in enumerate(pseudo_noise(layer)):
        v = layer.posterior.v.numpy()[d]
        mean, covariance = reference.inducing_posterior(k[:4, :4], v, a)
        divergence += reference.gaussian_kl(mean, covariance, k[:4, :4])
        weights = np.linalg.solve(k[:4, :4], k[:4]).T  # for all points
        joint = k - weights @ k[:4] + weights @ (covariance + np.outer(mean, mean)) @ weights.T
        second = second + joint / layer.units
    assert_allclose(draws.kl("float64"), divergence, **CLOSE)
    assert_mean_close(ii, second[:4, :4], FALSE_FAIL)
    assert_mean_close(it, second[:4, 4:], FALSE_FAIL)
    assert_mean_close(tt, second[4:, 4:] if noise == "joint" else np.diag(second)[4:], FALSE_FAIL)


def test_wishart_process_is_the_prior_of_sampled_features():
    """v = 0 and vague pseudo-observations leave the prior, `G ~ W(K / D, D)`."""
    layer = make_layer(diwp.GaussianProcessGram, units=7, precision="diagonal")
    layer.posterior.v.assign(np.zeros((7, 4)))
    layer.posterior.log_diagonal.assign(np.full((1, 4), 12.0))
    k = kernel_matrix(6)
    with function_draws(5000, (0, 1), "joint") as draws:
        ii, it, tt = (part.numpy() for part in layer(blocks_of(k, 4, joint=True)))
    assert abs(draws.kl("float64")) < 1e-6
    expected = stats.wishart(7, k / 7.0).rvs(5000, random_state=0)
    for ours, theirs in (
        (ii[:, 0, 1], expected[:, 0, 1]),
        (it[:, 2, 1], expected[:, 2, 5]),
        (tt[:, 0, 1], expected[:, 4, 5]),
        (tt[:, 1, 1], expected[:, 5, 5]),
    ):
        assert stats.ks_2samp(ours, theirs).pvalue > FALSE_FAIL


# Limits ------------------------------------------------------------------------------------------

X = np.random.default_rng(2).normal(size=(14, 3))
V = np.random.default_rng(3).normal(size=(2, 8))
SCALE = 0.4  # noise scale of the pseudo-observations


def composed_regression(name):
    """Returns mean and variance `[N, 2]` of GP regression from V, TFP kernels applied thrice."""
    kernel, features = kernels.get(name), tf.constant(X)
    for _ in range(2):  # any features with this Gram matrix will do
        size = features.shape[1]
        gram = kernel.psd_kernel(size, dtype="float64").matrix(features, features)
        features = tf.linalg.cholesky(gram + 1e-12 * tf.eye(14, dtype="float64")) * np.sqrt(14.0)
    distributions = [
        tfd.GaussianProcessRegressionModel(
            kernel.psd_kernel(14, dtype="float64"),
            index_points=features[8:],
            observation_index_points=features[:8],
            observations=v,
            observation_noise_variance=np.float64(SCALE**2),
            predictive_noise_variance=np.float64(0.0),
        )
        for v in V
    ]
    mean = np.stack([distribution.mean() for distribution in distributions], axis=1)
    return mean, np.stack([distribution.variance() for distribution in distributions], axis=1)


def deep_network(name, *hidden):
    features = diwp.FeaturesToGram(8, dtype="float64")
    output = diwp.GlobalInducingGP(2, dtype="float64")
    stack = [keras.Input((3,), dtype="float64"), features]
    for _ in range(2):
        stack += [diwp.KernelOfGram(name, dtype="float64"), *(layer() for layer in hidden)]
    network = keras.Sequential([*stack, diwp.KernelOfGram(name, dtype="float64"), output])
    features.inducing_inputs.assign(X[:8])
    output.posterior.v.assign(V)
    output.posterior.log_diagonal.assign(np.full((2, 8), np.log(SCALE)))
    return network


@pytest.mark.parametrize("name", ["relu", "squared_exponential"])
@pytest.mark.parametrize("delta", [None, 1e8])
def test_without_layers_or_with_large_delta_it_is_the_nngp(name, delta):
    hidden = []
    if delta:
        hidden = [lambda: diwp.InverseWishartProcess(delta=delta, dtype="float64")]
    network = deep_network(name, *hidden)
    mean, variance = composed_regression(name)
    for noise in ("independent", "shared"):
        with function_draws(3, (5, 6), noise):
            ours = network(tf.constant(X[8:]))
        assert np.abs(ours[0] - mean).max() < 1e-3
        assert np.abs(ours[1] - variance).max() < 1e-3


def regression_model(y, noise=0.3, **options):
    """Makes plain Gaussian process regression: one kernel, inducing points at the data."""
    model = diwp_models.make_model(
        inducing_points=20,
        kernel="squared_exponential",
        depth=0,
        constant=False,
        learn_scale=False,
        standardize=False,
        likelihood=likelihoods.Gaussian(scale=noise),
        seed=0,
        **options,
    )
    model.adapt(INPUTS, y)
    model.network.layers[0].inducing_inputs.assign(INPUTS)
    model.network.layers[1].trainable = False  # the amplitude
    model.network.layers[0].trainable = False
    posterior = model.network.layers[-1].posterior
    posterior.v.assign(y.T)
    posterior.log_diagonal.assign(np.full((1, 20), np.log(noise)))
    return model, posterior


INPUTS = np.linspace(-2.0, 2.0, 20)[:, np.newaxis]
TARGETS = np.sin(3.0 * INPUTS) + 0.2 * np.random.default_rng(0).normal(size=(20, 1))


def exact_regression(x_new, noise=0.3):
    everywhere = np.concatenate([INPUTS, x_new])
    k = reference.squared_exponential(everywhere @ everywhere.T)
    mean, covariance = reference.predict(
        k + 1e-9 * np.eye(len(k)), 20, TARGETS[:, 0], noise**2 * np.eye(20)
    )
    evidence = reference.log_marginal_likelihood(k[:20, :20], TARGETS[:, 0], noise**2)
    return mean, np.diag(covariance), evidence


def elbo_of(model):
    arguments = (tf.constant(INPUTS, "float32"), tf.constant(TARGETS, "float32"))
    _, parts = model.objective([arguments[0]], arguments[1], 20.0, fold_in((0, 0), 1))
    return 20.0 * float(parts["elbo"])


def test_float32_is_exact_regression_at_the_optimum():
    model, _ = regression_model(TARGETS)
    x_new = np.linspace(-3.0, 3.0, 9)[:, np.newaxis]
    mean, variance, evidence = exact_regression(x_new)
    outputs = model.predict(x_new)
    assert_allclose(outputs["mean"][:, 0], mean, atol=1e-2)
    assert_allclose(outputs["epistemic_stddev"][:, 0] ** 2, variance, atol=1e-2)
    assert abs(elbo_of(model) - evidence) < 1e-2


def test_joint_predictive_distribution_is_that_of_exact_regression():
    model, _ = regression_model(TARGETS, num_eval_samples=4000)
    x_new = np.array([[-2.5], [0.1], [0.2]])
    everywhere = np.concatenate([INPUTS, x_new])
    k = reference.squared_exponential(everywhere @ everywhere.T)
    k += 1e-9 * np.eye(23)
    mean, covariance = reference.predict(k, 20, TARGETS[:, 0], 0.3**2 * np.eye(20))
    exact = stats.multivariate_normal(mean, covariance + 0.3**2 * np.eye(3))
    distribution = model.predict_distribution(x_new, joint=True)
    y = exact.rvs(20, random_state=0)
    # With 4000 functions the density at these 20 has a standard error of 1 to 8 %.
    ours = distribution.log_prob(y[..., np.newaxis])
    assert np.median(np.abs(ours - exact.logpdf(y))) < 0.1
    functions = np.asarray(distribution.components_distribution.mean())[..., 0]
    error = np.sqrt(2.0 / 4000.0) * np.diag(covariance).max()
    assert_allclose(np.cov(functions.T), covariance, atol=5.0 * error)  # fails in 1e-5 of runs


def test_training_climbs_to_the_evidence_and_not_above():
    model, posterior = regression_model(TARGETS)
    generator = np.random.default_rng(0)
    posterior.v.assign_add(generator.normal(size=(1, 20)))
    posterior.log_diagonal.assign_add(0.5 * generator.normal(size=(1, 20)))
    _, _, evidence = exact_regression(INPUTS)
    model.compile(optimizer=keras.optimizers.Adam(0.02))
    model.counters.steps.assign(1)  # inducing points and pseudo-targets stay as they are
    before = elbo_of(model)
    history = model.fit(INPUTS, TARGETS, batch_size=20, epochs=400, verbose=0).history
    elbo = 20.0 * np.array(history["elbo"])
    assert before < evidence - 1.0
    assert np.all(elbo < evidence + 1e-2)
    assert elbo[-1] > evidence - 0.1
    assert_allclose(elbo, 20.0 * np.subtract(history["log_likelihood"], history["kl"]), rtol=1e-4)


def test_bound_with_an_inverse_wishart_layer_reaches_the_evidence_and_not_above():
    """With one input Omega is a number, and the evidence is an integral over it."""
    delta, noise = 4.0, 0.3
    model, _ = regression_model(TARGETS, noise, stack="omega", delta=delta, learn_delta=False)
    model.num_samples = 4000
    prior = stats.invgamma(0.5 * (delta + 2.0), scale=0.5 * delta)
    gram = INPUTS @ INPUTS.T

    def log_evidence_given(omega):
        k = reference.squared_exponential(omega * gram)
        return reference.log_marginal_likelihood(k, TARGETS[:, 0], noise**2)

    nodes = prior.ppf((np.arange(4000) + 0.5) / 4000)
    evidence = special.logsumexp([log_evidence_given(omega) for omega in nodes]) - np.log(4000)
    posterior = model.network.layers[0].posterior
    bounds = []
    for gamma in (1e-3, 3.0, 20.0):
        for v in (0.01, 5.0, 8.0):
            posterior.log_gamma.assign(np.log(gamma))
            posterior.assign_v([[v]])
            bounds.append(elbo_of(model))
    # With 4,000 draws the best bound is 0.008 below the evidence, the worst 32.
    assert max(bounds) < evidence + 0.03
    assert max(bounds) > evidence - 0.05
    assert min(bounds) < evidence - 20.0


@pytest.mark.parametrize("noise", ["independent", "joint"])
def test_inverse_wishart_after_the_kernel_is_a_student_t_process(noise):
    """Appendix L: f(x) is Student's t with delta + 2 degrees of freedom and variance k(x, x)."""
    delta, k = 5.0, kernel_matrix(6)
    process = diwp.InverseWishartProcess(delta=delta, dtype="float64")
    output = diwp.GlobalInducingGP(1, precision="diagonal", dtype="float64")
    with function_draws(8000, (7, 8), noise):
        blocks = blocks_of(k, 3, joint=noise == "joint")
        process.build([part.shape for part in blocks])
        process.posterior.assign_v(np.zeros((3, 3)))  # this is the prior
        process.posterior.log_gamma.assign(-30.0)
        inverse_wishart = process(blocks)
        output.build([part.shape for part in inverse_wishart])
        output.posterior.v.assign(np.zeros((1, 3)))
        output.posterior.log_diagonal.assign(np.full((1, 3), 10.0))
        mean, variance = (part.numpy()[..., 0] for part in output(inverse_wishart))
    generator = np.random.default_rng(0)
    f = mean + np.sqrt(variance) * generator.normal(size=variance.shape)
    scale = delta * k[3:, 3:] / (delta + 2.0)
    for n in range(3):
        distribution = stats.t(delta + 2.0, scale=np.sqrt(scale[n, n]))
        assert stats.kstest(f[:, n], distribution.cdf).pvalue > FALSE_FAIL
    spread = 6.0 * np.sqrt(3.0 / 8000.0) * np.diag(k)[3:]
    assert np.all(np.abs(f.var(axis=0) - np.diag(k)[3:]) < spread)
    if noise == "joint":
        difference = np.array([1.0, -1.0, 0.5])
        distribution = stats.t(delta + 2.0, scale=np.sqrt(difference @ scale @ difference))
        assert stats.kstest(f @ difference, distribution.cdf).pvalue > FALSE_FAIL
        squares = np.einsum("sn,nm,sm->s", f, np.linalg.inv(scale), f) / 3.0
        assert stats.kstest(squares, stats.f(3, delta + 2.0).cdf).pvalue > FALSE_FAIL


def test_classes_without_hidden_layers():
    """The model samples nothing then: the graph must know that there is one component."""
    x = np.random.default_rng(0).normal(size=(30, 2)).astype("float32")
    labels = (x[:, :1] > 0.0).astype("int32")
    noise = {"likelihood": likelihoods.Categorical(), "num_outputs": 2}
    model = diwp.DIWPModel(diwp.DeepKernel(8, depth=0), **noise, num_samples=2, seed=0)
    model.fit(x, labels, epochs=20, batch_size=30, verbose=0)
    assert model.evaluate(x, labels, return_dict=True, verbose=0)["accuracy"] > 0.75
