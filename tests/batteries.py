"""What the generic tests run over: a new class costs one line here and cannot skip a test."""

import warnings

import keras

import tfp_fnspace as fns
from tfp_fnspace.methods.stable_process import hyperplanes


@keras.saving.register_keras_serializable(package="batteries")
class Scale(fns.tagi.BilinearLayer):
    """A user's linear layer: every input has its own weight."""

    def create_parameters(self, input_shape):
        self.add_parameters((input_shape[-1],), fan_in=1, fan_out=1)

    def linear_map(self, inputs, kernel):
        return inputs * kernel


@keras.saving.register_keras_serializable(package="batteries")
class Square(fns.tagi.ElementwiseLayer):
    """A user's activation with exact moments."""

    def function(self, z):
        return z**2

    def moments(self, mean, variance):
        return mean**2 + variance, 2 * variance**2 + 4 * variance * mean**2, 2 * mean


def _activation(name, moments="linearized"):
    return lambda: fns.tagi.Activation(name, moments=moments)


#: Name -> constructor of a layer that takes one pair of moments `[N, 6]`.
TAGI_LAYERS = {
    "Dense": lambda: fns.tagi.Dense(3),
    "Dense_relu": lambda: fns.tagi.Dense(3, activation="relu"),
    "Dense_without_bias": lambda: fns.tagi.Dense(3, use_bias=False, prior="he", gain=0.5),
    "Dense_exact_tanh": lambda: fns.tagi.Dense(
        3, activation=fns.tagi.Activation("tanh", moments="exact")
    ),
    "linear": _activation("linear"),
    "relu": _activation("relu"),
    "leaky_relu": _activation("leaky_relu"),
    "tanh": _activation("tanh"),
    "sigmoid": _activation("sigmoid"),
    "softplus": _activation("softplus"),
    "exact_relu": _activation("relu", "exact"),
    "exact_tanh": _activation("tanh", "exact"),
    "exact_sigmoid": _activation("sigmoid", "exact"),
    "Flatten": fns.tagi.Flatten,
    "Reshape": lambda: fns.tagi.Reshape((6,)),
    "user_bilinear": Scale,
    "user_elementwise": Square,
}

#: Name -> constructor of a layer that merges two pairs of moments `[N, 6]`.
TAGI_MERGING_LAYERS = {
    "Add": fns.tagi.Add,
    "Concatenate": fns.tagi.Concatenate,
}


def tagi_model(make_layer=None, *, merging=False, num_inputs=4, num_outputs=2, **options):
    """A small TAGI model around one layer of the tables above."""
    inputs = keras.Input((num_inputs,))
    hidden = fns.tagi.Dense(6, activation="relu")(inputs)
    if make_layer is not None:
        hidden = make_layer()([hidden, fns.tagi.Dense(6)(hidden)] if merging else hidden)
    outputs = fns.tagi.Dense(num_outputs)(hidden)
    options = {"likelihood": fns.likelihoods.Gaussian(scale=0.3), "seed": 0, **options}
    return fns.tagi.TAGIModel(inputs, outputs, **options)


def stable_model(**options):
    """A small stable process; one partition for all seeds, whose chains are compiled once."""
    small = {"num_chains": 2, "sweeps_per_epoch": 10, "burn_in": 1, "max_draws": 40}
    partition = hyperplanes.sampled(4, 24, seed=0)
    options = {"partition": partition, "seed": 0, **small, **options}
    return fns.stable_process.StableProcessModel(**options)


def diwp_model(**options):
    """A small deep inverse Wishart process."""
    small = {"inducing_points": 6, "depth": 1, "num_samples": 2, "num_eval_samples": 20}
    model = fns.diwp.DIWPModel(**{**small, "seed": 0, **options})
    model.compile(optimizer=keras.optimizers.Adam(0.01))  # its own depends on the first `fit`
    return model


#: Name -> constructor of a small, unfitted model with 4 inputs and 2 outputs that learns from
#: batches.
MODELS = {
    "TAGI": tagi_model,
    "TAGI_exact": lambda **options: tagi_model(update="exact", **options),
}

#: The same for models that learn by gradients of a bound; what they take from the first data is
#: from the first batches of a dataset, so that datasets are not the same as arrays.
MODELS_BY_GRADIENTS = {
    "DIWP": diwp_model,
}

#: The same for models that learn from all rows at once and take no batches.
MODELS_OF_ALL_ROWS = {
    "stable_process": stable_model,
}

ALL_MODELS = {**MODELS, **MODELS_BY_GRADIENTS, **MODELS_OF_ALL_ROWS}

#: Models whose function draws are joint within a call and not across calls.
COHERENT_WITHIN_A_CALL = (fns.diwp.DIWPModel,)


def fit(model, x, y, batch_size=None, **options):
    """`fit` of any model, without `batch_size` where there are no batches, and without noise."""
    if not isinstance(model, fns.stable_process.StableProcessModel):
        options["batch_size"] = batch_size
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The chains")
        return model.fit(x, y, verbose=0, **options)
