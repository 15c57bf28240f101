"""The classes that the generic tests run over: a new class costs one line and skips no test."""

import warnings

import diwp_models
import fbnn_models
import keras
import sip_models
import stable_models
import tensorflow_probability as tfp

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


#: Name -> constructors of layers that follow each other, from units `[N, 6]` to `[N, D]`.
CHAINS = {
    "images": [
        lambda **o: fns.tagi.Reshape((2, 3, 1), **o),
        lambda **o: fns.tagi.Conv2D(2, 2, padding="same", activation="relu", **o),
        lambda **o: fns.tagi.BatchNormalization(**o),
        lambda **o: fns.tagi.UpSampling2D(**o),
        lambda **o: fns.tagi.MaxPooling2D(moments="exact", **o),
        lambda **o: fns.tagi.ZeroPadding2D(**o),
        lambda **o: fns.tagi.Flatten(**o),
    ],
    "volumes": [
        lambda **o: fns.tagi.Reshape((1, 2, 3, 1), **o),
        lambda **o: fns.tagi.Conv3D(2, (1, 2, 2), **o),
        lambda **o: fns.tagi.Reshape((1, 2, 2), **o),
        lambda **o: fns.tagi.Conv2DTranspose(2, 2, **o),
        lambda **o: fns.tagi.DepthwiseConv2D(2, **o),
        lambda **o: fns.tagi.AveragePooling2D((1, 2), strides=1, **o),
        lambda **o: fns.tagi.GlobalAveragePooling2D(**o),
    ],
    "sequences": [
        lambda **o: fns.tagi.Reshape((3, 2), **o),
        lambda **o: fns.tagi.Conv1D(2, 2, padding="causal", **o),
        lambda **o: fns.tagi.LayerNormalization(**o),
        lambda **o: fns.tagi.MultiHeadAttention(1, 2, **o),
        lambda **o: fns.tagi.RMSNormalization(**o),
        lambda **o: fns.tagi.LSTM(2, return_sequences=True, **o),
        lambda **o: fns.tagi.AveragePooling1D(2, **o),
        lambda **o: fns.tagi.GlobalAveragePooling1D(**o),
    ],
}

#: Layers that divide by the spread of a row, which includes the units' own uncertainty: a unit with
#: little of it may become less certain when others are known.
TAGI_LAYERS_WITH_ROW_STATISTICS = ("chain_of_sequences",)


@keras.saving.register_keras_serializable(package="batteries")
class Chain(fns.tagi.TAGILayer):
    """Several layers in sequence as one layer, for layers that take images or sequences."""

    def __init__(self, recipe, **kwargs):
        super().__init__(**kwargs)
        self.recipe = recipe
        self.parts = [make(dtype=self.dtype_policy) for make in CHAINS[recipe]]

    def build(self, input_shape):
        shape = tuple(input_shape[0] if isinstance(input_shape[0], tuple | list) else input_shape)
        for part in self.parts:
            part.build(*[shape] * self._takes(part))
            shape = part.compute_output_shape(shape)

    def call(self, inputs):
        for part in self.parts:
            inputs = part(*[inputs] * self._takes(part))
        return inputs

    def _takes(self, part):
        return 2 if isinstance(part, fns.tagi.MultiHeadAttention) else 1

    def compute_output_shape(self, shape):
        for part in self.parts:
            shape = part.compute_output_shape(shape)
        return shape

    def get_config(self):
        return {**super().get_config(), "recipe": self.recipe}


def _chain(recipe):
    return lambda: Chain(recipe)


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
    **{f"chain_of_{recipe}": _chain(recipe) for recipe in CHAINS},
}

#: Name -> constructor of a layer that merges two pairs of moments `[N, 6]`.
TAGI_MERGING_LAYERS = {
    "Add": fns.tagi.Add,
    "Concatenate": fns.tagi.Concatenate,
}


def tagi_model(
    make_layer=None, *, merging=False, num_inputs=4, num_outputs=2, jit_compile=False, **options
):
    """Makes a small TAGI model around a layer of the tables above; compiling with XLA is slower."""
    inputs = keras.Input((num_inputs,))
    hidden = fns.tagi.Dense(6, activation="relu")(inputs)
    if make_layer is not None:
        hidden = make_layer()([hidden, fns.tagi.Dense(6)(hidden)] if merging else hidden)
    outputs = fns.tagi.Dense(num_outputs)(hidden)
    options = {"likelihood": fns.likelihoods.Gaussian(scale=0.3), "seed": 0, **options}
    model = fns.tagi.TAGIModel(inputs, outputs, **options)
    model.compile(jit_compile=jit_compile)
    return model


def stable_model(num_outputs=None, **options):
    """Makes a small stable process; all seeds share one partition, so chains compile once."""
    small = {"num_chains": 2, "sweeps_per_epoch": 10, "burn_in": 1, "max_draws": 40}
    partition = hyperplanes.sampled(4, 24, seed=0)
    options = {"partition": partition, "seed": 0, **small, **options}
    return stable_models.make_model(**options)


def diwp_model(**options):
    """Makes a small deep inverse Wishart process."""
    small = {"inducing_points": 6, "depth": 1, "num_samples": 2, "num_eval_samples": 20}
    model = diwp_models.make_model(**{**small, "seed": 0, **options})
    model.compile(optimizer=keras.optimizers.Adam(0.01))  # the default depends on the first `fit`
    return model


def variational_network(num_outputs=2):
    """Makes a small network of variational layers, the same at every call."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), dtype="float64" if _is_double() else "float32")
    hidden = fns.layers.VariationalDense(5, activation="tanh")(inputs)
    return inputs, fns.layers.VariationalDense(num_outputs)(hidden)


def _is_double():
    return keras.config.dtype_policy().variable_dtype == "float64"


def variational_model(num_outputs=2, **options):
    """Makes a small network with a posterior over its weights."""
    # The default warm-up depends on the steps of the first `fit`.
    small = {"num_samples": 3, "num_eval_samples": 20, "kl_annealing_steps": 0, "seed": 0}
    model = fns.fbnn.VariationalModel(variational_network(num_outputs), **{**small, **options})
    model.compile(optimizer=keras.optimizers.Adam(0.05))
    return model


def fbnn_model(num_outputs=2, **options):
    """Makes a small network whose prior is a Gaussian process."""
    small = {"num_samples": 8, "num_eval_samples": 20, "seed": 0, "whiten": False}
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 2.0)
    prior = fns.processes.GaussianProcess(kernel, num_outputs=num_outputs)
    options = {"measurement": fns.fbnn.Box(2), **small, **options}
    model = fbnn_models.make_model(variational_network(num_outputs), prior, **options)
    model.compile(optimizer=keras.optimizers.Adam(0.05))
    return model


def closed_form_model(**options):
    """Makes a small fBNN whose functions are Gaussian, with the divergence in closed form."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), dtype="float64" if _is_double() else "float32")
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 2.0)
    features = fns.layers.RandomFourierFeatures(20, kernel, seed=0)(inputs)
    last = fns.layers.VariationalDense(2, posterior="conditioned", prior="standard")
    fixed = {"network": (inputs, last(features)), "divergence": "closed_form", "fit_output": True}
    fixed.update(prior=fns.processes.GaussianProcess(kernel, num_outputs=2), seed=0)
    model = fbnn_models.make_model(**{**fixed, "measurement": fns.fbnn.Box(2), **options})
    model.compile(optimizer=keras.optimizers.Adam(0.05))
    return model


def sip_model(**options):
    """Makes a small sparse implicit process."""
    small = {"inducing_points": 5, "num_samples": 10, "num_eval_samples": 20}
    # The default warm-up depends on the steps of the first `fit`; a small jitter amplifies
    # rounding.
    small.update(kl_annealing=0.0, jitter=1e-2, seed=0)
    model = sip_models.make_model("neural_sampler", **{**small, **options})
    model.compile(keras.optimizers.Adam(0.01))
    return model


#: Name -> constructor of a small, unfitted model with 4 inputs and 2 outputs that learns from
#: batches.
MODELS = {
    "TAGI": lambda **options: tagi_model(jit_compile="auto", **options),  # as users get it
    "TAGI_exact": lambda **options: tagi_model(update="exact", **options),
}

#: The same for models that learn by gradients of a bound. They take their start from the first
#: batches of a dataset, so a dataset does not give the same model as arrays.
MODELS_BY_GRADIENTS = {
    "DIWP": diwp_model,
    "SIP": sip_model,
    "fBNN": fbnn_model,
    "fBNN_closed_form": closed_form_model,
    "variational": variational_model,
}


def vip_model():
    """Makes a small variational implicit process."""
    model = fns.sip.VIPModel("neural_sampler", num_prior_samples=5, seed=0)
    model.compile(keras.optimizers.Adam(0.01))
    return model


def aadm_model(kind=fns.sip.AADMModel):
    """Makes a small network with an implicit posterior of its weights, or an `AVBModel`."""
    inputs = keras.Input((4,))
    outputs = keras.layers.Dense(2)(keras.layers.Dense(3, activation="tanh")(inputs))
    small = {"num_samples": 5, "num_eval_samples": 10, "num_noise": 3, "seed": 0}
    model = kind((inputs, outputs), **small)
    model.compile(keras.optimizers.Adam(0.01))
    return model


#: All models that are trained by gradients, baselines too; SIP has all parts that it trains.
ALL_BY_GRADIENTS = {
    **MODELS_BY_GRADIENTS,
    "SIP": lambda: sip_model(adaptive_contrast=True, kl_annealing=0.5),
    "VIP": vip_model,
    "AADM": aadm_model,
}

#: The same for models that learn from all rows at once and take no batches.
MODELS_OF_ALL_ROWS = {
    "stable_process": stable_model,
}

ALL_MODELS = {**MODELS, **MODELS_BY_GRADIENTS, **MODELS_OF_ALL_ROWS}

#: One of each kind, for tests of what all models share.
KINDS = [name for name in ALL_MODELS if name not in ("TAGI_exact", "fBNN_closed_form")]

#: Models whose function draws are joint within a call and not across calls.
COHERENT_WITHIN_A_CALL = (fns.diwp.DIWPModel,)

#: Models whose layers compute in half precision under `mixed_float16`.
IN_HALF_PRECISION = (fns.fbnn.VariationalModel,)


def fit(model, x, y, batch_size=None, **options):
    """Calls `fit` of any model, without `batch_size` where it takes none; hides chain warnings."""
    if not isinstance(model, fns.stable_process.StableProcessModel):
        options["batch_size"] = batch_size
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The chains")
        return model.fit(x, y, verbose=0, **options)


#: Name -> class, arguments, input shape and output shape of layers that map a tensor to a tensor.
#: Variational layers have a `kl_weight` where Keras trains them.
TENSOR_LAYERS = {
    "VariationalDense": (
        fns.layers.VariationalDense,
        {"units": 3, "kl_weight": 0.1},
        (5, 4),
        (5, 3),
    ),
    "VariationalDense_full": (
        fns.layers.VariationalDense,
        {"units": 3, "posterior": "full", "kl_weight": 0.1},
        (5, 4),
        (5, 3),
    ),
    "VariationalDense_flipout": (
        fns.layers.VariationalDense,
        {"units": 3, "estimator": "flipout", "kl_weight": 0.1},
        (5, 4),
        (5, 3),
    ),
    "VariationalDense_of_sequences": (
        fns.layers.VariationalDense,
        {"units": 3, "row_rank": 2, "kl_weight": 0.1},
        (5, 6, 4),
        (5, 6, 3),
    ),
    "VariationalConv1D": (
        fns.layers.VariationalConv1D,
        {"filters": 3, "kernel_size": 2, "kl_weight": 0.1},
        (5, 6, 2),
        (5, 5, 3),
    ),
    "VariationalConv2D": (
        fns.layers.VariationalConv2D,
        {"filters": 3, "kernel_size": 2, "padding": "same", "kl_weight": 0.1},
        (5, 6, 4, 2),
        (5, 6, 4, 3),
    ),
    "VariationalEmbedding": (
        fns.layers.VariationalEmbedding,
        {"input_dim": 5, "output_dim": 3, "kl_weight": 0.1},
        (5, 4),
        (5, 4, 3),
    ),
    "RandomFourierFeatures": (
        fns.layers.RandomFourierFeatures,
        {"units": 7, "kernel": tfp.math.psd_kernels.ExponentiatedQuadratic(), "seed": 0},
        (5, 4),
        (5, 7),
    ),
    "RepeatSamples": (fns.layers.RepeatSamples, {}, (5, 4), (None, 5, 4)),
    **{
        f"PerSample_{kind}": (fns.layers.PerSample, {"layer": make()}, shape, output)
        for kind, make, shape, output in (
            ("MaxPooling2D", keras.layers.MaxPooling2D, (2, 3, 8, 8, 3), (2, 3, 4, 4, 3)),
            ("Flatten", keras.layers.Flatten, (2, 3, 8, 4), (2, 3, 32)),
            ("Dense", lambda: keras.layers.Dense(5), (2, 3, 4), (2, 3, 5)),
            ("LSTM", lambda: keras.layers.LSTM(5), (2, 3, 4, 2), (2, 3, 5)),
            ("Dropout", lambda: keras.layers.Dropout(0.5), (2, 3, 4), (2, 3, 4)),
        )
    },
    "TAGI_Activation": (fns.tagi.Activation, {"activation": "relu"}, (5, 4), (5, 4)),
    "TAGI_AveragePooling2D": (fns.tagi.AveragePooling2D, {}, (5, 4, 6, 2), (5, 2, 3, 2)),
    "TAGI_AveragePooling1D": (fns.tagi.AveragePooling1D, {}, (5, 4, 2), (5, 2, 2)),
    "TAGI_Flatten": (fns.tagi.Flatten, {}, (5, 4, 2), (5, 8)),
    "TAGI_GlobalAveragePooling1D": (fns.tagi.GlobalAveragePooling1D, {}, (5, 4, 2), (5, 2)),
    "TAGI_GlobalAveragePooling2D": (fns.tagi.GlobalAveragePooling2D, {}, (5, 4, 3, 2), (5, 2)),
    "TAGI_MaxPooling2D": (fns.tagi.MaxPooling2D, {}, (5, 4, 6, 2), (5, 2, 3, 2)),
    "TAGI_Reshape": (fns.tagi.Reshape, {"target_shape": (2, 4)}, (5, 8), (5, 2, 4)),
    "TAGI_UpSampling2D": (fns.tagi.UpSampling2D, {}, (5, 4, 6, 2), (5, 8, 12, 2)),
    "TAGI_ZeroPadding2D": (fns.tagi.ZeroPadding2D, {}, (5, 4, 6, 2), (5, 6, 8, 2)),
}
