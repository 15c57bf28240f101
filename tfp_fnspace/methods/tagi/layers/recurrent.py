"""A recurrent layer with Gaussian weights."""

from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count
from tfp_fnspace.math.random import fold_in
from tfp_fnspace.methods.tagi import propagation
from tfp_fnspace.methods.tagi.layers.activation import ActivationLike, get_activation
from tfp_fnspace.methods.tagi.layers.base import BilinearLayer, Inputs, mean_shape, one_mask
from tfp_fnspace.model.seeds import part
from tfp_fnspace.typing import Config, GaussianMoments, Seed, Shape, Tensor


def _sum(first, second):
    return tuple(a + b for a, b in zip(first, second, strict=True))


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class LSTM(BilinearLayer):
    r"""Long short-term memory whose weights are independent Gaussians.

    With inputs x_t and the state (h, c), each a vector of Gaussian units:

        z_t = x_t W + h_{t-1} U + b,    z_t = (z_i, z_f, z_g, z_o)
        c_t = s(z_f) c_{t-1} + s(z_i) tanh(z_g)
        h_t = s(z_o) tanh(c_t)

    The sums over inputs and states follow the rule of `BilinearLayer`, and the gates are
    activations. A product of units a and b, which are treated as independent, has the moments

        m = ma mb,   S = (ma^2 + Sa) Sb + Sa mb^2

    (equations 3 and 5 of the paper). Covariances between the gates, which share x_t and h_{t-1},
    and between the state and the gates are dropped, as everywhere in TAGI's diagonal approximation.
    One set of weights serves all time steps. Its update uses the sum of their innovations, as the
    update of a batch uses the sum over rows. The loop over time is one loop on the device, forward
    and backward.

    Args:
        units: Number of units, a positive integer.
        activation: Activation of the cell: name, function, or `Activation` layer.
        recurrent_activation: Activation s of the gates. Linearised moments are unbounded: with a
            slope near 1 (tanh) and very uncertain inputs, variances can grow without limit over the
            steps.
        use_bias: Whether to add a bias to the gates.
        unit_forget_bias: Whether the prior mean of the bias of the forget gate is 1.
        return_sequences: Whether to return h of all steps, or only of the last step.
        go_backwards: Whether to go from the last step to the first; sequences are returned in the
            order of processing.
        stateful: Whether row i of a batch starts from the final state, mean and variance, of row i
            of the last batch. It needs inputs with a known batch size (`keras.Input(...,
            batch_size=)`), `shuffle=False`, and batches of that size only.
        **kwargs: `prior`, `gain`, `bias_variance` as in `BilinearLayer` (fan in: inputs plus units;
            fan out: units); `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: `(mean, variance)` pair of tensors `[N, T, D]`, or a tensor of exactly known
            values. T must be known to compile with XLA.
        mask: Boolean tensor `[N, T]`, false for padded steps. These do not change the state, and
            nothing is learnt from them. Keras passes the mask on from `keras.layers.Masking` and
            embeddings with `mask_zero=True`.

    Returns:
        `GaussianMoments` of tensors `[N, units]`, or `[N, T, units]` with `return_sequences`.

    Attributes:
        kernel_mean, kernel_variance: Variables `[D, 4 units]`, in Keras's order: input gate,
            forget gate, cell, output gate.
        recurrent_kernel_mean, recurrent_kernel_variance: Variables `[units, 4 units]`.
        bias_mean, bias_variance: Variables `[4 units]`, or `None`.
        state: With `stateful`, variables `[N, units]`: mean and variance of h and of c.

    Raises:
        ValueError: If `units` is not a positive integer, the inputs are not of rank 3, or
            `stateful` lacks a batch size.

    Example:
        >>> series = keras.Input((12, 1))
        >>> mean, variance = tfp_fnspace.tagi.LSTM(8)(series)
    """

    heeds_masks = True

    def __init__(
        self,
        units: int,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        *,
        unit_forget_bias: bool = True,
        return_sequences: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        **kwargs: Any,
    ):
        super().__init__(use_bias=use_bias, **kwargs)
        self.units = checked_count("units", units)
        self.activation = get_activation(activation or "linear")
        self.recurrent_activation = get_activation(recurrent_activation or "linear")
        self.unit_forget_bias = bool(unit_forget_bias)
        self.return_sequences = bool(return_sequences)
        self.go_backwards = bool(go_backwards)
        self.stateful = bool(stateful)
        self.recurrent_kernel_mean = self.recurrent_kernel_variance = None
        self._state = []

    def create_parameters(self, input_shape: Shape) -> None:
        if len(input_shape) != 3 or input_shape[-1] is None:
            raise ValueError(
                "LSTM needs inputs of rank 3 whose last axis is known. "
                f"Received: shape={input_shape}"
            )
        if self.stateful and input_shape[0] is None:
            raise ValueError(
                "A stateful LSTM needs inputs with a batch size, as of keras.Input(..., "
                f"batch_size=). Received: shape={input_shape}"
            )
        features, units = input_shape[-1], self.units
        self.add_parameters((features, 4 * units), fan_in=features + units, fan_out=units)
        variance = float(self.kernel_variance.numpy().flat[0])
        recurrent = self._add_moments("recurrent_kernel", (units, 4 * units), variance)
        self.recurrent_kernel_mean, self.recurrent_kernel_variance = recurrent
        if self.stateful:
            self._state = [
                self.add_weight(
                    name=f"{unit}_{part}",
                    shape=(input_shape[0], units),
                    initializer="zeros",
                    trainable=False,
                    autocast=False,
                )
                for unit in ("hidden", "cell")
                for part in ("mean", "variance")
            ]
        self._raise_forget_bias()
        self._drawn = self._fingerprint()
        for activation in (self.activation, self.recurrent_activation):
            activation.built = True  # it has no weights, and is never called directly

    @property
    def parameters(self) -> list[GaussianMoments]:
        recurrent = GaussianMoments(self.recurrent_kernel_mean, self.recurrent_kernel_variance)
        return [*super().parameters, *([] if recurrent.mean is None else [recurrent])]

    @property
    def state(self) -> list[keras.Variable]:
        return self._state

    def reset_state(self) -> None:
        """Resets the state of a stateful layer to zero, exactly known."""
        for variable in self._state:
            variable.assign(tf.zeros_like(variable))

    def redraw(self, seed: Seed) -> None:
        super().redraw(seed)
        self._raise_forget_bias()

    def _raise_forget_bias(self):
        if self.use_bias and self.unit_forget_bias:
            gates = tf.constant([0.0, 1.0, 0.0, 0.0], self.bias_mean.dtype)
            self.bias_mean.assign_add(tf.repeat(gates, self.units))

    def linear_map(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        return tf.matmul(inputs, kernel)

    def _mask_behind(self, mask):
        return mask if self.return_sequences else None

    def call(self, inputs: Inputs, mask: Any = None) -> GaussianMoments:
        # The contribution of the inputs is computed for all steps at once.
        means, variances = super().call(inputs)
        if self.stateful and not propagation.sampling_active():  # one row would fit any state
            means = tf.ensure_shape(means, [self._state[0].shape[0], None, None])
        steps = [tf.transpose(part, [1, 0, 2]) for part in (means, variances)]
        recur, mask = self._recurrence(), one_mask(mask)

        def advance(state, step):
            new = self._step(recur, state, step[:2])
            if mask is None:
                return new
            return tuple(tf.where(step[2], *pair) for pair in zip(new, state, strict=True))

        if mask is not None:
            steps.append(tf.transpose(tf.cast(mask, tf.bool))[..., tf.newaxis])
        states = tf.scan(
            advance,
            steps,
            self._initial_state(tf.shape(means)[0]),
            reverse=self.go_backwards,
        )
        last = 0 if self.go_backwards else -1
        if self.stateful and not propagation.state_frozen():
            for variable, part in zip(self._state, states, strict=True):
                variable.assign(part[last])
        if not self.return_sequences:
            return GaussianMoments(states[0][last], states[1][last])
        hidden = [tf.reverse(part, [0]) if self.go_backwards else part for part in states[:2]]
        return GaussianMoments(*(tf.transpose(part, [1, 0, 2]) for part in hidden))

    def _recurrence(self):
        """Returns the function that maps the moments of h to those of h U."""
        kernel = tuple(
            tf.convert_to_tensor(part)
            for part in (self.recurrent_kernel_mean, self.recurrent_kernel_variance)
        )
        if not propagation.sampling_active():
            return lambda hidden: propagation.product(self.linear_map, hidden, kernel)
        seed, num_samples = propagation.layer_sampling(self)
        # There is one draw for all steps.
        weights = propagation.draw(part(seed, "recurrent kernel"), num_samples, kernel)

        def sampled(hidden):
            units = propagation.unfold(hidden[0], num_samples)
            output = propagation.fold(tf.matmul(units, weights))
            return output, tf.zeros_like(output)

        return sampled

    def _initial_state(self, num_rows):
        """Returns the mean and variance of h and of c."""
        if not self.stateful:
            zero = tf.zeros([num_rows, self.units], self.variable_dtype)
            return (zero,) * 4
        state = [tf.convert_to_tensor(part) for part in self._state]
        if not propagation.sampling_active():
            return tuple(state)
        seed, num_samples = propagation.layer_sampling(self)
        hidden, cell = (
            propagation.fold(propagation.draw(fold_in(seed, 3 + i), num_samples, pair))
            for i, pair in enumerate((state[:2], state[2:]))
        )
        return hidden, tf.zeros_like(hidden), cell, tf.zeros_like(cell)

    def _step(self, recur, state, step):
        hidden, cell = state[:2], state[2:]
        gates = [tf.split(part, 4, axis=-1) for part in _sum(step, recur(hidden))]
        inputs, forget, update, output = zip(*gates, strict=True)

        def multiply(first, second):
            return propagation.product(tf.multiply, first, second)

        gate = self.recurrent_activation.propagate
        kept = multiply(gate(*forget), cell)
        added = multiply(gate(*inputs), self.activation.propagate(*update))
        cell = _sum(kept, added)
        hidden = multiply(gate(*output), self.activation.propagate(*cell))
        return (*hidden, *cell)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, steps, _ = mean_shape(input_shape)
        return (batch, steps, self.units) if self.return_sequences else (batch, self.units)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "units": self.units,
            "activation": keras.saving.serialize_keras_object(self.activation),
            "recurrent_activation": keras.saving.serialize_keras_object(self.recurrent_activation),
            "unit_forget_bias": self.unit_forget_bias,
            "return_sequences": self.return_sequences,
            "go_backwards": self.go_backwards,
            "stateful": self.stateful,
        }
