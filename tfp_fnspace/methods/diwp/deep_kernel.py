"""The networks of layers that `DIWPModel` builds for the shapes of the first data."""

import dataclasses
import math
from typing import Any

import keras

from tfp_fnspace import kernels
from tfp_fnspace.boundary import arguments
from tfp_fnspace.boundary.options import Options
from tfp_fnspace.methods.diwp import layers
from tfp_fnspace.methods.diwp.layers.kernel import without_variables
from tfp_fnspace.typing import Config, Shape

HIDDEN = ("inverse_wishart", "none", "gaussian_process")
STACKS = ("features", "omega")


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
@dataclasses.dataclass(frozen=True, eq=False)
class DeepKernel(Options):
    """Stack of kernels with hidden layers between them, from scaled inputs to f.

    With `stack="features"` the layers are: scaled features -> Gram -> K -> (hidden -> K) x depth ->
    Gaussian process. With depth 2 these are the networks of the paper's experiments.
    `stack="omega"` has an inverse Wishart matrix also on the inputs (equation 18): Omega -> K ->
    (hidden -> K) x depth -> Gaussian process.

    Args:
        inducing_points: P, the maximum number of inducing points. If there are fewer rows than P,
            there are as many inducing points as rows, with a warning.
        kernel: A kernel of `tfp_fnspace.kernels` or its name, or a list of depth + 1.
        depth: Number of hidden layers; there are depth + 1 kernels.
        hidden: `"inverse_wishart"`; `"none"` for no hidden layers: this is a sparse Gaussian
            process with the kernel of an infinitely wide network (NNGP); or `"gaussian_process"`
            for sampled features, as many as inputs (a deep Gaussian process).
        stack: `"features"` or `"omega"`.
        delta: Initial delta of each layer.
        learn_delta: Whether the deltas are learned.
        learn_scale: Whether scale and bias of each input are learned; the default is true for rows
            of rank 1.
        constant: Whether the first Gram matrix has a learned constant, the bias of the first layer.
        whiten: Whether V of the posterior is learned in the coordinates of the kernel matrix, see
            `diwp.InverseWishartProcess`. The paper learns V itself.

    Raises:
        ValueError: If an argument is not as described.
    """

    inducing_points: int = 100
    kernel: Any = "relu"
    depth: int = 2
    hidden: str = "inverse_wishart"
    stack: str = "features"
    delta: float = 100.0
    learn_delta: bool = True
    learn_scale: bool | None = None
    constant: bool = True
    whiten: bool = True

    def __post_init__(self):
        arguments.check_count("inducing_points", self.inducing_points)
        arguments.check_count("depth", self.depth, 0)
        arguments.checked_choice("hidden", self.hidden, HIDDEN)
        arguments.checked_choice("stack", self.stack, STACKS)
        arguments.checked_positive("delta", self.delta)
        each = map(without_variables, checked_kernels(self.kernel, self.depth))
        object.__setattr__(self, "kernel", list(each))

    @property
    def is_random(self) -> bool:
        """Whether a matrix or a feature is sampled."""
        return self.stack == "omega" or (self.hidden != "none" and self.depth > 0)

    def network(
        self, input_shape: Shape, num_outputs: int, inducing_points: int, dtype: str
    ) -> keras.Sequential:
        """Builds the layers.

        Args:
            input_shape: Shape of a row.
            num_outputs: D.
            inducing_points: P.
            dtype: Dtype of the layers.

        Returns:
            `keras.Sequential` from inputs in model units to `GaussianMoments` `[S, N, D]`.
        """
        delta = {"delta": self.delta, "learn_delta": self.learn_delta, "dtype": dtype}

        def hidden():
            if self.hidden == "inverse_wishart":
                return [layers.InverseWishartProcess(whiten=self.whiten, **delta)]
            if self.hidden == "gaussian_process":
                return [layers.GaussianProcessGram(math.prod(input_shape), dtype=dtype)]
            return []

        learn_scale = len(input_shape) == 1 if self.learn_scale is None else self.learn_scale
        options = {"learn_scale": learn_scale, "constant": self.constant}
        if self.stack == "features":
            first = layers.FeaturesToGram(inducing_points, **options, dtype=dtype)
        else:
            first = layers.InverseWishartFeatures(inducing_points, **options, **delta)
        *inner, last = self.kernel
        stack = [keras.Input(input_shape, dtype=dtype), first]
        for kernel in inner:
            stack += [layers.KernelOfGram(kernel, dtype=dtype), *hidden()]
        stack.append(layers.KernelOfGram(last, learn_amplitude=True, dtype=dtype))
        stack.append(layers.GlobalInducingGP(num_outputs, dtype=dtype))
        return keras.Sequential(stack, name="network")

    def get_config(self) -> Config:
        return {**super().get_config(), "kernel": [kernels.serialize(k) for k in self.kernel]}


def checked_kernels(kernel: Any, depth: int) -> list[Any]:
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
