"""The networks of layers that `DIWPModel` builds."""

import keras

from tfp_fnspace import kernels
from tfp_fnspace.methods.diwp import layers

HIDDEN = ("inverse_wishart", "none", "gaussian_process")
STACKS = ("features", "omega")


def checked_kernels(kernel, depth):
    """Returns the kernels of `depth + 1` layers, given one for all or a list.

    Raises:
        ValueError: If a list has another length.
    """
    if isinstance(kernel, list | tuple):
        if len(kernel) != depth + 1:
            raise ValueError(
                f"`kernel` must be one kernel, or one for each of the depth + 1 = {depth + 1} "
                f"kernel layers. Received: {len(kernel)} kernels"
            )
        return [kernels.get(k) for k in kernel]
    return [kernels.get(kernel)] * (depth + 1)


def network(input_shape, num_outputs, inducing_points, options, dtype):
    """Builds a stack of kernels with hidden layers between them.

    - `stack="features"`: scaled features -> Gram -> K -> (hidden -> K) x depth -> GP. With depth 2
      these are the networks of the paper's experiments.
    - `stack="omega"`: the inputs have a separate inverse Wishart layer (equation 18): Omega -> K ->
      (hidden -> K) x depth -> GP.

    Args:
        input_shape: Shape of a row.
        num_outputs: D.
        inducing_points: P.
        options: Dict of `kernel` (list of depth + 1), `hidden`, `stack`, `delta`, `learn_delta`,
            `whiten`, `learn_scale`, `constant`, `batch_size_defect`.
        dtype: Dtype of the layers.

    Returns:
        `keras.Sequential` from inputs in model units to `GaussianMoments` `[S, N, D]`.
    """
    width = 1
    for length in input_shape:
        width *= length
    delta = {"delta": options["delta"], "learn_delta": options["learn_delta"], "dtype": dtype}

    def hidden():
        if options["hidden"] == "inverse_wishart":
            of_layer = {name: options[name] for name in ("whiten", "batch_size_defect")}
            return [layers.InverseWishartProcess(**of_layer, **delta)]
        if options["hidden"] == "gaussian_process":
            return [layers.GaussianProcessGram(width, dtype=dtype)]
        return []

    inputs = (inducing_points, options["learn_scale"], options["constant"])
    if options["stack"] == "features":
        first = layers.FeaturesToGram(*inputs, dtype=dtype)
    else:
        first = layers.InverseWishartFeatures(*inputs, **delta)
    *inner, last = options["kernel"]
    stack = [keras.Input(input_shape, dtype=dtype), first]
    for kernel in inner:
        stack += [layers.GramKernel(kernel, dtype=dtype), *hidden()]
    stack.append(layers.GramKernel(last, learn_amplitude=True, dtype=dtype))
    stack.append(layers.GlobalInducingGP(num_outputs, dtype=dtype))
    return keras.Sequential(stack, name="network")
