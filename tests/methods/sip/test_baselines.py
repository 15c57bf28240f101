"""VIP, AVB and AADM: exact where that is possible, and as models of the contract."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from tfp_fnspace import likelihoods, processes, sip
from tfp_fnspace.math.random import split
from tfp_fnspace.methods.sip.log_ratio import NormalLogRatio
from tfp_fnspace.methods.sip.weight_space import AADMModel, AVBModel

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(20, 2)).astype("float32")
Y = (X @ [[1.0], [-0.5]] + 0.3 * GENERATOR.normal(size=(20, 1))).astype("float32")
NOISE = 0.3


def train(model, steps, optimizer, of_discriminator=None):
    """Trains for some steps with all rows in each, as one epoch in one compiled loop."""
    others = {} if of_discriminator is None else {"discriminator_optimizer": of_discriminator}
    model.compile(optimizer, **others, num_rows=20)
    x, y = (np.tile(values, (steps, 1)) for values in (X, Y))
    model.fit(x, y, batch_size=20, shuffle=False, verbose=0)


def linear_network(num_inputs=2, use_bias=False):
    inputs = keras.Input((num_inputs,))
    return keras.Model(inputs, keras.layers.Dense(1, use_bias=use_bias)(inputs))


def small_network():
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(4, activation="tanh")(inputs)
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def vip(**options):
    prior = sip.neural_sampler_prior(2, units=(4,), num_noise=3)
    small = {"prior": prior, "num_prior_samples": 5, "seed": 1}
    return sip.VIPModel(**{**small, **options})


#: A discriminator that compares q with the prior.
PLAIN = sip.AdversarialOfWeights(adaptive_contrast=False)


def weight_space(cls=AADMModel, **options):
    small = {"network": small_network(), "num_samples": 5, "num_eval_samples": 20, "num_noise": 3}
    return cls(**{**small, "seed": 1, **options})


MAKERS = {
    "vip": vip,
    "aadm": weight_space,
    "avb": lambda **options: weight_space(AVBModel, divergence=PLAIN, **options),
}


# VIP --------------------------------------------------------------------------------------------


def linear_vip(alpha=0.0):
    return sip.VIPModel(
        processes.BNNProcess(linear_network()),
        num_prior_samples=6,
        alpha=alpha,
        likelihood=likelihoods.Gaussian(NOISE),
        standardize=False,
        seed=3,
    )


def empirical_distribution(model):
    """Returns mean and covariance of the draws' weights by NumPy: f = x w at unit vectors."""
    weights = model._prior_draws(tf.eye(2)).numpy()[:, :, 0].astype("float64")
    return weights.mean(axis=0), np.cov(weights.T, bias=True)


def test_vip_is_bayesian_linear_regression():
    # With f = x w the process of the draws is that of w ~ N(mean, covariance of the draws).
    model = linear_vip()
    train(model, 700, keras.optimizers.Adam(0.03))
    _, history = model.objective([tf.constant(X)], tf.constant(Y), 20.0, (0, 0))
    mean, covariance = empirical_distribution(model)
    x, y = X.astype("float64"), Y[:, 0].astype("float64")
    distribution = stats.multivariate_normal(x @ mean, x @ covariance @ x.T + NOISE**2 * np.eye(20))
    evidence = distribution.logpdf(y) / 20
    assert evidence - 1e-3 < history["elbo"] < evidence + 1e-5
    precision = np.linalg.inv(covariance) + x.T @ x / NOISE**2
    exact = np.linalg.solve(precision, np.linalg.solve(covariance, mean) + x.T @ y / NOISE**2)
    new = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-2.0, 1.0]])
    outputs = model.predict(new)
    assert_allclose(outputs["mean"][:, 0], new @ exact, atol=5e-3)
    variance = np.einsum("ni,ij,nj->n", new, np.linalg.inv(precision), new)
    assert_allclose(outputs["epistemic_stddev"][:, 0], np.sqrt(variance), rtol=0.02)
    # It has one Gaussian component.
    assert model.predict_distribution(new).components_distribution.batch_shape == (4, 1)


def test_vip_objective_in_closed_form():
    model = linear_vip(alpha=0.5)
    model.adapt(X, Y)
    model.fit(X, Y, epochs=1, verbose=0)
    model.weight_mean.assign(np.linspace(-1.0, 1.0, 6)[None])
    model._raw_cholesky.assign(0.2 * GENERATOR.normal(size=(1, 6, 6)))
    cholesky = model.weight_cholesky
    assert_array_equal(np.triu(cholesky[0].numpy(), 1), 0.0)
    loss, history = model.objective([tf.constant(X)], tf.constant(Y), 20.0, (0, 0))
    tfd = tfp.distributions
    q = tfd.MultivariateNormalTriL(model.weight_mean.value, cholesky)
    kl = q.kl_divergence(tfd.MultivariateNormalTriL(tf.zeros(6), tf.eye(6)))
    assert_allclose(history["kl"], kl[0] / 20.0, rtol=1e-5)
    # The reference is 1/alpha log of the mean of p(y|f)^alpha over f ~ N(m, v), by quadrature.
    draws = model._prior_draws(tf.constant(X)).numpy()[:, :, 0]
    features = (draws - draws.mean(axis=0)) / np.sqrt(6.0)  # [S, N]
    mean = draws.mean(axis=0) + model.weight_mean[0].numpy() @ features
    stddev = np.sqrt(np.sum((features.T @ cholesky[0].numpy()) ** 2, axis=1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    f = np.asarray(mean)[:, None] + stddev[:, None] * nodes
    powers = stats.norm(f, NOISE).pdf(Y) ** 0.5 @ weights / weights.sum()
    assert_allclose(history["log_likelihood"], np.mean(np.log(powers) / 0.5), rtol=1e-4)
    assert_allclose(loss, history["kl"] - history["log_likelihood"], rtol=1e-6)
    assert "elbo" not in history


def test_vip_draws_have_its_moments():
    model = linear_vip()
    model.fit(X, Y, epochs=20, verbose=0)
    draws = model.sample_functions(X[:3], 4000, seed=5)[:, :, 0]
    outputs = model.predict(X[:3])
    # The bounds are five standard errors: false alarms in 1 of 300,000 runs.
    spread = outputs["epistemic_stddev"][:, 0]
    assert_allclose(draws.mean(axis=0), outputs["mean"][:, 0], atol=5.0 * spread.max() / 63.0)
    assert_allclose(draws.std(axis=0), spread, rtol=5.0 / np.sqrt(2.0 * 4000))
    # A function is linear in x.
    at_units = model.sample_functions(np.eye(2), 4000, seed=5)[:, :, 0]
    assert_allclose(draws, at_units @ X[:3].T, atol=1e-4)


def test_vip_trains_its_prior():
    model = vip(likelihood=likelihoods.Gaussian(NOISE))
    model.adapt(X, Y)
    before = [v.numpy() for v in model.prior.trainable_variables]
    model.fit(X, Y, epochs=2, verbose=0)
    after = model.prior.trainable_variables
    assert all(np.any(v.numpy() != b) for v, b in zip(after, before, strict=True))
    frozen = sip.neural_sampler_prior(2, units=(4,), num_noise=3)
    frozen.trainable = False
    fixed = vip(prior=frozen)
    fixed.adapt(X, Y)
    assert {v.path for v in fixed.trainable_variables if "raw_cholesky" in v.path}
    assert not set(map(id, fixed.prior.weights)) & set(map(id, fixed.trainable_variables))
    draws = model.sample_prior_functions(X, 3, seed=1)
    assert draws.shape == (3, 20, 1) and np.ptp(draws, axis=0).min() > 0.0


# AVB and AADM -----------------------------------------------------------------------------------


def quadratic_discriminator(size):
    values = keras.Input((size,))
    products = values[:, :, None] * values[:, None, :]
    products = keras.layers.Flatten()(products)
    features = keras.layers.Concatenate()([values, products])
    return keras.Model(values, keras.layers.Dense(1)(features))


def gaussian_sampler(size):
    noise = keras.Input((size,))
    return keras.Model(noise, keras.layers.Dense(size)(noise))


@pytest.mark.parametrize(("adaptive_contrast", "noise"), [(True, 0.5), (False, 3.0)])
def test_avb_is_bayesian_linear_regression(adaptive_contrast, noise):
    # q can be any Gaussian, and log q/p is quadratic, so the optimum is the exact posterior.
    # Without adaptive contrast the discriminator needs many steps if q and p differ much.
    keras.utils.set_random_seed(0)
    model = AVBModel(
        linear_network(),
        likelihood=likelihoods.Gaussian(noise),
        posterior=gaussian_sampler(2),
        divergence=sip.AdversarialOfWeights(
            discriminator=quadratic_discriminator(2),
            adaptive_contrast=adaptive_contrast,
            kl_annealing=0.0,
        ),
        num_samples=200,
        standardize=False,
        seed=1,
    )
    steps = 1500
    schedule = keras.optimizers.schedules.CosineDecay(0.02, steps)
    train(model, steps, keras.optimizers.Adam(schedule), keras.optimizers.Adam(0.02))
    # The prior has s^2 = 1/fan_in = 1/2.
    covariance = np.linalg.inv(2.0 * np.eye(2) + X.T @ X / noise**2)
    mean = covariance @ (X.T @ Y) / noise**2
    outputs = model.posterior.layers[-1]
    scale = np.sqrt(0.5)
    kernel = outputs.kernel.numpy() * scale
    spread = np.sqrt(np.diag(covariance))
    assert_allclose(outputs.bias.numpy() * scale, mean[:, 0], atol=0.1 * spread.min())
    assert_allclose(kernel.T @ kernel, covariance, atol=0.15 * covariance.max())


def test_functions_are_the_network_at_drawn_weights():
    network = small_network()
    model = weight_space(network=network, likelihood=likelihoods.Gaussian(0.1))
    model.adapt(X, 3.0 + 2.0 * Y)
    functions = model.sample_functions(X, 2, seed=7)
    draws = model.sample_weights(2, seed=7)
    mean, stddev = (3.0 + 2.0 * Y).mean(), (3.0 + 2.0 * Y).std()
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    for k in range(2):
        network.set_weights([w[k] for w in draws])
        assert_allclose(functions[k], mean + stddev * network(standard), atol=1e-4)
    assert np.abs(functions[0] - functions[1]).max() > 1e-3


def test_draws_begin_about_the_weights_of_the_network():
    network = small_network()
    model = weight_space(network=network, num_noise=100)
    # If the noise is 0, the units of the sampler are 0, and the weights are its biases times s.
    biases = model.posterior(np.zeros((1, 100), "float32"))[0]
    weights = np.concatenate([w.ravel() for w in network.get_weights()])
    scales = np.repeat([0.5**0.5, 1.0, 0.25**0.5, 1.0], [8, 4, 4, 1])
    assert_allclose(biases * scales, weights, rtol=1e-5)
    assert min(drawn.std(axis=0).min() for drawn in model.sample_weights(50)) > 0.0


def test_normal_log_ratio_without_a_discriminator_is_the_divergence_of_normal_distributions():
    zero = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    q = (GENERATOR.normal(size=(500, 3)) * [0.5, 1.0, 2.0] + [1.0, 0.0, -1.0]).astype("float32")
    p = GENERATOR.normal(size=(500, 3)).astype("float32")
    result = NormalLogRatio(zero)(tf.constant(q), tf.constant(p), seed=(0, 0))
    mean, variance = q.mean(axis=0), q.var(axis=0)
    forward = 0.5 * np.sum(variance + mean**2 - 1.0 - np.log(variance))
    reverse = 0.5 * np.sum((1.0 + mean**2) / variance - 1.0 + np.log(variance))
    assert_allclose(result.forward, forward, rtol=1e-4)
    assert_allclose(result.reverse, reverse, rtol=1e-4)
    assert_allclose(result.loss, 2.0 * np.log(2.0), rtol=1e-6)


def test_objective_of_the_data():
    # All objectives use the same draws of the weights: they average logarithms or powers.
    terms, arguments = {}, ([tf.constant(X)], tf.constant(Y), 20.0, (0, 0))
    for alpha in (None, 0.0, 0.5):
        keras.utils.set_random_seed(0)
        cls, options = (AVBModel, {}) if alpha is None else (AADMModel, {"alpha": alpha})
        model = weight_space(
            cls, likelihood=likelihoods.Gaussian(NOISE), standardize=False, **options
        )
        losses, history = model.objective(*arguments)
        assert_allclose(
            losses["model"], history["kl_estimate"] / 20.0 - history["log_likelihood"], rtol=1e-6
        )
        terms[alpha] = float(history["log_likelihood"])
    seeds = split((0, 0), 3)
    q, p = model.divergence_draws(seeds[0])
    assert_allclose(history["kl_estimate"], model.log_ratio(q, p, seeds[2]).forward, rtol=1e-6)
    densities = stats.norm(model._values(arguments[0], q), NOISE).logpdf(Y)  # [S, N, 1]
    assert_allclose(terms[0.0], densities.mean(), rtol=1e-4)
    assert terms[None] == terms[0.0]
    powers = np.mean(np.exp(0.5 * densities), axis=0)
    assert_allclose(terms[0.5], np.mean(np.log(powers) / 0.5), rtol=1e-4)


def test_config_of_avb():
    model = MAKERS["avb"](kernel_gain=2.0)
    again = AVBModel.from_config(model.get_config())
    assert "alpha" not in model.get_config() and again.alpha == 0.0
    assert (again.kernel_gain, again.divergence) == (2.0, PLAIN)


# All --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vip", "aadm"])
@pytest.mark.slow
def test_saving_and_export(name, tmp_path):
    keras.utils.set_random_seed(0)
    model = MAKERS[name]()
    model.fit(X, Y, epochs=2, batch_size=10, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    config = model.get_config()
    numbers = {k for k, v in config.items() if not isinstance(v, dict)}
    assert {k: loaded.get_config()[k] for k in numbers} == {k: config[k] for k in numbers}
    assert_array_equal(loaded.predict(X)["stddev"], model.predict(X)["stddev"])
    assert_allclose(model.predict(X[3:5])["mean"], model.predict(X)["mean"][3:5], atol=1e-5)
    model.export(tmp_path / "served", num_samples=4)
    served = tf.saved_model.load(tmp_path / "served")
    assert_allclose(served.serve(tf.constant(X))["mean"], model.predict(X)["mean"], atol=1e-5)
    functions = served.sample(tf.constant(X), tf.constant([1, 2]))
    assert_allclose(functions, model.sample_functions(X, 4, seed=(1, 2)), atol=1e-5)
    for each in (model, loaded):  # optimizers are restored too: the same run
        each.fit(X, Y, epochs=1, batch_size=10, verbose=0)
    assert_allclose(loaded.predict(X)["mean"], model.predict(X)["mean"], rtol=1e-5, atol=1e-6)
    whole = model.sample_functions(X, 4, seed=2)
    assert_allclose(model.sample_functions(X[5:8], 4, seed=2), whole[:, 5:8], atol=1e-5)


@pytest.mark.parametrize("name", ["vip", "aadm"])
def test_other_likelihoods_and_outputs(name):
    noise = likelihoods.HeteroscedasticGaussian()
    if name == "vip":
        model = sip.VIPModel("neural_sampler", num_prior_samples=4, likelihood=noise, seed=0)
    else:
        inputs = keras.Input((2,))
        model = weight_space(network=(inputs, keras.layers.Dense(4)(inputs)), likelihood=noise)
    model.fit(X, np.hstack([Y, -Y]), epochs=1, verbose=0)
    assert model.num_outputs == 4
    assert model.predict(X)["mean"].shape == (20, 2)
    assert np.ptp(model.predict(X)["aleatoric_stddev"], axis=0).min() > 0.0


@pytest.mark.parametrize(
    ("make", "options", "error", "message"),
    [
        (vip, {"alpha": 1.5}, ValueError, "`alpha` must be at most 1. Received: alpha=1.5"),
        (vip, {"num_prior_samples": 1}, ValueError, "an integer of at least 2"),
        (vip, {"prior": "gp"}, ValueError, "`prior` must be one of"),
        (vip, {"prior": 3}, TypeError, "`prior` must be one of `tfp_fnspace.processes`"),
        (
            vip,
            {"prior": processes.GaussianProcess(tfp.math.psd_kernels.ExponentiatedQuadratic())},
            ValueError,
            "`prior` must draw functions of x. Received: prior=GaussianProcess",
        ),
        (vip, {"num_outputs": 2}, ValueError, "`prior` must have 2 outputs"),
        (vip, {"likelihood": 1}, TypeError, "`likelihood` must be one of"),
        (weight_space, {"network": 3}, TypeError, "`network` must be a built Keras model"),
        (weight_space, {"alpha": -0.1}, ValueError, "`alpha` must be a finite number of at least"),
        (
            sip.AdversarialOfWeights,
            {"kl_annealing": 2},
            ValueError,
            "`kl_annealing` must be at most 1",
        ),
        (weight_space, {"posterior": "flow"}, ValueError, "`posterior` must be"),
        (weight_space, {"posterior": 3}, TypeError, "`posterior` must be a Keras model"),
        (
            weight_space,
            {"posterior": linear_network()},
            ValueError,
            r"`posterior` must map \[S, K\] to \[S, 17\]",
        ),
        (
            weight_space,
            {"divergence": sip.AdversarialOfWeights(linear_network())},
            ValueError,
            r"`discriminator` must map \[S, 17\] to \[S, 1\]",
        ),
        (weight_space, {"kernel_gain": 0.0}, ValueError, "`kernel_gain` must be a positive"),
        (weight_space, {"num_noise": 0}, ValueError, "`num_noise` must be a positive integer"),
        (
            weight_space,
            {"divergence": sip.Adversarial()},
            TypeError,
            r"`divergence` must be a tfp_fnspace\.sip\.AdversarialOfWeights",
        ),
    ],
)
def test_bad_arguments(make, options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


def test_networks_without_weights_or_with_other_outputs_are_refused():
    inputs = keras.Input((2,))
    with pytest.raises(ValueError, match="`network` must have trainable weights"):
        AADMModel((inputs, keras.layers.Activation("tanh")(inputs)))
    with pytest.raises(ValueError, match=r"`network` must have one output, \[N, D\]"):
        AADMModel((inputs, keras.layers.Reshape((2, 1))(inputs)))


@pytest.mark.parametrize("name", MAKERS)
def test_not_fitted(name):
    with pytest.raises(ValueError, match="The model is not fitted"):
        MAKERS[name]().predict(X)
