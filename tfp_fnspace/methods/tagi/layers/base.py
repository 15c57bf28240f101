"""Bases of TAGI layers, which map moments to moments and have a sampled forward pass."""

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_choice, refuse_old_tensors
from tfp_fnspace.layers import calls
from tfp_fnspace.math.random import as_seed, fold_in
from tfp_fnspace.methods.tagi import equations, propagation
from tfp_fnspace.methods.tagi.equations import MomentsAndSlope
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Config, GaussianMoments, Seed, Shape, Tensor

#: What a layer takes: a tensor of exactly known values, or moments, a (mean, variance) pair.
Inputs: TypeAlias = Tensor | Sequence[Tensor]


def is_pair(inputs: Any) -> bool:
    """Returns whether `inputs` are moments, a (mean, variance) pair, rather than one tensor."""
    return isinstance(inputs, list | tuple) and len(inputs) == 2


def mean_shape(shape: Any) -> Shape:
    """Returns the mean's shape, given one shape or the shapes of a (mean, variance) pair."""
    return tuple(shape[0] if is_pair(shape) and isinstance(shape[0], list | tuple) else shape)


def one_mask(masks: Any) -> Any:
    """Returns the steps that count in all given masks, or None if there are no masks.

    Args:
        masks: Masks or None in any structure, as Keras passes them.

    Returns:
        Boolean tensor `[N, T]`, or None.
    """
    masks = [mask for mask in keras.tree.flatten(masks) if mask is not None]
    masks = list({id(mask): mask for mask in masks}.values())
    return functools.reduce(keras.ops.logical_and, masks) if masks else None


def traced_shape(function: Callable[..., Tensor], shapes: Sequence[Shape], dtype: str) -> Shape:
    """Returns the output shape of a TensorFlow function for inputs of given shapes."""
    specs = [tf.TensorSpec(shape, dtype) for shape in shapes]
    return tuple(traced(function).get_concrete_function(*specs).output_shapes)


#: Part of the error about a mask.
_TAKE_MASKS = (
    "Dense, activations, LayerNormalization and RMSNormalization of units, LSTM, Bidirectional, "
    "MultiHeadAttention, GlobalAveragePooling1D, Add and Concatenate of units do."
)


class _SymbolicPart(keras.KerasTensor):
    """A symbolic mean or variance, with a message for Keras's layers, which take no pairs."""

    def __repr__(self):
        return (
            f"<moments of shape {self.shape} from a layer of `fns.tagi`, which pass through layers "
            "of `fns.tagi` only: use `fns.tagi.Dense` and others instead of Keras's>"
        )


def symbolic_moments(shape: Shape, dtype: str) -> GaussianMoments:
    """Returns `GaussianMoments` of the symbolic mean and variance of a layer's output."""
    return GaussianMoments(*(_SymbolicPart(shape, dtype) for _ in range(2)))


class TAGILayer(keras.layers.Layer):
    """Base of all TAGI layers.

    A layer takes exactly known values (one tensor) or Gaussian moments (a `(mean, variance)`
    pair) and returns `GaussianMoments`; a layer without parameters returns a tensor for a tensor.
    Computations use the layer's *variable* dtype: under `mixed_float16`, moments stay float32.

    To write a layer, subclass `BilinearLayer` (a linear map with uncertain weights) or
    `ElementwiseLayer` (an activation). A layer made of other TAGI layers has no own `parameters`,
    and builds these layers in `build`.

    Only layers with `heeds_masks` accept inputs that have a mask in Keras (behind
    `keras.layers.Masking`, or an `Embedding` with `mask_zero=True`).
    """

    #: Whether XLA on a CPU runs the layer slowly inside a loop over batches.
    slow_in_xla_loops = False
    #: Whether exactly known inputs also give moments, as with uncertain weights.
    makes_moments = True
    #: Whether the outputs of steps that count do not depend on steps that a mask leaves out.
    heeds_masks = False

    def __init__(self, **kwargs: Any):
        # Keras would otherwise cast moments to half precision before `call`.
        super().__init__(autocast=False, **kwargs)
        self._drawn = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refuse_old_tensors(args)
        if self.makes_moments:
            calls.refuse_keras_training(self, "`fns.tagi.TAGIModel(inputs, outputs)`")
        if not self.heeds_masks:
            calls.refuse_masks(self, (args, kwargs), _TAKE_MASKS)
        return super().__call__(*args, **kwargs)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> tuple[Any, Any] | None:
        """Returns the mask of the outputs, for the mean and for the variance, or None."""
        mask = self._mask_behind(one_mask(previous_mask))
        return None if mask is None else (mask, mask)

    def _mask_behind(self, mask):
        """Returns the mask of the outputs, given the mask of the inputs or None."""
        return mask

    @property
    def parameters(self) -> list[GaussianMoments]:
        """The layer's uncertain parameters, a list of `GaussianMoments` of variables."""
        return []

    @property
    def state(self) -> list[keras.Variable]:
        """List of variables that a forward pass changes, such as moving averages."""
        return []

    @property
    def fresh(self) -> bool:
        """Whether the parameters are those that `build` drew, not learnt, loaded or assigned."""
        return self._drawn is not None and self._drawn == self._fingerprint()

    def _fingerprint(self):
        checksum = 0
        for part in (part for pair in self.parameters for part in pair):
            checksum = zlib.crc32(np.ascontiguousarray(part.numpy()), checksum)
        return checksum

    def redraw(self, seed: Seed) -> None:
        """Draws the initial means N(0, variance) of a layer that has learnt nothing yet.

        Args:
            seed: Integer or int32 tensor `[2]`.
        """
        seed = as_seed(seed)
        for i, (mean, variance) in enumerate(self.parameters):
            prior = (tf.zeros_like(variance.value), variance.value)
            mean.assign(propagation.draw(fold_in(seed, i), 1, prior)[0])

    def sample(self, inputs: Any, seed: Seed) -> Tensor:
        """Runs a sampled forward pass, with the layer as a deterministic function for each draw.

        Args:
            inputs: Tensor `[S, N, ...]` of function samples (or a list of them for a layer that
                merges several inputs). S is the number of draws of the layer's parameters.
            seed: Integer or int32 tensor `[2]`.

        Returns:
            Tensor `[S, N, ...]`.
        """
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        num_samples = tf.nest.flatten(inputs)[0].shape[0]
        with propagation.sampling_scope(as_seed(seed), num_samples, self._flatten_layers()):
            output = self(tf.nest.map_structure(propagation.fold, inputs))
        return propagation.unfold(output[0] if is_pair(output) else output, num_samples)

    def compute_output_spec(
        self, inputs: Any, mask: Any = None
    ) -> GaussianMoments | keras.KerasTensor:
        """Returns the symbolic output: moments, or one tensor if nothing is uncertain."""
        layers = (part for part in self._flatten_layers() if isinstance(part, TAGILayer))
        moments = any(part.parameters for part in layers)
        moments = moments or any(is_pair(item) for item in self._items(inputs))
        shape = self.compute_output_shape(self._shapes(inputs))
        if moments:
            return symbolic_moments(shape, self.variable_dtype)
        return keras.KerasTensor(shape, self.variable_dtype)

    def _items(self, inputs):
        """Returns a list of the inputs, tensors or pairs (one, unless the layer merges several)."""
        return [inputs]

    def _shapes(self, inputs):
        """Returns the shapes of the means of the inputs, in the form for `compute_output_shape`."""
        return (inputs[0] if is_pair(inputs) else inputs).shape

    def _unpack(self, inputs):
        """Returns the mean and variance (or `None`) of the inputs, in the dtype of the moments."""
        mean, variance = inputs if is_pair(inputs) else (inputs, None)
        cast = [t if t is None else tf.cast(t, self.variable_dtype) for t in (mean, variance)]
        return tuple(cast)


class BilinearLayer(TAGILayer):
    """Base of layers that are a linear map with uncertain weights.

    A subclass implements `linear_map(inputs, kernel)`, which is linear in each argument, and
    `create_parameters(input_shape)`, which calls `add_parameters`. Moments, innovations and samples
    follow from these (`tfp_fnspace.methods.tagi.equations`). Every product of an input and a
    kernel element must enter an output at most once, with coefficient 1, as in every dense or
    convolutional map.

    Example:
        A layer that multiplies each input by its own weight.

        >>> class Scale(tfp_fnspace.tagi.BilinearLayer):
        ...     def create_parameters(self, input_shape):
        ...         self.add_parameters((input_shape[-1],), fan_in=1, fan_out=1)
        ...
        ...     def linear_map(self, inputs, kernel):
        ...         return inputs * kernel

    Args:
        use_bias: Whether to add an uncertain bias.
        prior: `"glorot"` (or `"xavier"`) for variance `gain^2 2/(fan_in + fan_out)`, or `"he"` for
            variance `gain^2 / fan_in`.
        gain: Positive number.
        bias_variance: Prior variance of the biases, positive.
        **kwargs: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: If `prior` is unknown or a scale is not positive.
    """

    def __init__(
        self,
        *,
        use_bias: bool = True,
        prior: str = "glorot",
        gain: float = 1.0,
        bias_variance: float = 0.01,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        for name, value in {"gain": gain, "bias_variance": bias_variance}.items():
            if not value > 0.0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value!r}")
        self.use_bias = bool(use_bias)
        self.prior = checked_choice("prior", prior, ("glorot", "xavier", "he"))
        self.gain = float(gain)
        self.bias_variance_prior = float(bias_variance)
        self.kernel_mean = self.kernel_variance = self.bias_mean = self.bias_variance = None

    def build(self, input_shape: Shape) -> None:
        self.create_parameters(mean_shape(input_shape))

    def create_parameters(self, input_shape: Shape) -> None:
        """Calls `add_parameters`, given the shape of the input's mean."""
        raise NotImplementedError(f"{type(self).__name__} must implement `create_parameters`.")

    def linear_map(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        """Computes `L(a, w)` in TensorFlow; must be linear in `inputs` and in `kernel`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `linear_map`.")

    def add_parameters(
        self,
        kernel_shape: Sequence[int],
        fan_in: float,
        fan_out: float,
        bias_shape: Sequence[int] | None = None,
    ) -> None:
        """Creates the moments of kernel and bias, with means drawn from N(0, variance).

        Args:
            kernel_shape: Shape of the kernel.
            fan_in: Number of inputs that an output sums over.
            fan_out: Number of outputs that an input reaches.
            bias_shape: Shape of the bias; the kernel's last axis by default.
        """
        variance = equations.prior_variance(self.prior, fan_in, fan_out, self.gain)
        kernel = self._add_moments("kernel", kernel_shape, variance)
        self.kernel_mean, self.kernel_variance = kernel
        if self.use_bias:
            bias_shape = (kernel_shape[-1],) if bias_shape is None else bias_shape
            bias = self._add_moments("bias", bias_shape, self.bias_variance_prior)
            self.bias_mean, self.bias_variance = bias
        self._drawn = self._fingerprint()

    def _add_moments(self, name, shape, variance, mean=None):
        """Creates variables of one prior variance; means are drawn N(0, variance), or `mean`."""
        drawn = keras.initializers.RandomNormal(stddev=variance**0.5)
        initializers = {
            "mean": drawn if mean is None else keras.initializers.Constant(mean),
            "variance": keras.initializers.Constant(variance),
        }
        return GaussianMoments(
            *(
                self.add_weight(
                    name=f"{name}_{part}", shape=shape, initializer=initializer, autocast=False
                )
                for part, initializer in initializers.items()
            )
        )

    @property
    def parameters(self) -> list[GaussianMoments]:
        kernel = GaussianMoments(self.kernel_mean, self.kernel_variance)
        bias = GaussianMoments(self.bias_mean, self.bias_variance)
        return [pair for pair in (kernel, bias) if pair.mean is not None]

    def call(self, inputs: Inputs) -> GaussianMoments:
        mean, variance = self._unpack(inputs)
        kernel = tuple(map(tf.convert_to_tensor, (self.kernel_mean, self.kernel_variance)))
        bias = None
        if self.bias_mean is not None:
            bias = tuple(map(tf.convert_to_tensor, (self.bias_mean, self.bias_variance)))
        if propagation.sampling_active():
            seed, num_samples = propagation.layer_sampling(self)
            sample = propagation.sample_bilinear(
                self.linear_map, mean, kernel, bias, seed, num_samples
            )
            return GaussianMoments(sample, tf.zeros_like(sample))
        moments = propagation.bilinear(self.linear_map, mean, variance, kernel, bias)
        return GaussianMoments(*moments)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the shape of the output's mean and variance, given that of the input's mean."""
        shapes = mean_shape(input_shape), self.kernel_mean.shape
        return traced_shape(self.linear_map, shapes, self.variable_dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "use_bias": self.use_bias,
            "prior": self.prior,
            "gain": self.gain,
            "bias_variance": self.bias_variance_prior,
        }


class ElementwiseLayer(TAGILayer):
    """Base of activations.

    A subclass implements two methods. `moments(mean, variance)` returns the mean, the variance and
    the slope `cov(z, a)/var(z)` of the activation `a` of a Gaussian `z`. `function(z)` is the
    activation itself, for function samples and exactly known values.

    Example:
        The square, whose moments are exact.

        >>> class Square(tfp_fnspace.tagi.ElementwiseLayer):
        ...     def function(self, z):
        ...         return z**2
        ...
        ...     def moments(self, mean, variance):
        ...         return mean**2 + variance, 2 * variance**2 + 4 * variance * mean**2, 2 * mean
    """

    heeds_masks = True
    makes_moments = False

    def function(self, z: Tensor) -> Tensor:
        """Applies the activation as a deterministic elementwise function."""
        raise NotImplementedError(f"{type(self).__name__} must implement `function`.")

    def moments(self, mean: Tensor, variance: Tensor) -> MomentsAndSlope:
        """Returns the mean, variance and slope of the activation of N(mean, variance)."""
        raise NotImplementedError(f"{type(self).__name__} must implement `moments`.")

    def call(self, inputs: Inputs) -> GaussianMoments | Tensor:
        mean, variance = self._unpack(inputs)
        return self.function(mean) if variance is None else self.propagate(mean, variance)

    def propagate(self, mean: Tensor, variance: Tensor) -> GaussianMoments:
        """Returns the moments of the activation, or its samples in a sampled forward pass.

        Args:
            mean: Tensor (samples, in a sampled forward pass).
            variance: Tensor of the same shape and dtype.

        Returns:
            `GaussianMoments`.
        """
        if propagation.sampling_active():
            sample = self.function(mean)
            return GaussianMoments(sample, tf.zeros_like(sample))
        return GaussianMoments(*propagation.activation(self.moments, mean, variance))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return mean_shape(input_shape)
