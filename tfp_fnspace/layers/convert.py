"""Conversion of deterministic networks into variational ones."""

from typing import Any

import keras
import numpy as np

from tfp_fnspace.layers.convolutions import VariationalConv1D, VariationalConv2D
from tfp_fnspace.layers.dense import VariationalDense
from tfp_fnspace.layers.embedding import VariationalEmbedding
from tfp_fnspace.layers.per_sample import PerSample, RepeatSamples
from tfp_fnspace.typing import Network

#: Initial standard deviation of a posterior, as a multiple of the root mean square of the kernel.
_SPREAD = 0.01

_ENTRYWISE = (
    keras.layers.Activation,
    keras.layers.ELU,
    keras.layers.Identity,
    keras.layers.LeakyReLU,
    keras.layers.ReLU,
    keras.layers.Rescaling,
)

_PER_SAMPLE = (
    keras.layers.AveragePooling1D,
    keras.layers.AveragePooling2D,
    keras.layers.Cropping1D,
    keras.layers.Cropping2D,
    keras.layers.Flatten,
    keras.layers.GlobalAveragePooling1D,
    keras.layers.GlobalAveragePooling2D,
    keras.layers.GlobalMaxPooling1D,
    keras.layers.GlobalMaxPooling2D,
    keras.layers.MaxPooling1D,
    keras.layers.MaxPooling2D,
    keras.layers.Permute,
    keras.layers.RepeatVector,
    keras.layers.Reshape,
    keras.layers.Softmax,
    keras.layers.UpSampling1D,
    keras.layers.UpSampling2D,
    keras.layers.ZeroPadding1D,
    keras.layers.ZeroPadding2D,
)

_MERGING = (
    keras.layers.Add,
    keras.layers.Average,
    keras.layers.Concatenate,
    keras.layers.Maximum,
    keras.layers.Minimum,
    keras.layers.Multiply,
    keras.layers.Subtract,
)

#: Layers of training noise, which the posterior replaces.
_LEFT_OUT = (
    keras.layers.Dropout,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
)


def from_keras(model: Network, **options: Any) -> Network:
    """Returns a variational network with its posterior means at the weights of a deterministic one.

    It computes the same function apart from a little noise: the posterior of a layer starts with
    standard deviations of a hundredth of the root mean square of its kernel. The prior is around
    the given weights too (`"start"`, see `VariationalLayer`), so that training need not unlearn
    them (empirical Bayes, as in MOPED). `VariationalModel` and `FBNNModel` know that the inputs and
    outputs of the network are in the user's units (`in_users_units`). Their likelihoods of classes
    take logits, so a network for them has no softmax at its end.

    `Dense`, `Conv1D`, `Conv2D` and `Embedding` become their variational counterparts. Layers
    without weights are kept and applied to each draw. Dropout layers, noise layers and regularizers
    are left out: the posterior and the prior replace them. A layer that is used several times stays
    one layer. Masks of `Masking` and of `Embedding(mask_zero=True)` are passed on to later layers,
    as in Keras; a layer that ignores masks refuses them.

    Args:
        model: Built `keras.Sequential` or functional model.
        **options: Options of the variational layers: `posterior`, `prior`, `bias_prior`,
            `estimator`, `kl_weight`, see `VariationalLayer`. A layer without the given `estimator`
            uses `"function"`. A `posterior` that is an object keeps its initial scale.

    Returns:
        Functional model from the same inputs `[N, ...]` to `[S, N, ...]`. The new layers have the
        names of the old ones. With a `kl_weight` it is a plain Keras model to `[N, ...]` like the
        old one, for `compile` and `fit`.

    Raises:
        TypeError: If `model` is not a built Sequential or functional model.
        ValueError: If a layer, or an option of a layer, has no counterpart.

    Example:
        >>> network = from_keras(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))

    References:
        Krishnan, Subedar and Tickoo (2020), "Specifying weight priors in Bayesian deep neural
        networks with empirical Bayes" (MOPED), AAAI.
    """
    known = isinstance(model, keras.Model) and getattr(model, "inputs", None)
    if not known or not model.built:
        raise TypeError(
            "`model` must be a built Sequential or functional Keras model. "
            f"Received: model={model!r}"
        )
    network = _Conversion({"prior": "start", **options}).network(model)
    network.in_users_units = True
    return network


class _Conversion:
    """State of a conversion: the new layers, and which tensors have an axis of draws."""

    def __init__(self, options):
        self.options = options
        self.layers = {}
        self.pending = []
        self.drawn = {}

    def network(self, model):
        if isinstance(model, keras.Sequential):
            (old,) = model.inputs
            tensor = keras.Input(old.shape[1:], dtype=old.dtype, name=old.name)
            network = keras.Model(tensor, self.sequence(model, tensor), name=model.name)
        else:
            network = keras.models.clone_model(
                model, clone_function=lambda layer: layer, call_function=self.call
            )
        for layer, means in self.pending:
            layer.start_at(**means)
        return network

    def sequence(self, model, tensor):
        for layer in model.layers:
            tensor = self.call(layer, tensor)
        return tensor

    def call(self, layer, *args, **kwargs):
        """Returns the output of the new layer that replaces an old one."""
        if isinstance(layer, _LEFT_OUT):
            return args[0]
        if isinstance(layer, keras.Sequential):
            return self.sequence(layer, args[0])
        if isinstance(layer, keras.layers.InputLayer):
            return args[0]
        several = isinstance(args[0], list | tuple)
        inputs = list(args[0]) if several else [args[0]]
        drawn = any(id(tensor) in self.drawn for tensor in inputs)
        if not drawn and not isinstance(layer, keras.layers.Layer):
            return layer(*args, **kwargs)  # a `keras.ops` operation, such as one that makes a mask
        if drawn:
            inputs = [self.with_draws(tensor) for tensor in inputs]
        new = self.converted(layer, inputs[0], drawn)
        mask = kwargs.get("mask")
        options = {} if mask is None else {"mask": mask}
        output = new(inputs if several else inputs[0], **options)
        if (drawn or layer.weights) and self.options.get("kl_weight") is None:
            self.drawn[id(output)] = output  # kept alive, so that no other tensor gets its id
        return output

    def with_draws(self, tensor):
        if id(tensor) in self.drawn:
            return tensor
        repeated = RepeatSamples()(tensor)
        self.drawn[id(repeated)] = repeated
        return repeated

    def converted(self, layer, tensor, drawn):
        """Returns the new layer, which is made when the old one is first met."""
        key = id(layer), drawn and not layer.weights
        if key not in self.layers:
            self.layers[key] = self.new_layer(layer, len(tensor.shape) - 1 - drawn, drawn)
        return self.layers[key]

    def new_layer(self, layer, row_rank, drawn):
        kind = type(layer)
        if kind in _VARIATIONAL:
            cls, arguments, part = _VARIATIONAL[kind]
            new = cls(**{**arguments(layer, row_rank), **self.options_of(cls), "name": layer.name})
            means = {part: layer.weights[0].numpy()}
            self.scale_start(new, means[part])
            if len(layer.weights) > 1:
                means["bias"] = layer.weights[1].numpy()
            self.pending.append((new, means))
            return new
        if kind is keras.layers.Masking and drawn:
            raise ValueError(
                "Which steps of a row count must not depend on the draws: `Masking` must come "
                f"before the first random layer. Received: layer {layer.name!r} behind one"
            )
        if kind in (keras.layers.Masking, *_ENTRYWISE, *_PER_SAMPLE, *_MERGING):
            new = kind.from_config(layer.get_config())
            return PerSample(new) if drawn and kind not in _ENTRYWISE else new
        raise ValueError(
            "A layer must be one of Dense, Conv1D, Conv2D, Embedding, or a layer without weights "
            "that acts on each row by itself (activations, pooling, reshaping, merging, dropout). "
            f"Received: layer {layer.name!r} of type {kind.__name__}"
        )

    def scale_start(self, layer, kernel):
        """Sets the initial spread of a posterior by the size of the weights."""
        size = float(np.sqrt(np.mean(np.square(kernel))))
        if size and isinstance(self.options.get("posterior", ""), str):
            layer.posterior.initial_scale = _SPREAD * size * layer.fans(kernel.shape)[0] ** 0.5

    def options_of(self, cls):
        options = dict(self.options)
        if options.get("estimator") not in cls.estimators:
            options.pop("estimator", None)
        return options


def _refuse(layer, name, value, allowed):
    if value not in allowed:
        raise ValueError(
            f"A layer can be converted only if its `{name}` is one of {allowed}. "
            f"Received: layer {layer.name!r} with {name}={value!r}"
        )


def _dense(layer, row_rank):
    return {
        "units": layer.units,
        "activation": layer.activation,
        "use_bias": layer.use_bias,
        "row_rank": row_rank,
        "dtype": layer.dtype_policy,
    }


def _convolution(layer, row_rank):
    _refuse(layer, "padding", layer.padding, ("valid", "same"))
    _refuse(layer, "groups", layer.groups, (1,))
    _refuse(layer, "data_format", layer.data_format, ("channels_last",))
    names = ("filters", "kernel_size", "strides", "padding", "dilation_rate")
    names += ("activation", "use_bias")
    return {**{name: getattr(layer, name) for name in names}, "dtype": layer.dtype_policy}


def _embedding(layer, row_rank):
    return {
        "input_dim": layer.input_dim,
        "output_dim": layer.output_dim,
        "mask_zero": layer.mask_zero,
        "dtype": layer.dtype_policy,
    }


#: Class of a layer -> its counterpart, a function that gives the counterpart's arguments, and the
#: name of the part that is the first weight.
_VARIATIONAL = {
    keras.layers.Dense: (VariationalDense, _dense, "kernel"),
    keras.layers.Conv1D: (VariationalConv1D, _convolution, "kernel"),
    keras.layers.Conv2D: (VariationalConv2D, _convolution, "kernel"),
    keras.layers.Embedding: (VariationalEmbedding, _embedding, "embeddings"),
}
