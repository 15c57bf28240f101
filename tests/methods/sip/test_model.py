"""`SIPModel` as a Keras model: training, its parts, likelihoods, bad input."""

import warnings

import keras
import numpy as np
import pytest
import sip_models
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose, assert_array_equal

from tfp_fnspace import likelihoods, processes, sip
from tfp_fnspace.math.random import fold_in
from tfp_fnspace.methods.sip import networks, prediction

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(40, 2)) * [1.0, 10.0] + [0.0, 5.0]
Y = 100.0 + 20.0 * np.sin(X[:, :1]) + GENERATOR.normal(size=(40, 1))
LABELS = (X[:, 0] > 0.0).astype(int) + (X[:, 0] > 0.7)
SMALL = {"inducing_points": 5, "num_samples": 8, "num_eval_samples": 10, "seed": 0}


def make(eager=True, prior=None, train_prior=True, train_posterior=True, **options):
    """Makes a small model, which is eager where little is trained because tracing takes longer."""
    prior = networks.neural_sampler_prior(2, units=(6,), num_noise=3) if prior is None else prior
    if not train_prior:
        prior.trainable = False
    if not train_posterior:
        options["posterior"] = networks.mlp(4, SMALL["inducing_points"], seed=0)
        options["posterior"].trainable = False
    model = sip_models.make_model(prior, **{**SMALL, **options})
    model.compile(keras.optimizers.Adam(0.01), run_eagerly=eager)
    return model


def fit(model, x=X, y=Y, epochs=1, batch_size=20, **options):
    return model.fit(x, y, epochs=epochs, batch_size=batch_size, verbose=0, **options)


def values_of(part):
    return [variable.numpy() for variable in part.trainable_variables]


# Training ----------------------------------------------------------------------------------------

PARTS = {
    "prior": lambda m: m.prior.weights,
    "posterior": lambda m: m.posterior.weights,
    "discriminator": lambda m: m.log_ratio.trainable_variables,
    "inducing inputs": lambda m: [m.inducing_inputs],
    "noise": lambda m: m.likelihood.trainable_variables,
}


@pytest.mark.parametrize(
    ("options", "frozen"),
    [
        ({}, set()),
        ({"train_prior": False}, {"prior"}),
        ({"train_posterior": False}, {"posterior"}),
        ({"kind": "forward", "alpha": 0.0, "adaptive_contrast": True, "dropout": 0.2}, set()),
    ],
)
def test_parts_are_learned_or_left_alone(options, frozen):
    model = make(**options)
    model.adapt(X, Y)
    model.prepare([X.astype("float32")], Y, [])
    before = {name: [v.numpy() for v in part(model)] for name, part in PARTS.items()}
    variables = {name: list(part(model)) for name, part in PARTS.items()}
    model.prepare = lambda *data: None
    history = fit(model, epochs=2).history
    for name, part in variables.items():
        moved = [np.any(v.numpy() != w) for v, w in zip(part, before[name], strict=True)]
        assert moved and np.all(np.array(moved) != (name in frozen)), name
    for name in frozen:
        part = getattr(model, name)
        assert part.weights and not part.trainable
        assert not set(map(id, part.weights)) & set(map(id, model.trainable_weights))
    names = {"loss", "log_likelihood", "kl_estimate", "discriminator_loss"}
    assert set(history) == names | {"discriminator_accuracy", "jittered"}
    assert all(len(v) == 2 and np.all(np.isfinite(v)) for v in history.values())


def test_frozen_parts_keep_their_values():
    model = make(train_prior=False, train_posterior=False)
    model.adapt(X, Y)
    before = [w.numpy() for w in (*model.prior.weights, *model.posterior.weights)]
    fit(model)
    after = [w.numpy() for w in (*model.prior.weights, *model.posterior.weights)]
    assert len(after) > 8
    for ours, theirs in zip(after, before, strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_loss_is_of_the_parts_of_the_history_and_the_weight_rises():
    """An epoch has two steps of 40 rows; a warm-up of four has weights 1/4, 1/2, 3/4 and 1."""
    model = sip_models.make_model("neural_sampler", kl_annealing=0.5, dtype="float64", **SMALL)
    model.compile(run_eagerly=True)
    history, model_update = [], model.update

    def update(inputs, targets):
        found = model_update(inputs, targets)
        history.append({k: float(v) for k, v in found.items()})
        return found

    model.update = update
    fit(model, epochs=4)
    weights = [
        (step["loss"] + step["log_likelihood"]) * 40.0 / step["kl_estimate"] for step in history
    ]
    assert_allclose(weights, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0], rtol=1e-6)


def test_discriminator_is_asked_before_it_learns_from_the_draws():
    """This keeps sharing the draws of a step unbiased (see benchmarks/sip_sharing.py)."""
    model = make(kl_annealing=0.0)
    fit(model)
    x = model.units.scaled([tf.constant(X[:20], tf.float32)])
    y = model.units.target_scaler(tf.constant(Y[:20], tf.float32))
    seed = fold_in(tf.convert_to_tensor(model.counters.seed_state), model.counters.steps.value)
    losses, parts = model.objective(x, y, tf.constant(40.0), seed)
    before = values_of(model.log_ratio)
    found = model.update(x, y)
    assert_allclose(found["loss"], losses["model"], rtol=1e-5)
    assert_allclose(found["kl_estimate"], parts["kl_estimate"], rtol=1e-4, atol=1e-6)
    assert_allclose(found["discriminator_loss"], losses["discriminator"], rtol=1e-5)
    assert all(np.any(a != b) for a, b in zip(values_of(model.log_ratio), before, strict=True))


def test_steps_of_the_discriminator_are_counted_by_its_optimizer():
    given = keras.optimizers.SGD(0.5)
    model = make()
    model.compile("adam", discriminator_optimizer=given, run_eagerly=True)
    fit(model)
    assert model.discriminator_optimizer is given and given.iterations.numpy() == 2


@pytest.mark.slow
def test_a_discriminator_that_knows_all_is_reported():
    def far(x, n, seed):
        return 50.0 + 0.01 * tf.random.stateless_normal([n, 1, 1], seed) + 0.0 * x[:, :1]

    model = make(prior=processes.CallableProcess(far), train_posterior=False)
    model.compile(
        keras.optimizers.Adam(0.0),
        discriminator_optimizer=keras.optimizers.Adam(0.05),
        run_eagerly=True,
    )
    with pytest.warns(RuntimeWarning, match="classifies 100.0% .* in epoch") as caught:
        fit(model, epochs=8)
    assert len([w for w in caught if "discriminator classifies" in str(w.message)]) == 1


def test_a_discriminator_that_says_nothing_is_reported():
    zero = keras.layers.Dense(4, "relu", bias_initializer=keras.initializers.Constant(-1e3))
    dead = keras.Sequential([keras.Input((5,)), zero, keras.layers.Dense(1)])
    model = make(discriminator=dead)
    with pytest.warns(RuntimeWarning, match="end of the run the discriminator gives the same"):
        fit(model)  # it starts again, as dead as before
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(make())
    assert not [w for w in caught if "gives the same" in str(w.message)]


@pytest.mark.parametrize("contrast", [False, True])
@pytest.mark.slow
def test_a_discriminator_that_died_starts_anew(contrast):
    layers = [keras.layers.Dense(4, "relu"), keras.layers.Dense(1)]
    model = make(
        discriminator=keras.Sequential([keras.Input((5,)), *layers]), adaptive_contrast=contrast
    )
    fit(model)
    network = model.log_ratio.contrast if contrast else model.log_ratio.discriminator
    network.layers[0].bias.assign([-1e3] * 4)
    with pytest.warns(RuntimeWarning, match="it is initialised again") as caught:
        fit(model, epochs=4)
    assert len([w for w in caught if "initialised again" in str(w.message)]) == 1
    assert not [w for w in caught if "At the end" in str(w.message)]
    seed = fold_in(tf.constant([0, 0]), 7)
    assert model.log_ratio.spread(*model.divergence_draws(seed)) > 0.0


@pytest.mark.slow
def test_both_modes_of_two_constants_are_found():
    """y is -1 or 1 with noise 0.1, alpha = 1: both are modes; less than a third lies between."""
    random = np.random.default_rng(0)
    x = random.uniform(-1.0, 1.0, size=(200, 1))
    y = random.choice([-1.0, 1.0], size=(200, 1)) + 0.1 * random.normal(size=(200, 1))
    noise = likelihoods.Gaussian(0.15)
    model = sip.SIPModel("neural_sampler", 3, alpha=1.0, likelihood=noise, num_samples=50, seed=0)
    model.compile(keras.optimizers.Adam(0.005))
    fit(model, x, y, epochs=400, batch_size=100)
    distribution = model.predict_distribution(np.array([[-0.5], [0.5]]))
    low, middle, high = (
        np.exp(distribution.log_prob(np.full((2, 1), v))) for v in (-1.0, 0.0, 1.0)
    )
    assert np.all(low > 0.5) and np.all(high > 0.5)
    assert np.all(middle < np.minimum(low, high) / 3.0)


# Likelihoods and data ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "options", "targets", "columns"),
    [
        (lambda: None, {}, Y, 1),
        (lambda: None, {"alpha": 1.0}, np.concatenate([Y, -Y, X[:, 1:]], axis=1), 3),
        (likelihoods.HeteroscedasticGaussian, {}, Y, 1),
        (lambda: likelihoods.StudentT(4.0, 0.3, trainable=True), {"alpha": 0.0}, Y, 1),
        (lambda: likelihoods.StudentT(4.0, 0.3), {}, Y, 1),
    ],
)
def test_likelihoods_and_several_outputs(likelihood, options, targets, columns):
    model = sip.SIPModel("neural_sampler", likelihood=likelihood(), **{**SMALL, **options})
    model.compile(run_eagerly=True)
    history = fit(model, y=targets).history
    assert np.all(np.isfinite(history["loss"]))
    outputs = model.predict(X)
    assert outputs["mean"].shape == (40, columns)
    assert_allclose(outputs["mean"].mean(axis=0), targets.mean(axis=0), atol=3.0 * targets.std())
    distribution = model.predict_distribution(X)
    assert np.all(np.isfinite(distribution.log_prob(targets)))
    twice = 2 if isinstance(model.likelihood, likelihoods.HeteroscedasticGaussian) else 1
    assert model.inducing_inputs.shape == (5, 2)
    assert model.posterior.output_shape == (None, 5 * columns * twice)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_classes(alpha):
    model = sip.SIPModel(
        "bnn", likelihood=likelihoods.Categorical(), num_outputs=3, alpha=alpha, **SMALL
    )
    model.compile(run_eagerly=True)
    fit(model, y=LABELS)
    outputs = model.predict(X)
    assert outputs["probabilities"].shape == (40, 3)
    assert_allclose(outputs["probabilities"].sum(axis=1), 1.0, rtol=1e-5)
    model = make(likelihood=likelihoods.Bernoulli(), alpha=alpha)
    fit(model, y=LABELS > 0)
    assert model.predict(X)["probabilities"].shape == (40, 1)


@pytest.mark.slow
def test_streams_start_the_inducing_points_at_rows_of_as_many_batches_as_it_takes():
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    model, seen = make(kl_annealing=1.0), []
    prepare = model.prepare
    model.prepare = lambda *data: (
        prepare(*data),
        seen.append(model.inducing_inputs_in_user_units()),
    )
    history = fit(model, batches, None, batch_size=None, epochs=2).history
    (points,) = seen
    distances = np.abs(points[:, np.newaxis] - X).sum(axis=-1)
    assert len(set(distances.argmin(axis=1))) == 5 and distances.min(axis=1).max() < 1e-3
    assert distances.argmin(axis=1).max() < 8
    assert model.annealing.steps.numpy() == model.counters.steps.numpy() == 20
    assert np.all(np.isfinite(history["loss"]))
    endless = make(kl_annealing=1.0, standardize=False)
    endless.compile(run_eagerly=True, num_rows=40)
    endless.fit(iter(batches.repeat()), steps_per_epoch=3, verbose=0)
    assert endless.counters.steps.numpy() == 3 and endless.counters.rows.numpy() == 40


@pytest.mark.slow
def test_batches_before_the_first_fit_leave_it_its_warm_up():
    model = make(kl_annealing=0.5)
    model.compile(run_eagerly=True, num_rows=40)
    model.adapt(X, Y)
    model.train_on_batch(X, Y)
    fit(model, epochs=3)
    fit(model, epochs=5)
    assert model.annealing.steps.numpy() == 3 and model.counters.steps.numpy() == 17


def test_prior_draws_are_twice_the_inducing_points_at_least():
    found = {m: make(inducing_points=m).num_prior_samples for m in (3, 5, 9)}
    assert found == {3: 8, 5: 10, 9: 18} and make(num_draws=3).num_prior_samples == 3


@pytest.mark.parametrize("fixed", [False, True])
def test_moments_of_fixed_prior_draws_are_those_of_predictions(fixed):
    model = make(fixed=fixed)
    fit(model)
    x = tf.constant(X[:3], tf.float32)
    conditionals, at_z = zip(
        *(model.conditional(x, tf.constant([0, i])) for i in range(2)), strict=True
    )
    predicting, _, _ = prediction.predictive_distribution(model, x)
    for conditional, draws in zip(conditionals, at_z, strict=True):
        assert np.allclose(conditional.weights, predicting.weights, atol=1e-5) == fixed
        assert np.allclose(conditional.variance, predicting.variance, atol=1e-5) == fixed
        assert draws.shape == (10, 5, 1)  # these are new in each step, for the discriminator
    assert np.max(np.abs(at_z[0] - at_z[1])) > 1e-3


def test_inducing_points_that_are_given_or_too_many():
    places = np.array([[0.0, 1.0], [0.5, 7.0], [1.0, -3.0]])
    model = make(inducing_points=places)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    fit(model)
    assert_allclose(model.inducing_inputs_in_user_units(), places, rtol=1e-4, atol=1e-4)
    assert model.get_config()["inducing_points"] == places.tolist()
    many = make(inducing_points=50)
    with pytest.warns(UserWarning, match="40 rows.*instead of 50"):
        fit(many)
    assert many.inducing_inputs_in_user_units().shape == (40, 2)


def test_images_take_a_process_of_ones_own():
    images = GENERATOR.uniform(size=(12, 3, 3, 1)).astype("float32")
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 1.0, feature_ndims=3)
    model = make(prior=processes.GaussianProcess(kernel))
    fit(model, images, images.mean(axis=(1, 2)), batch_size=6)
    assert model.inducing_inputs.shape == (5, 3, 3, 1) and not model.standardize
    assert model.predict(images)["mean"].shape == (12, 1)
    with pytest.raises(ValueError, match="`prior='bnn'` is for rows of rank 1.*Received"):
        fit(sip.SIPModel("bnn"), images, images.mean(axis=(1, 2)))


# A user's parts ----------------------------------------------------------------------------------


@keras.saving.register_keras_serializable("test_sip_model")
class Lines(processes.Process):
    """Straight lines with slopes of a learned scale."""

    draws_are_functions_of_x = True

    def build(self, input_shape):
        self.log_scale = self.add_weight(name="log_scale", shape=(), initializer="zeros")
        self.built = True

    def _sample(self, x, n, seed):
        slopes = tf.random.stateless_normal([n, 1, 1], seed, dtype=x.dtype)
        return tf.exp(self.log_scale.value) * slopes * x[:, :1]


def test_users_prior_posterior_and_discriminator_are_used_and_trained():
    posterior = keras.Sequential([keras.Input((7,)), keras.layers.Dense(5, name="mine")])
    discriminator = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, name="yours")])
    model = make(prior=Lines(), posterior=posterior, discriminator=discriminator)
    fit(model)
    assert model.prior.log_scale.numpy() != 0.0
    assert model.posterior is posterior and model.log_ratio.discriminator is discriminator
    assert len(model.log_ratio.trainable_variables) == 2
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    assert copy.get_config()["prior"]["config"] == model.get_config()["prior"]["config"]
    assert copy.num_outputs == 1


def test_layers_that_a_user_froze_stay_frozen():
    frozen = keras.layers.Dense(4, trainable=False)
    posterior = keras.Sequential([keras.Input((3,)), frozen, keras.layers.Dense(5)])
    before = frozen.kernel.numpy()
    fit(make(posterior=posterior))
    assert_array_equal(frozen.kernel, before)
    assert len(posterior.trainable_variables) == 2


def test_draws_of_the_prior_are_in_the_users_units():
    model = make(prior=Lines())
    fit(model, y=Y)
    scale = np.exp(model.prior.log_scale.numpy())
    draws = model.sample_prior_functions(X, 4000, seed=1)
    assert draws.shape == (4000, 40, 1)
    assert_allclose(draws.mean(axis=0).mean(), Y.mean(), atol=3.0)
    expected = scale * Y.std() * np.abs(X[:, 0] - X[:, 0].mean()) / X[:, 0].std()
    assert_allclose(draws.std(axis=0)[:, 0], expected, rtol=0.08)


# Bad input ---------------------------------------------------------------------------------------


class Joint(processes.Process):
    """A process without moments, whose draws are joint within a call only."""


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"prior": "gp"}, ValueError, "`prior` must be one of .*Received: prior='gp'"),
        ({"prior": 3.0}, TypeError, "`prior` must be one of .*Received: prior=3.0"),
        ({"prior": Joint()}, ValueError, "`prior` must draw functions of x.*Received: prior=Joint"),
        (
            {"num_outputs": 2},
            ValueError,
            "`prior` must have 2 outputs.*Received: prior.num_outputs=1",
        ),
        ({"posterior": "flow"}, ValueError, "`posterior` must be 'neural_sampler'. Received"),
        ({"posterior": 3}, TypeError, "`posterior` must be a Keras model.*Received: posterior=3"),
        ({"discriminator": "mlp"}, TypeError, "`discriminator` must be a Keras model.*Received"),
        ({"alpha": -0.1}, ValueError, "`alpha` .*Received: alpha=-0.1"),
        ({"alpha": 1.5}, ValueError, "`alpha` must be at most 1. Received: alpha=1.5"),
        ({"kind": "reverse"}, ValueError, "`kind` must be one of .*Received: kind='reverse'"),
        (
            {"kl_annealing": 2.0},
            ValueError,
            "`kl_annealing` must be at most 1. Received: kl_annealing=2.0",
        ),
        ({"dropout": np.nan}, ValueError, "`dropout` .*Received: dropout=nan"),
        ({"inducing_points": 0}, ValueError, "`inducing_points` must be a positive integer"),
        ({"inducing_points": [[np.nan]]}, ValueError, "`inducing_points` must be finite"),
        ({"num_draws": 1}, ValueError, "`num_draws` .*Received"),
        ({"jitter": 0.0}, ValueError, "`jitter` must be a positive.*Received: jitter=0.0"),
        ({"likelihood": "gaussian"}, TypeError, "likelihood"),
    ],
)
def test_bad_arguments_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


def narrow(inputs, outputs):
    return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(outputs)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posterior": narrow(3, 4)}, r"`posterior` must map \[S, K\] to \[S, 5\]. Received"),
        ({"discriminator": narrow(4, 1)}, r"`discriminator` must map \[S, 5\] to \[S, 1\]"),
        ({"discriminator": narrow(5, 2)}, r"`discriminator` must map \[S, 5\] to \[S, 1\]"),
        ({"inducing_points": np.zeros((3, 4))}, "`inducing_points` must have shape .*Received"),
    ],
)
def test_parts_that_do_not_fit_the_data_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fit(make(**options))


def test_unfitted_models_and_good_data():
    model = make()
    for call in (model.predict, model, model.predict_distribution):
        with pytest.raises(ValueError, match="not fitted"):
            call(X)
    for draw in (model.sample_functions, model.sample_prior_functions):
        with pytest.raises(ValueError, match="not fitted"):
            draw(X, 3)
    with pytest.raises(ValueError, match="not fitted"):
        model.inducing_inputs_in_user_units()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(make())  # no warning
        fit(make(prior=processes.GaussianProcess(tfp.math.psd_kernels.MaternThreeHalves(1.0, 0.5))))
