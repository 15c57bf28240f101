"""Functions that TensorFlow traces once for each model."""

import functools
import types

import tensorflow as tf


def traced(function, **options):
    """`tf.function` of a function of one model, without autograph.

    TensorFlow counts traces by the code of a function, over all models of a process: it warns from
    the fifth model on of "triggered tf.function retracing", though each is traced once. A partial
    function has no code, and is counted by itself.

    Args:
        function: The function, a method of the model say.
        **options: Of `tf.function`.

    Returns:
        The traced function.
    """
    return tf.function(functools.partial(function), autograph=False, **options)


def traced_for_all(function, **options):
    """`tf.function` of a function that all models share, without autograph.

    It is traced for the shapes of each model's data, which is no reason to warn.
    """
    function = tf.function(function, autograph=False, **options)
    function._omit_frequent_tracing_warning = True
    return function


class _Key:
    """What traces are counted for; unlike the function itself, no cycle of references."""


def count_apart(function):
    """Lets TensorFlow count the traces of functions that Keras has made for a model by themselves.

    Args:
        function: What `make_train_function` and the like have made: a function with the traced ones
            in its closure, or a traced one.

    Returns:
        The function.
    """
    seen, left = set(), [function]
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, tf.types.experimental.PolymorphicFunction):
            part._key_for_call_stats = _Key()  # in place of its code
            left.append(part.python_function)
        elif isinstance(part, types.FunctionType):
            left += [cell.cell_contents for cell in part.__closure__ or ()]
    return function
