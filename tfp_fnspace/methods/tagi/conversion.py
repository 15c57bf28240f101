"""Conversion of deterministic Keras models to TAGI models."""

import inspect
from typing import Any

import keras

from tfp_fnspace import likelihoods
from tfp_fnspace.boundary.arguments import checked_positive
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.methods.tagi import graph, layers
from tfp_fnspace.methods.tagi.layers.activation import FUNCTIONS
from tfp_fnspace.methods.tagi.layers.base import TAGILayer
from tfp_fnspace.methods.tagi.model import TAGIModel
from tfp_fnspace.typing import Network

_GEOMETRY = ("kernel_size", "strides", "padding", "dilation_rate", "use_bias")
_POOLING = ("pool_size", "strides", "padding")
_RECURRENT = ("units", "use_bias", "unit_forget_bias", "return_sequences", "go_backwards")

#: Name of a layer, here and in Keras -> the arguments that are copied.
_ARGUMENTS = {
    "Add": (),
    "AveragePooling1D": _POOLING,
    "AveragePooling2D": _POOLING,
    "BatchNormalization": ("axis", "momentum", "epsilon", "center", "scale"),
    "Concatenate": ("axis",),
    "Conv1D": ("filters", "groups", *_GEOMETRY),
    "Conv2D": ("filters", "groups", *_GEOMETRY),
    "Conv2DTranspose": ("filters", "output_padding", *_GEOMETRY),
    "Conv3D": ("filters", "groups", *_GEOMETRY),
    "Dense": ("units", "use_bias"),
    "DepthwiseConv2D": ("depth_multiplier", *_GEOMETRY),
    "Embedding": ("input_dim", "output_dim", "mask_zero"),
    "Flatten": (),
    "GlobalAveragePooling1D": ("keepdims",),
    "GlobalAveragePooling2D": ("keepdims",),
    "LSTM": (*_RECURRENT, "stateful"),
    "LayerNormalization": ("axis", "epsilon", "center", "scale"),
    "MaxPooling2D": _POOLING,
    "MultiHeadAttention": ("num_heads", "key_dim", "value_dim", "use_bias"),
    "RMSNormalization": ("axis", "epsilon"),
    "Reshape": ("target_shape",),
    "UpSampling2D": ("size", "interpolation"),
    "ZeroPadding2D": ("padding",),
}

#: Arguments that must have one of these values, if a layer has them.
_REQUIRED = {
    "data_format": ("channels_last",),
    "return_state": (False,),
    "time_major": (False,),
    "rms_scaling": (False,),
    "attention_axes": (None, (1,), [1]),
}

#: Arguments of calls that Keras itself passes.
_OF_KERAS = ("training", "mask", "query_mask", "value_mask", "key_mask")

#: Layers that do nothing in prediction.
_NOTHING = (
    "ActivityRegularization",
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "GaussianNoise",
    "Identity",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
)

#: Elementwise layers and functions of Keras, which are linearised.
_ELEMENTWISE_LAYERS = ("ELU", "LeakyReLU", "ReLU")
_ELEMENTWISE = (
    "celu",
    "elu",
    "exponential",
    "gelu",
    "hard_sigmoid",
    "hard_silu",
    "log_sigmoid",
    "mish",
    "relu6",
    "selu",
    "silu",
    "softsign",
    "tanh_shrink",
)


def from_keras(
    model: Network,
    prior_variance: float | dict[str, float] | None = None,
    likelihood: Likelihood | None = None,
    **options: Any,
) -> TAGIModel:
    """Converts a deterministic Keras model to a TAGI model that starts from its weights.

    Every layer becomes the TAGI layer of the same name, with the weights as prior means. Moving
    averages and everything else are kept. With prior variances near 0 the TAGI model predicts the
    same as the Keras model; the larger they are, the further the data may move the weights.
    Activations are linearised. Layers that only act in training (dropout, noise) are left out.
    Nested models are flattened. A layer that is used twice stays one layer.

    These layers are supported: Dense, convolutions, pooling, normalisations, Embedding, LSTM,
    Bidirectional, MultiHeadAttention, Activation, ReLU, LeakyReLU, ELU, and the structural layers
    of `tagi`. Masks (`Masking`, `mask_zero`) are supported before layers that use them.

    Args:
        model: Functional or built `keras.Sequential` with one output of rank 2.
        prior_variance: Prior variance of all weights and biases, a positive number, or a dict from
            names of layers to positive numbers. All other layers, or all layers with `None`, use
            their own rule (`prior`, `gain`, `bias_variance` of `BilinearLayer`).
        likelihood: Observation model. The default is Gaussian noise, whose scale the first `fit`
            chooses by cross-validation (`noise` of `TAGIModel`).
        **options: Options of `TAGIModel`. `standardize` is `False` here unless given, since the
            Keras model has learnt from data without standardisation.

    Returns:
        `TAGIModel` whose layers have the names of the Keras layers.

    Raises:
        ValueError: If a layer is not supported (the message names the first one), if the model is
            not built, or if a prior variance is not positive or its key names no layer.

    Example:
        >>> network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        >>> model = tfp_fnspace.tagi.from_keras(network, prior_variance=0.01)
    """
    functional = graph._functional(model) if isinstance(model, keras.Model) else None
    if functional is None or len(functional.outputs) != 1:
        raise ValueError(
            "`model` must be a functional or built sequential Keras model with one output. "
            f"Received: model={model!r}"
        )
    inputs = [
        keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name)
        for tensor in functional.inputs
    ]
    converted = {}
    (outputs,) = _convert_graph(functional, inputs, converted)
    for layer, copy in converted.values():
        if isinstance(copy, TAGILayer):
            _assign(layer, copy)
    _assign_variances([copy for _, copy in converted.values()], prior_variance)
    if likelihood is None:
        # The scale is in the user's units, which are not known yet: the search may begin anywhere.
        likelihood = likelihoods.Gaussian(scale=1.0, separate=True)
        options = {"noise": "cross_validate", **options}
    return TAGIModel(inputs, outputs, likelihood=likelihood, **{"standardize": False, **options})


def _convert_graph(functional, inputs, converted):
    """Calls copies of the layers of a graph on new inputs; returns the new outputs.

    Args:
        functional: Functional Keras model.
        inputs: List of tensors or moments.
        converted: Dict from the id of a layer to the layer and its copy; it grows.
    """
    pairs = zip(functional.inputs, inputs, strict=True)
    known = {id(tensor): new for tensor, new in pairs}
    for node in graph._nodes(functional):
        if node.is_input or _is_of_masks(node):
            continue
        operation = node.operation
        arguments, options = node.arguments.fill_in(known)
        inner = graph._functional(operation) if isinstance(operation, keras.Model) else None
        if inner is not None:
            taken = [known[id(tensor)] for tensor in node.input_tensors]
            outputs = _convert_graph(inner, taken, converted)
        else:
            if id(operation) not in converted:
                converted[id(operation)] = operation, _convert(operation)
            copy = converted[id(operation)][1]
            options = _call_options(operation, copy, options)
            outputs = [arguments[0] if copy is None else copy(*arguments, **options)]
        known.update({id(old): new for old, new in zip(node.outputs, outputs, strict=True)})
    return [known[id(tensor)] for tensor in functional.outputs]


def _is_of_masks(node):
    """Returns whether a node computes a mask; the new layers compute their own."""
    is_layer = isinstance(node.operation, keras.layers.Layer)
    return not is_layer and all(tensor.dtype == "bool" for tensor in node.outputs)


def _unsupported(layer, reason=""):
    reason = f" ({reason})" if reason else ""
    return ValueError(
        f"`from_keras` has no TAGI layer for the layer {getattr(layer, 'name', layer)!r} of class "
        f"{type(layer).__name__}{reason}. Received: layer={layer!r}"
    )


def _call_options(layer, copy, options):
    """Returns the keyword arguments of a call that the TAGI layer also takes."""
    takes = inspect.signature(copy.call).parameters if copy is not None else {}
    for name, value in options.items():
        ours = name in takes or name in _OF_KERAS
        if not ours and value not in (None, False):
            raise _unsupported(layer, f"called with {name}")
    return {n: value for n, value in options.items() if n in takes and n not in _OF_KERAS}


def _convert(layer):
    """Returns the TAGI layer for a Keras layer, or `None` for one that does nothing."""
    kind = type(layer).__name__
    if type(layer) is not getattr(keras.layers, kind, None):
        raise _unsupported(layer)
    if kind in _NOTHING:
        return None
    config = layer.get_config()
    for name, values in _REQUIRED.items():
        if config.get(name, values[0]) not in values:
            raise _unsupported(layer, f"{name}={config[name]!r}")
    if kind == "Masking":
        return type(layer).from_config(config)
    common = {"name": layer.name, "dtype": layer.dtype_policy, "trainable": layer.trainable}
    if kind in _ELEMENTWISE_LAYERS:
        return layers.Activation(type(layer).from_config(config), **common)
    if kind == "Activation":
        return layers.Activation(_activation(layer, layer.activation) or "linear", **common)
    if kind == "Bidirectional":
        pair = [_convert(part) for part in (layer.forward_layer, layer.backward_layer)]
        return layers.Bidirectional(pair[0], config["merge_mode"], backward_layer=pair[1], **common)
    if kind not in _ARGUMENTS:
        raise _unsupported(layer)
    arguments = {name: config[name] for name in _ARGUMENTS[kind] if name in config}
    for name in ("activation", "recurrent_activation"):
        if name in config:
            arguments[name] = _activation(layer, getattr(layer, name))
    if kind == "MultiHeadAttention" and config["output_shape"] is not None:
        arguments["output_shape"] = _one_integer(layer, config["output_shape"])
    return getattr(layers, kind)(**arguments, **common)


def _one_integer(layer, shape):
    sizes = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    if len(sizes) != 1:
        raise _unsupported(layer, f"output_shape={shape!r}")
    return sizes[0]


def _activation(layer, function):
    """Returns the argument `activation` of the TAGI layer for a function of Keras."""
    name = getattr(function, "__name__", repr(function))
    if name == "linear":
        return None
    if function is not getattr(keras.activations, name, None):
        raise _unsupported(layer, f"activation={name!r}")
    if name in FUNCTIONS:
        return name
    if name in _ELEMENTWISE:
        return function
    raise _unsupported(layer, f"activation={name!r}")


def _learnt(layer):
    """Returns the parameters, including nested layers', whose prior variance is not zero."""
    if isinstance(layer, layers.Bidirectional):
        nested = [layer.forward_layer, layer.backward_layer]
    elif isinstance(layer, layers.MultiHeadAttention):
        nested = [layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense]
    else:
        nested = [layer]
    pairs = [pair for part in nested for pair in part.parameters]
    return [pair for pair in pairs if pair.variance.numpy().any()]


def _weights(layer):
    """Returns the weights of a Keras layer in the order of our parameters."""
    if isinstance(layer, keras.layers.Bidirectional):
        return [*_weights(layer.forward_layer), *_weights(layer.backward_layer)]
    if isinstance(layer, keras.layers.LSTM):
        names = ("kernel", "bias", "recurrent_kernel")
        weights = [getattr(layer.cell, name) for name in names]
        return [weight.numpy() for weight in weights if weight is not None]
    if isinstance(layer, keras.layers.BatchNormalization):
        return [weight.numpy() for weight in (layer.gamma, layer.beta) if weight is not None]
    return layer.get_weights()


def _assign(layer, copy):
    """Sets the means of a copy to the weights of its Keras layer."""
    for pair, value in zip(_learnt(copy), _weights(layer), strict=True):
        pair.mean.assign(value.reshape(pair.mean.shape))
    if isinstance(layer, keras.layers.BatchNormalization):
        moving = (layer.moving_mean, layer.moving_variance)
        for variable, value in zip(copy.state, moving, strict=True):
            variable.assign(value.numpy().reshape(variable.shape))


def _assign_variances(copies, prior_variance):
    copies = {copy.name: copy for copy in copies if isinstance(copy, TAGILayer)}
    if prior_variance is None:
        return
    given = prior_variance
    if not isinstance(given, dict):
        given = dict.fromkeys(copies, checked_positive("prior_variance", given))
    unknown = sorted(set(given) - set(copies))
    if unknown:
        raise ValueError(
            "The keys of `prior_variance` must be names of layers. "
            f"Received: {unknown}, layers={sorted(copies)}"
        )
    for name, value in given.items():
        value = checked_positive("prior_variance", value)
        for pair in _learnt(copies[name]):
            pair.variance.assign(value + 0.0 * pair.variance)
