"""Frozen SavedModels, and programs of ONNX and LiteRT that their own runtimes compute."""

import functools
import logging
import pathlib
import re

import batteries
import keras
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp
from export_runtimes import EACH_RUNTIME, ENDINGS, RUNTIMES

import tfp_fnspace as fns
from tfp_fnspace import calibration, stacking, warping
from tfp_fnspace.export import elementary, graphs

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1).astype("float32")
LABELS = np.argmax(Y, axis=1)


def classifier(make):
    return make(likelihood=fns.likelihoods.Categorical())


def stacked():
    return stacking.StackedModel([fitted("TAGI"), fitted("variational")], [0.4, 0.6])


def recalibrated(member):
    return calibration.recalibrate(fitted(member), X, Y)


def warped(member):
    return warping.WarpedModel(fitted(member), [-1.0, 0.2], [0.3, 1.0], [1.0, 1.5])


#: Models around models that are fitted.
AROUND = {
    "stacked": stacked,
    "recalibrated": lambda: recalibrated("TAGI"),
    "recalibrated_mixture": lambda: recalibrated("stacked"),
    "warped": lambda: warped("TAGI"),
    "warped_mixture": lambda: warped("stacked"),
    "warped_DIWP": lambda: warped("DIWP"),
}

#: Models of all methods, and of what all share.
MODELS = {
    **batteries.ALL_MODELS,
    "TAGI": batteries.tagi_model,
    "VIP": batteries.vip_model,
    "AADM": batteries.aadm_model,
    "TAGI_classes": lambda: classifier(batteries.tagi_model),
    "variational_classes": lambda: classifier(batteries.variational_model),
    **AROUND,
}
#: Closed form, factors and draws; the others are slow.
KEPT = ("TAGI", "SIP", "variational_classes")
EACH = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in KEPT else pytest.mark.slow) for n in MODELS]
)


@functools.cache
def fitted(name):
    model = MODELS[name]()
    if name not in AROUND:
        batteries.fit(model, X, LABELS if "classes" in name else Y, epochs=2)
    return model


def in_stddevs(name, outputs, expected):
    """Returns the largest error, in standard deviations of an observation if they are served."""
    unit = expected.get("stddev", np.ones(()))
    found = 0.0
    for key, values in expected.items():
        scale = unit[..., np.newaxis] if values.ndim > unit.ndim > 0 else unit
        found = max(found, np.max(np.abs(np.asarray(outputs[key]) - values) / scale))
    assert set(outputs) == set(expected), name
    return found


@functools.cache
def reference(name):
    """Returns what TensorFlow computes as a graph, and how far that is from its eager result.

    Where a matrix is nearly singular, as in SIP, its factor amplifies rounding: the two differ by
    more than 1e-5 standard deviations, and no other program can be nearer to both.
    """
    return in_graph_and_eager(fitted(name))


def in_graph_and_eager(model):
    serve, x = model.served_outputs, tf.constant(X)
    signature = [tf.TensorSpec([None, 4], tf.float32)]
    graph, eager = tf.function(serve, input_signature=signature, autograph=False)(x), serve(x)
    graph, eager = ({key: v.numpy() for key, v in each.items()} for each in (graph, eager))
    return graph, in_stddevs(model.name, eager, graph)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Returns a function from names to loaded SavedModels, and what loading has said."""
    said, folder = [], tmp_path_factory.mktemp("served")
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())

    @functools.cache
    def load(name):
        fitted(name).export(folder / name, num_samples=3)
        tf.get_logger().addHandler(handler)
        served = tf.saved_model.load(folder / name)
        tf.get_logger().removeHandler(handler)
        return served, list(said)

    return load


def kinds(served):
    return graphs.kinds_of(served.signatures["serve"])


@EACH
@pytest.mark.slow
def test_what_is_served_has_no_random_operation(name, loaded):
    served, said = loaded(name)
    assert not [kind for kind in kinds(served) if graphs.RANDOM.search(kind)]
    assert not [message for message in said if "gradients" in message]
    outputs = {key: v.numpy() for key, v in served.serve(X).items()}
    expected = fitted(name).predict(X)
    assert in_stddevs(name, {key: outputs[key] for key in expected}, expected) < 1e-5


@EACH
@EACH_RUNTIME
@pytest.mark.slow
def test_a_program_gives_what_tensorflow_gives(kind, name, tmp_path):
    model, path = fitted(name), tmp_path / f"m.{ENDINGS[kind]}"
    model.export(path, format=kind)
    whole, least = reference(name)
    for rows in (1, 7):
        outputs = RUNTIMES[kind](path, x=X[:rows])
        expected = {key: values[:rows] for key, values in whole.items()}
        assert in_stddevs(name, outputs, expected) < max(1e-5, 3.0 * least)
    bad = X[:4].copy()
    bad[1, 0], bad[2, 3] = np.nan, np.inf
    for values in RUNTIMES[kind](path, x=bad).values():
        assert np.all(np.isnan(values[1:3])) and np.all(np.isfinite(values[[0, 3]]))


# Rows in batches, and other kinds of inputs

#: Models whose functions of a call need all rows at once.
JOINT = ("DIWP", "warped_DIWP")


@EACH
def test_rows_in_two_batches_have_the_same_functions(name, loaded):
    model, (served, _) = fitted(name), loaded(name)
    seed = tf.constant([3, 4])
    whole = served.sample(X, seed)
    parts = tf.concat([served.sample(X[:7], seed), served.sample(X[7:], seed)], axis=1)
    error = np.max(np.abs(parts - whole)) / np.std(whole)
    assert model.draws_jointly == (name in JOINT)
    assert error > 0.01 if name in JOINT else error < 1e-4


@pytest.mark.parametrize("name", ["TAGI", pytest.param("stable_process", marks=pytest.mark.slow)])
def test_inputs_in_float64_keep_their_digits(name, tmp_path):
    x = 1e8 + np.float64(X)
    model = MODELS[name]()
    batteries.fit(model, x, Y, epochs=2)
    expected, errors = model.predict(x), []
    for dtype in ("float32", "float64"):
        model.export(tmp_path / dtype, input_signature=tf.TensorSpec([None, 4], dtype))
        served = tf.saved_model.load(tmp_path / dtype)
        outputs = served.serve(tf.constant(x, dtype))
        outputs = {key: outputs[key].numpy() for key in expected}
        errors.append(in_stddevs(name, outputs, expected))
    assert errors[0] > 0.1 and errors[1] < 1e-5


def test_other_numbers_and_a_fixed_number_of_rows(tmp_path):
    model = fitted("TAGI")
    x = np.arange(12, dtype="uint8").reshape(3, 4) % 3
    model.export(tmp_path / "served", input_signature=[keras.InputSpec("uint8", (3, 4))])
    served = tf.saved_model.load(tmp_path / "served")
    (spec,) = served.signatures["serving_default"].structured_input_signature[1].values()
    assert (spec.shape.as_list(), spec.dtype, spec.name) == ([3, 4], tf.uint8, "x")
    np.testing.assert_allclose(served.serve(x)["mean"], model.predict(x)["mean"], rtol=1e-5)


@EACH_RUNTIME
def test_programs_take_a_signature(kind, tmp_path):
    model, path = fitted("TAGI"), tmp_path / f"m.{ENDINGS[kind]}"
    model.export(path, format=kind, input_signature=tf.TensorSpec([3, 4], tf.float64))
    outputs = RUNTIMES[kind](path, x=np.float64(X[:3]))
    expected = model.predict(X[:3])
    assert in_stddevs("TAGI", {key: outputs[key] for key in expected}, expected) < 1e-5


@pytest.mark.parametrize(
    "signature",
    [
        tf.TensorSpec([None, 5], tf.float32),
        tf.TensorSpec([None, 4, 1], tf.float32),
        tf.TensorSpec([None, 4], tf.string),
        [tf.TensorSpec([None, 4], tf.float32)] * 2,
        keras.InputSpec(ndim=2),
        (None, 4),
    ],
)
def test_a_signature_must_suit_the_inputs(signature, tmp_path):
    sentence = r"`input_signature` must have a spec .* like \(None, 4\) float32.*Received: input_"
    with pytest.raises(ValueError, match=sentence):
        fitted("TAGI").export(tmp_path / "served", input_signature=signature)


# What the exports are made of


def test_elementary_functions():
    """Against SciPy, in float32."""
    x = np.concatenate([-np.logspace(-6, 1, 200), [0.0], np.logspace(-6, 1, 200)])
    x = x.astype("float32")
    cases = {
        elementary.erf: scipy.special.erf,
        elementary.expm1: np.expm1,
        elementary.softplus: lambda x: np.logaddexp(0.0, x),
        elementary.sinh: np.sinh,
        elementary.asinh: np.arcsinh,
    }
    for ours, theirs in cases.items():
        np.testing.assert_allclose(ours(tf.constant(x)), theirs(np.float64(x)), rtol=2e-6)
    above = x[x > -0.9]
    ours = elementary.log1p(tf.constant(above))
    np.testing.assert_allclose(ours, np.log1p(np.float64(above)), rtol=2e-6)
    # Its tail is exp(-x^2), whose relative error grows with x^2.
    ours = elementary.erfc(tf.constant(x))
    np.testing.assert_allclose(ours, scipy.special.erfc(np.float64(x)), rtol=1e-5, atol=1e-37)


def _with_draws(x):
    """Returns sums of draws; one is inside a loop, one has the shape of a row."""
    shared = tf.random.stateless_normal([tf.shape(x)[1]], (1, 2))
    steps = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, v: (i + 1, v + tf.random.stateless_normal([], tf.stack([i, 7]))),
        (0, tf.constant(0.0)),
    )
    branch = tf.cond(tf.size(x) > 3, lambda: 2.0 * x, lambda: x)
    return {"a": branch + shared, "b": steps[1] * x}


SPECS = [tf.TensorSpec([None, 2], tf.float32)]


def test_draws_are_frozen_and_the_function_is_the_same():
    frozen = tf.function(graphs.frozen(_with_draws, SPECS), input_signature=SPECS)
    used = graphs.kinds_of(frozen.get_concrete_function())
    assert not [kind for kind in used if graphs.RANDOM.search(kind)]
    for rows in (1, 5):
        x = tf.constant(X[:rows, :2])
        for key, values in _with_draws(x).items():
            np.testing.assert_allclose(frozen(x)[key], values, rtol=1e-6)


def test_draws_of_each_row_are_not_frozen():
    def of_rows(x):
        return x + tf.random.stateless_normal(tf.shape(x), (1, 2))

    frozen = tf.function(graphs.frozen(of_rows, SPECS), input_signature=SPECS)
    x = tf.constant(X[:5, :2])
    np.testing.assert_allclose(frozen(x), of_rows(x), rtol=1e-6)


# Each likelihood

#: Likelihood -> the operation that both runtimes lack.
REFUSED = {
    "Beta": "Betainc",
    "Gamma": "Igammac",
    "NegativeBinomial": "Betainc",
    "Poisson": "Igammac",
    "StudentT": "Betainc",
}
POSITIVE, BINS = np.exp(Y), np.digitize(Y[:, 0], [-0.3, 0.3])
INTERVALS = np.hstack([Y - 0.2, Y + 0.2])
#: Likelihood -> constructor, number of outputs, targets; not that of trees, which is TAGI's.
LIKELIHOODS = {
    "Bernoulli": (fns.likelihoods.Bernoulli, 2, np.float32(Y > 0.0)),
    "Beta": (fns.likelihoods.Beta, 2, 1.0 / (1.0 + np.exp(-Y))),
    "Categorical": (fns.likelihoods.Categorical, 2, LABELS),
    "CensoredGaussian": (lambda: fns.likelihoods.CensoredGaussian(high=0.5), 2, np.minimum(Y, 0.5)),
    "CensoredLogNormal": (
        lambda: fns.likelihoods.CensoredLogNormal(high=2.0),
        2,
        np.minimum(POSITIVE, 2.0),
    ),
    "Gamma": (fns.likelihoods.Gamma, 2, POSITIVE),
    "Gaussian": (fns.likelihoods.Gaussian, 2, Y),
    "HeteroscedasticGaussian": (fns.likelihoods.HeteroscedasticGaussian, 4, Y),
    "IntervalCensoredGaussian": (fns.likelihoods.IntervalCensoredGaussian, 2, INTERVALS),
    "IntervalCensoredLogNormal": (fns.likelihoods.IntervalCensoredLogNormal, 2, np.exp(INTERVALS)),
    "LogNormal": (fns.likelihoods.LogNormal, 2, POSITIVE),
    "NegativeBinomial": (fns.likelihoods.NegativeBinomial, 2, np.floor(2.0 * POSITIVE)),
    "Ordinal": (lambda: fns.likelihoods.Ordinal(3), 1, BINS),
    "Poisson": (fns.likelihoods.Poisson, 2, np.floor(2.0 * POSITIVE)),
    "Remax": (fns.likelihoods.Remax, 2, LABELS),
    "StudentT": (lambda: fns.likelihoods.StudentT(4.0, scale=0.3), 2, Y),
}
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "howto" / "export.md"


@functools.cache
def under(name):
    """Returns a model under a likelihood, and its reference."""
    make, num_outputs, targets = LIKELIHOODS[name]
    model = batteries.variational_model(num_outputs, likelihood=make())
    model.adapt(X, targets)
    return model, *in_graph_and_eager(model)


@pytest.mark.slow
@EACH_RUNTIME
@pytest.mark.parametrize("name", [n for n in LIKELIHOODS if n not in REFUSED])
def test_a_program_under_a_likelihood_gives_what_tensorflow_gives(kind, name, tmp_path):
    model, expected, least = under(name)
    path = tmp_path / f"m.{ENDINGS[kind]}"
    model.export(path, format=kind)
    assert in_stddevs(name, RUNTIMES[kind](path, x=X), expected) < max(1e-5, 3.0 * least)


@pytest.mark.slow
@EACH_RUNTIME
@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_counterpart_is_named(kind, name, tmp_path):
    model, path = under(name)[0], tmp_path / f"m.{ENDINGS[kind]}"
    sentence = (
        rf"VariationalModel must be a SavedModel: {kind} has no .*\b{REFUSED[name]}\b.* "
        "Received: format="
    )
    with pytest.raises(NotImplementedError, match=sentence):
        model.export(path, format=kind)
    assert not path.exists()


def test_the_page_has_what_is_true_of_each_likelihood():
    table = PAGE.read_text(encoding="utf-8").split("| likelihood |")[1].split("\n\n")[0]
    found = {}
    for row in table.splitlines()[2:]:
        names, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        found.update(dict.fromkeys(re.findall(r"`(\w+)`", names), cells))
    expected = {
        name: [f"no (`{REFUSED[name]}`)" if name in REFUSED else "yes"] * 2 for name in LIKELIHOODS
    }
    assert found == expected


# Errors


def test_the_ending_must_be_that_of_the_format(tmp_path):
    with pytest.raises(ValueError, match=r"`filepath` must end in \.tflite .*Received: filepath="):
        fitted("TAGI").export(tmp_path / "m.onnx", format="litert")


@pytest.mark.slow
def test_a_prior_with_moments_has_no_counterpart(tmp_path):
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 2.0)
    model = fns.sip.SIPModel(fns.processes.GaussianProcess(kernel, num_outputs=2), seed=0)
    batteries.fit(model, X, Y)
    with pytest.raises(NotImplementedError, match="litert has no counterpart of triangular"):
        model.export(tmp_path / "m.tflite", format="litert")
