"""The spectral Stein estimator against scores in closed form; gradients of divergences."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tfp_fnspace.methods.fbnn import equations, functional_kl
from tfp_fnspace.methods.fbnn.spectral_stein import spectral_stein_score, spectrum
from tfp_fnspace.processes import CallableProcess, GaussianProcess

tfpk = tfp.math.psd_kernels
SIZES = [100, 400, 1600]

#: Name -> dimension, which is also in the name; `draw` and `score` use it.
DISTRIBUTIONS = {
    **{f"gaussian_{d}": d for d in (1, 2, 5, 10, 25)},
    "mixture_1": 1,
    "mixture_2": 2,
    "student_1": 1,
    "student_5": 5,
}

#: Relative errors `sqrt(mean |s - score|^2 / mean |score|^2)` at 100, 400 and 1600 samples,
#: measured at the bandwidths 1 and 2 with the share 0.99, as means of 3 runs. At a fixed share the
#: truncation leaves a bias; in the mixtures that of the wide kernel is most of the error.
ERRORS = {
    "gaussian_1": ([0.69, 0.29, 0.20], [0.44, 0.28, 0.21]),
    "gaussian_2": ([0.50, 0.30, 0.14], [0.25, 0.24, 0.12]),
    "gaussian_5": ([0.61, 0.36, 0.21], [0.30, 0.14, 0.08]),
    "gaussian_10": ([0.78, 0.51, 0.29], [0.34, 0.18, 0.09]),
    "gaussian_25": ([0.70, 0.69, 0.46], [0.48, 0.29, 0.13]),
    "mixture_1": ([0.41, 0.35, 0.32], [0.94, 0.89, 0.90]),
    "mixture_2": ([0.41, 0.34, 0.30], [0.67, 0.69, 0.67]),
    "student_1": ([0.26, 0.27, 0.13], [0.21, 0.20, 0.10]),
    "student_5": ([0.56, 0.32, 0.22], [0.45, 0.38, 0.38]),
}


def draw(distribution, rng, size):
    name, d = distribution.split("_")[0], DISTRIBUTIONS[distribution]
    if name == "gaussian":
        return rng.normal(size=(size, d))
    if name == "mixture":
        centres = np.where(rng.random((size, 1)) < 0.5, -2.0, 2.0)
        return centres + rng.normal(size=(size, d))
    return stats.multivariate_t(np.zeros(d), np.eye(d), df=5).rvs(size, rng).reshape(size, d)


def score(distribution, x):
    name, d = distribution.split("_")[0], DISTRIBUTIONS[distribution]
    if name == "gaussian":
        return -x
    if name == "mixture":
        return -x + 2.0 * np.tanh(2.0 * x.sum(axis=1, keepdims=True))
    return -(5 + d) * x / (5 + (x**2).sum(axis=1, keepdims=True))


def relative_error(distribution, size, bandwidth, run):
    x = draw(distribution, np.random.default_rng([run, size]), size).astype(np.float32)
    expected = score(distribution, x)
    estimate = spectral_stein_score(x, bandwidth=bandwidth)
    return np.sqrt(np.sum((estimate - expected) ** 2) / np.sum(expected**2))


def mean_errors(distribution, bandwidth):
    """Averages 3 runs, but takes one of 1600 samples: these hardly differ and take most time."""
    runs = {m: 3 if m < 1600 else 1 for m in SIZES}
    return [
        np.mean([relative_error(distribution, m, bandwidth, run) for run in range(runs[m])])
        for m in SIZES
    ]


@pytest.mark.slow
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_error_is_as_stated_and_falls(distribution):
    for bandwidth, stated in zip((1.0, 2.0), ERRORS[distribution], strict=True):
        errors = mean_errors(distribution, bandwidth)
        assert np.all(errors <= 1.3 * np.array(stated) + 0.02), errors
        assert bandwidth > 1.0 or errors[2] < 0.85 * errors[0]


@pytest.mark.parametrize("whiten", [False, True])
def test_at_its_samples_it_is_the_estimate_at_points(whiten):
    x = np.random.default_rng(0).normal(size=(60, 3))
    at_samples = spectral_stein_score(x, whiten=whiten)
    at_points = spectral_stein_score(x, points=x, whiten=whiten)
    np.testing.assert_allclose(at_samples, at_points, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("d", "stated"), [(4, (0.52, 0.15)), (25, (0.51, 0.27))])
def test_whitening_sees_directions_of_small_spread(d, stated):
    """Has 400 samples with spreads 1 to 0.1 along random axes; `stated` are measured errors."""
    rng = np.random.default_rng(0)
    axes, _ = np.linalg.qr(rng.normal(size=(d, d)))
    root = axes * np.geomspace(1.0, 0.1, d)
    x = rng.normal(size=(400, d)) @ root.T
    # The units make x standard normal; otherwise only the small spreads would count.
    expected = -np.linalg.solve(root, x.T).T
    for whiten, error in zip((False, True), stated, strict=True):
        estimate = spectral_stein_score(x.astype("f4"), bandwidth=2.0, whiten=whiten) @ root
        found = np.sqrt(np.sum((estimate - expected) ** 2) / np.sum(expected**2))
        assert 0.7 * error < found < 1.3 * error


def test_it_is_the_formulas_of_the_paper():
    rng = np.random.default_rng(1)
    x, points = rng.normal(size=(12, 2)), rng.normal(size=(4, 2))
    basis = spectrum(x, share=0.9)
    h, values, vectors = (
        v.numpy() for v in (basis.length_scale, basis.eigenvalues, basis.eigenvectors)
    )

    def psi(j, z):
        k = np.exp(-0.5 * np.sum((z - x) ** 2, axis=1) / h**2)
        return np.sqrt(12) / values[j] * vectors[:, j] @ k

    def gradient(j, z):
        return [(psi(j, z + e) - psi(j, z - e)) / 2e-6 for e in 1e-6 * np.eye(2)]

    kept = range(12 - int(basis.num_kept), 12)
    beta = {j: -np.mean([gradient(j, z) for z in x], axis=0) for j in kept}
    expected = [sum(beta[j] * psi(j, z) for j in kept) for z in points]
    np.testing.assert_allclose(spectral_stein_score(x, points, share=0.9), expected, rtol=1e-6)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.99])
def test_it_keeps_the_fewest_eigenvalues_of_the_share(share):
    basis = spectrum(np.random.default_rng(2).normal(size=(50, 2)), share)
    values = np.sort(basis.eigenvalues)[::-1]
    shares = np.cumsum(values) / values.sum()
    assert int(basis.num_kept) == np.argmax(shares >= share) + 1
    assert np.count_nonzero(basis.inverses) == int(basis.num_kept)


def test_a_dominant_eigenvalue_keeps_one_vector():
    x = np.random.default_rng(3).normal(size=(100, 3)).astype(np.float32)
    basis = spectrum(x, share=0.5, bandwidth=30.0)
    assert int(basis.num_kept) == 1
    assert np.all(np.isfinite(spectral_stein_score(x, share=0.5, bandwidth=30.0)))


def test_the_number_is_counted_at_every_call():
    rng = np.random.default_rng(4)
    run = tf.function(lambda x: spectrum(x).num_kept)
    wide = rng.normal(size=(100, 4))
    line = wide[:, :1] * np.ones(4)
    assert int(run(wide)) == int(spectrum(wide).num_kept) > 10
    assert int(run(line)) == int(spectrum(line).num_kept) < 10


def test_batches_are_single_calls():
    x = (
        np.random.default_rng(5).normal(size=(2, 3, 30, 2))
        * np.array([1.0, 5.0])[:, None, None, None]
    )
    points = x[..., :7, :] + 0.1
    together, apart = spectral_stein_score(x), spectral_stein_score(x, points)
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose(together[index], spectral_stein_score(x[index]), atol=1e-8)
        np.testing.assert_allclose(
            apart[index], spectral_stein_score(x[index], points[index]), atol=1e-8
        )


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("share", [0.99, 1.0])
def test_float32_is_near_float64(offset, share):
    x = np.random.default_rng(6).normal(size=(100, 10)).astype(np.float32) + np.float32(offset)
    single, double = (spectral_stein_score(x.astype(t), share=share) for t in ("f4", "f8"))
    np.testing.assert_allclose(single, double, atol=1e-2 if share == 1.0 else 1e-3)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("x", [np.zeros((5, 2), "f4"), np.eye(2, dtype="f4"), 1e15 * np.eye(9)])
def test_degenerate_samples_give_finite_scores(x, whiten):
    assert np.all(np.isfinite(spectral_stein_score(x, whiten=whiten)))


def test_whitening_takes_fewer_samples_than_dimensions_and_copies_of_a_coordinate():
    x = np.random.default_rng(0).normal(size=(20, 50)).astype("f4")
    x[:, 1], x[:, 2] = x[:, 0], 0.0
    score = spectral_stein_score(x, whiten=True)
    assert np.all(np.isfinite(score)) and np.all(score[:, 2] == 0.0)


def test_it_is_a_constant_in_gradients():
    x = tf.constant(np.random.default_rng(7).normal(size=(20, 2)))
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(spectral_stein_score(x, points=2.0 * x))
    assert tape.gradient(total, x) is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"samples": np.zeros(3)}, "`samples` must be floating"),
        ({"samples": np.zeros((3, 2), int)}, "`samples` must be floating"),
        ({"samples": np.zeros((1, 2))}, "at least 2 samples"),
        ({"samples": np.zeros((3, 2)), "share": 0.0}, "`share` must be in"),
        ({"samples": np.zeros((3, 2)), "bandwidth": -1.0}, "`bandwidth` must be a positive"),
        ({"samples": np.zeros((3, 2)), "points": np.zeros((3, 1))}, "`points` must have"),
    ],
)
def test_bad_arguments(options, match):
    with pytest.raises(ValueError, match=match):
        spectral_stein_score(**options)


# Gradients of the divergence ----------------------------------------------------------------------

POINTS = np.linspace(-1.0, 1.0, 4)[:, np.newaxis]
GAMMA = 0.3


class NormalPosterior:
    """`q(f_X) = N(m, L L^T)` by reparameterisation, with the divergence in closed form."""

    def __init__(self):
        rng = np.random.default_rng(8)
        self.mean = tf.constant(rng.normal(size=4))
        self.factor = tf.constant(np.tril(0.2 * rng.normal(size=(4, 4)) + 0.6 * np.eye(4)))

    def gradient(self, loss):
        with tf.GradientTape() as tape:
            tape.watch([self.mean, self.factor])
            value = loss()
        in_mean, in_factor = tape.gradient(value, [self.mean, self.factor])
        return np.concatenate([in_mean, in_factor.numpy()[np.tril_indices(4)]])

    def draws(self, size, seed):
        normal = tf.random.stateless_normal([size, 4], [seed, 0], dtype=tf.float64)
        return (self.mean + tf.matmul(normal, self.factor, transpose_b=True))[..., tf.newaxis]

    def covariance(self):
        return tf.matmul(self.factor, self.factor, transpose_b=True)

    def divergence(self, prior, gamma=GAMMA):
        mean, covariance = prior.moments(POINTS, gamma)
        added = gamma**2 * tf.eye(4, dtype=tf.float64)
        of_q, of_p = (
            tfp.distributions.MultivariateNormalTriL(m, tf.linalg.cholesky(c))
            for m, c in ((self.mean, self.covariance() + added), (mean[:, 0], covariance[0]))
        )
        return tfp.distributions.kl_divergence(of_q, of_p)


@pytest.fixture(scope="module")
def prior():
    return GaussianProcess(
        tfpk.ExponentiatedQuadratic(1.2, 0.8), mean=0.3, jitter=0.0, dtype="float64"
    )


@pytest.mark.slow
def test_exact_scores_give_the_gradient_of_the_divergence(prior, assert_mean_close):
    # FALSE_FAIL is 1e-6 for all entries together.
    q, size = NormalPosterior(), 4000
    inverse = np.linalg.inv(q.covariance() + GAMMA**2 * np.eye(4))
    expected = q.gradient(lambda: q.divergence(prior))
    gradients = []
    for run in range(60):

        def loss(run=run):
            f = equations.with_noise(q.draws(size, run), GAMMA, tf.constant([run, 1]))
            q_score = -tf.einsum("ij,sjd->sid", inverse, f - q.mean[:, tf.newaxis])
            p_score = prior.score(f, POINTS, GAMMA)
            return equations.score_surrogate(f, q_score - p_score)

        gradients.append(q.gradient(loss))
    assert_mean_close(np.array(gradients), expected, 1e-6)


@pytest.mark.parametrize("explicit", [True, False])
def test_estimated_scores_give_nearly_that_gradient(prior, explicit):
    # These are means of 10 gradients from 500 samples. Measured errors: 0.03 with the exact score
    # of the prior, 0.17 with both scores estimated.
    q = NormalPosterior()
    distribution = (
        prior
        if explicit
        else CallableProcess(lambda x, n, s: prior.sample(x, n, s), dtype="float64")
    )
    expected = q.gradient(lambda: q.divergence(prior))
    gradients = [
        q.gradient(
            lambda run=run: functional_kl.kl_surrogate(
                q.draws(500, run), POINTS, distribution, run, GAMMA, bandwidth=2.0
            )
        )
        for run in range(10)
    ]
    error = np.linalg.norm(np.mean(gradients, axis=0) - expected) / np.linalg.norm(expected)
    assert error < (0.06 if explicit else 0.3)


def test_a_trained_prior_has_the_same_gradient_in_q_and_its_own(prior):
    q = NormalPosterior()
    options = {"points": POINTS, "prior": prior, "seed": 3, "injected_noise": GAMMA}
    fixed, trained = (
        q.gradient(
            lambda flag=flag: functional_kl.kl_surrogate(
                q.draws(50, 0), **options, learn_prior=flag
            )
        )
        for flag in (False, True)
    )
    np.testing.assert_allclose(trained, fixed, rtol=1e-9, atol=1e-10)
    weights = prior.kernel_weights.trainable_variables
    with tf.GradientTape(persistent=True) as tape:
        loss = functional_kl.kl_surrogate(q.draws(20_000, 0)[:400], **options, learn_prior=True)
        f = equations.with_noise(
            q.draws(20_000, 0)[:400],
            GAMMA,
            functional_kl.random.split(functional_kl.random.as_seed(3), 3)[0],
        )
        expected = -tf.reduce_mean(prior.log_prob(f, POINTS, GAMMA))
    for weight in weights:
        ours, theirs = (tape.gradient(v, weight) for v in (loss, expected))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("explicit", [True, False])
def test_estimate_of_the_divergence_is_unbiased(prior, explicit, assert_mean_close):
    # FALSE_FAIL is 1e-6.
    q = NormalPosterior()
    distribution = (
        prior
        if explicit
        else CallableProcess(lambda x, n, s: prior.sample(x, n, s), dtype="float64")
    )
    estimate = tf.function(
        lambda run: functional_kl.kl_estimate(
            (
                q.mean
                + tf.matmul(
                    tf.random.stateless_normal([12, 4], tf.stack([run, 0]), dtype=tf.float64),
                    q.factor,
                    transpose_b=True,
                )
            )[..., tf.newaxis],
            POINTS,
            distribution,
            tf.stack([run, 7]),
            GAMMA,
            40,
        )
    )
    values = [estimate(tf.constant(run)).numpy() for run in range(2000)]
    assert_mean_close(np.array(values), float(q.divergence(prior)), 1e-6)


def test_of_few_draws_the_estimate_is_of_all_points_and_unbiased(prior, assert_mean_close):
    """With eight draws at four points, every point counts. FALSE_FAIL = 1e-6."""
    q = NormalPosterior()
    noise = tf.random.stateless_normal([400, 8, 4], [0, 1], dtype=tf.float64)
    draws = (q.mean + tf.matmul(noise, q.factor, transpose_b=True))[..., tf.newaxis]

    @tf.function(autograph=False)
    def estimates():
        def one(i):
            return functional_kl.kl_estimate(draws[i], POINTS, prior, tf.stack([i, 7]), GAMMA)

        return tf.map_fn(one, tf.range(400), fn_output_signature=tf.float64)

    values = estimates()
    assert_mean_close(values, float(q.divergence(prior)), 1e-6)


@pytest.mark.slow
def test_of_more_points_than_draws_the_estimate_is_at_some_and_says_so(prior):
    x = np.linspace(-1.0, 1.0, 50)[:, np.newaxis]
    f = prior.sample(x, 20, seed=0)
    with pytest.warns(UserWarning, match="9 random points are used, .* Draw at least 53"):
        first = functional_kl.kl_estimate(f, x, prior, 0, 0.1)
    with pytest.warns(UserWarning, match="50 points cannot be estimated from 20 draws"):
        assert functional_kl.kl_estimate(f, x, prior, 1, 0.1) != first
    assert np.isfinite(first)
    dynamic = tf.function(
        lambda f, x: functional_kl.kl_estimate(f, x, prior, 0, 0.1),
        input_signature=[tf.TensorSpec(shape, tf.float64) for shape in ([20, None, 1], [None, 1])],
    )
    np.testing.assert_allclose(dynamic(f, tf.constant(x)), first)


@pytest.mark.slow
def test_any_set_of_points_is_as_likely_as_any_other(assert_mean_close):
    """If there are few enough points, all are taken, in order. FALSE_FAIL = 1e-6."""
    f, x = tf.zeros([3, 7, 1]), tf.range(7.0)[:, tf.newaxis]
    found = tf.map_fn(
        lambda i: functional_kl.at_some_points(f, x, 3, tf.stack([i, 0]))[1][:, 0],
        tf.range(600),
        fn_output_signature=tf.float32,
    ).numpy()
    assert np.all(np.diff(found, axis=1) > 0.0)
    is_there = (found[:, :, np.newaxis] == np.arange(7.0)).any(axis=1).astype(float)
    assert_mean_close(is_there, 3.0 / 7.0, 5e-7)
    both = is_there[:, :, np.newaxis] * is_there[:, np.newaxis]
    assert_mean_close(both[:, *np.triu_indices(7, 1)], 1.0 / 7.0, 5e-7)
    np.testing.assert_array_equal(functional_kl.at_some_points(f, x, 7, 0)[1], x)


def test_bad_arguments_of_the_divergence(prior):
    implicit = CallableProcess(lambda x, n, s: prior.sample(x, n, s))
    f = tf.zeros([5, 4, 1])
    with pytest.raises(ValueError, match="`learn_prior` needs"):
        functional_kl.kl_surrogate(f, POINTS, implicit, 0, learn_prior=True)
    with pytest.raises(ValueError, match="Functions must have"):
        functional_kl.kl_surrogate(f[0], POINTS, prior, 0)
    with pytest.raises(ValueError, match="at least 4 functions"):
        functional_kl.kl_estimate(f[:3], POINTS, prior, 0)
    with pytest.raises(ValueError, match="at least 4 draws of the prior. Received: num_prior_sa"):
        functional_kl.kl_estimate(f, POINTS, implicit, 0, num_prior_samples=3)
