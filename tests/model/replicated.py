"""Models of all methods, and what they learn on one device and on the replicas of a strategy.

Imported by processes that configure their devices or hosts first.
"""

import warnings

import batteries
import diwp_models
import keras
import numpy as np
import sip_models
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_fnspace as fns

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
warnings.filterwarnings("ignore", message="The first data|After epoch|At the end of|The discrim")
warnings.filterwarnings("ignore", message="The chains|.*not positive definite")
generator = np.random.default_rng(0)
x = generator.normal(size=(40, 4))
y = np.stack([np.sin(x[:, 0]), x[:, 1] * x[:, 2]], axis=1)


def heavy_tails():
    return fns.likelihoods.StudentT(4.0, 0.3)


def network(**options):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    hidden = fns.layers.VariationalDense(5, activation="tanh", **options)(inputs)
    return inputs, fns.layers.VariationalDense(2, **options)(hidden)


def variational(estimator):
    return fns.fbnn.VariationalModel(network(estimator=estimator), num_samples=3, seed=0)


def fbnn(**options):
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(np.float64(1.0), np.float64(2.0))
    prior = fns.processes.GaussianProcess(kernel, num_outputs=2)
    return fns.fbnn.FBNNModel(network(), prior, num_samples=8, seed=0, **options)


def tagi(likelihood, width=2):
    inputs = keras.Input((4,))
    hidden = fns.tagi.BatchNormalization()(fns.tagi.Dense(6, activation="relu")(inputs))
    return fns.tagi.TAGIModel(inputs, fns.tagi.Dense(width)(hidden), likelihood=likelihood, seed=0)


def aadm():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    outputs = keras.layers.Dense(2)(keras.layers.Dense(3, activation="tanh")(inputs))
    return fns.sip.AADMModel((inputs, outputs), num_samples=5, num_noise=3, seed=0)


small = dict(inducing_points=4, num_samples=3, num_eval_samples=4, seed=0)
MODELS = {
    "function": lambda: variational("function"),
    "flipout": lambda: variational("flipout"),
    "fBNN": lambda: fbnn(measurement=fns.fbnn.Adversarial(2)),
    "closed_form": batteries.closed_form_model,
    "linearized": lambda: fbnn(divergence=fns.fbnn.Linearized(injected_noise=0.1)),
    "DIWP": lambda: diwp_models.make_model(depth=1, **small),
    "power": lambda: diwp_models.make_model(depth=1, alpha=0.5, likelihood=heavy_tails(), **small),
    "SIP": lambda: sip_models.make_model(
        # Covariances of fewer samples than inducing points are singular: they amplify rounding.
        "bnn",
        adaptive_contrast=True,
        **small | {"num_samples": 10},
    ),
    "VIP": lambda: fns.sip.VIPModel("bnn", num_prior_samples=8, likelihood=heavy_tails(), seed=0),
    "AADM": aadm,
    "TAGI": lambda: tagi(fns.likelihoods.Gaussian(0.3, trainable=True)),
    "noise": lambda: tagi(fns.likelihoods.HeteroscedasticGaussian(), 4),
    "stable": batteries.stable_model,
}


def batches(sizes):
    def rows():
        for size in sizes:
            # The rows are copied: TensorFlow writes into the views of arrays that replicas get.
            yield x[:size].copy(), y[:size].copy()

    specs = tf.TensorSpec((None, 4), "float64"), tf.TensorSpec((None, 2), "float64")
    stream = tf.data.Dataset.from_generator(rows, output_signature=specs)
    return stream.apply(tf.data.experimental.assert_cardinality(len(sizes)))


def results(name):
    model = MODELS[name]()
    # Scores of Student-t mixtures are slow, and they use the same loop as the others.
    scored = name not in ("power", "VIP")
    found, options = {}, dict(verbose=0, validation_data=(x[:3], y[:3]) if scored else None)
    if name == "stable":
        found |= model.fit(x[:33], y[:33], epochs=3, **options).history
    else:
        learns = {} if name in ("TAGI", "noise") else {"optimizer": keras.optimizers.SGD(1e-3)}
        model.compile(metrics=["mae"] if scored else None, **learns)
        found |= model.fit(x[:33], y[:33], batch_size=16, epochs=2, **options).history
        for size in (2, 1):  # every number of rows; a last batch may have fewer than replicas
            stream = batches(range(size, 41, 3))
            found |= {f"{size} {k}": v for k, v in model.fit(stream, verbose=0).history.items()}
        if name in ("function", "TAGI"):  # it traces a step again
            found["train_on_batch"] = model.train_on_batch(x[:3], y[:3])
        if name in ("function", "TAGI", "fBNN"):
            weighted = dict(sample_weight=np.linspace(0.5, 2.0, 33), batch_size=16, **options)
            history = model.fit(x[:33], y[:33], **weighted).history
            found |= {f"weighted {k}": v for k, v in history.items()}
            found["few"] = model.train_on_batch(x[:3], y[:3], sample_weight=np.arange(1.0, 4.0))
    if scored:
        found["test_on_batch"] = model.test_on_batch(x[:3], y[:3])
        found["evaluate"] = model.evaluate(x[:17], y[:17], batch_size=8, verbose=0)
        found["stream"] = model.evaluate(batches([3, 1, 8]), verbose=0)
    found |= {f"one {k}": v for k, v in model.predict_on_batch(x[:1]).items()}
    found |= {k: v for k, v in model.predict(x[:9], batch_size=4).items()}
    found |= {f"weight {i}": v for i, v in enumerate(model.get_weights())}
    return found


def compare(names, strategy):
    """Checks that models have the same weights, losses and scores under a strategy."""
    for name in names:
        expected = results(name)
        with strategy.scope():
            found = results(name)
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, 1e-6, 1e-8, err_msg=f"{name} {key}")
        print(name, "is equal", flush=True)
