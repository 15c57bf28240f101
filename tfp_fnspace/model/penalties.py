"""The terms that regularizers of Keras layers add to an objective."""

from collections.abc import Iterable

import keras
import tensorflow as tf

from tfp_fnspace.typing import Tensor


def penalty(variables: Iterable[keras.Variable], dtype: tf.DType | str) -> Tensor:
    """Returns the sum of the regularizers' penalties of variables.

    Args:
        variables: Keras variables; those of layers may have regularizers (`kernel_regularizer`,
            ...).
        dtype: Dtype of the result.

    Returns:
        Scalar, 0 if no variable has a regularizer.
    """
    values = [v.regularizer(v) for v in variables if v.regularizer is not None]
    return tf.add_n([tf.cast(v, dtype) for v in values]) if values else tf.zeros([], dtype)


def refuse_added_losses(model: keras.Model) -> None:
    """Refuses losses of layers other than weight regularizers, which no objective includes.

    These losses belong to the last call of a layer, and an objective may call the layer often or on
    draws.

    Args:
        model: Keras model, after its layers were called.

    Raises:
        ValueError: If a layer has added such losses.
    """
    of_weights = sum(v.regularizer is not None for v in model.trainable_variables)
    if len(model.losses) > of_weights:
        layers = [layer.name for layer in model._flatten_layers() if layer._losses]
        raise ValueError(
            f"Layers of {type(model).__name__}, trained or not, must not add losses when they are "
            "called (`add_loss`, `activity_regularizer`): its objective would not include them. "
            "Regularizers of weights (`kernel_regularizer`) are part of it. Received: losses of "
            f"the layers {layers}"
        )
