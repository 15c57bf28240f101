"""The layers from features to the first Gram matrix."""

from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count, checked_positive
from tfp_fnspace.layers.draws import current_draws
from tfp_fnspace.methods.diwp import equations
from tfp_fnspace.methods.diwp.layers.base import GramLayer, positive
from tfp_fnspace.methods.diwp.layers.inverse_wishart import InverseWishartPosterior
from tfp_fnspace.typing import Config, GramBlocks, Shape, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
class FeaturesToGram(GramLayer):
    r"""Gram matrix of scaled inputs, for the inducing inputs and the data (equation 5a).

        z = a * x + b,    G = Z Z^T / N_0 + c^2,

    with a learned scale and bias for each of the N_0 inputs. The inducing inputs are weights of
    this layer only; in later layers they appear in Gram matrices. Without c, kernels of inner
    products, such as arc-cosine kernels, see only the angles between inputs.

    Args:
        inducing_points: P, the number of inducing inputs.
        learn_scale: Whether a and b are learned.
        constant: Whether there is a learned c, which starts at 1.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: Tensor `[N, N_0]`; more axes are flattened.

    Returns:
        `GramBlocks` with one draw, S = 1.

    Raises:
        ValueError: If `inducing_points` is not a positive integer, or the dtype is neither float32
            nor float64.
    """

    def __init__(
        self,
        inducing_points: int,
        *,
        learn_scale: bool = True,
        constant: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.inducing_points = checked_count("inducing_points", inducing_points)
        self.learn_scale, self.constant = bool(learn_scale), bool(constant)

    def build(self, input_shape: Shape) -> None:
        size = 1
        for length in input_shape[1:]:
            size *= length
        self.num_features = size
        self.inducing_inputs = self.add_weight(
            name="inducing_inputs",
            shape=(self.inducing_points, size),
            initializer=keras.initializers.RandomNormal(stddev=1.0, seed=1),
        )
        if self.learn_scale:
            self.scale = self.add_weight(name="scale", shape=(size,), initializer="ones")
            self.bias = self.add_weight(name="bias", shape=(size,), initializer="zeros")
        if self.constant:
            self.log_constant = self.positive_weight("constant", 1.0, trainable=True)

    def features(self, inputs: Tensor) -> list[Tensor]:
        """Returns scaled features of inducing points `[1, P, N_0]` and data `[1, N, N_0]`."""
        dtype = self.blocks_dtype
        x = tf.reshape(tf.cast(inputs, dtype), [tf.shape(inputs)[0], self.num_features])
        both = [tf.cast(self.inducing_inputs.value, dtype), x]
        if self.learn_scale:
            scale, bias = tf.cast(self.scale.value, dtype), tf.cast(self.bias.value, dtype)
            both = [scale * values + bias for values in both]
        return [values[tf.newaxis] for values in both]

    def call(self, inputs: Tensor) -> GramBlocks:
        return self._gram(*self.features(inputs))

    def _gram(self, inducing, data):
        square = None
        if self.constant:
            square = tf.cast(tf.square(positive(self.log_constant)), data.dtype)
        is_joint = current_draws().noise == "joint"
        return equations.gram_of_features(inducing, data, is_joint, square)

    def compute_output_spec(self, inputs: Any) -> Any:
        return super().compute_output_spec([keras.KerasTensor((1, self.inducing_points))])

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "inducing_points": self.inducing_points,
            "learn_scale": self.learn_scale,
            "constant": self.constant,
        }


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
class InverseWishartFeatures(FeaturesToGram):
    r"""Inverse Wishart process on the inputs, through its matrix Omega (equation 18, appendix F).

        G = Z Omega Z^T / N_0,       Omega ~ W^-1(delta I, delta + N_0 + 1),
                                q(Omega) = W^-1(delta I + V V^T, delta + gamma + N_0 + 1).

    Z Z^T may be singular, so the N_0 x N_0 matrix Omega is inferred instead. Followed by a kernel,
    it is a prior on generalised lengthscales (appendix B).

    Args:
        inducing_points: P, the number of inducing inputs.
        learn_scale: As for `FeaturesToGram`.
        constant: As for `FeaturesToGram`.
        delta: Initial delta, positive. The larger it is, the closer is Omega to the identity.
        learn_delta: Whether delta is learned.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: Tensor `[N, N_0]`; more axes are flattened.

    Returns:
        `GramBlocks`, S draws.

    Raises:
        ValueError: As for `FeaturesToGram`, or if `delta` is not positive.
    """

    def __init__(
        self,
        inducing_points: int,
        *,
        learn_scale: bool = True,
        constant: bool = False,
        delta: float = 10.0,
        learn_delta: bool = True,
        **kwargs: Any,
    ):
        super().__init__(inducing_points, learn_scale=learn_scale, constant=constant, **kwargs)
        self.initial_delta = checked_positive("delta", delta)
        self.learn_delta = bool(learn_delta)

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.posterior = InverseWishartPosterior(
            self, self.num_features, self.initial_delta, self.learn_delta
        )

    @property
    def delta(self) -> Tensor:
        """The parameter delta, a scalar tensor."""
        return self.posterior.delta

    def call(self, inputs: Tensor) -> GramBlocks:
        draws = current_draws()
        identity = tf.eye(self.num_features, batch_shape=[1], dtype=self.blocks_dtype)
        factor = self.posterior.sample(draws, identity)
        i, t = self.features(inputs)
        return self._gram(tf.matmul(i, factor), tf.matmul(t, factor))

    def get_config(self) -> Config:
        config = {"delta": self.initial_delta, "learn_delta": self.learn_delta}
        return {**super().get_config(), **config}
