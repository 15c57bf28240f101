"""Networks whose weights have a learned distribution, as processes."""

from typing import Any

import keras

from tfp_fnspace.layers import networks
from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.processes.base import Process, check_width
from tfp_fnspace.typing import Config, Shape


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class VariationalProcess(Process):
    """Functions of a network of variational layers; no density.

        f_s(x) = network(x; w_s),   w_s ~ q(w),   s = 1 ... n

    The distribution q is the posterior of the layers, whose means and scales are trainable weights.
    The process is therefore a Bayesian network as a prior that can be fitted to data. `BNNProcess`
    has a fixed distribution instead. `weight_divergence` is KL(q(w) || p(w)), where p(w) are the
    priors of the layers.

    Args:
        network: Keras model of layers of `tfp_fnspace.layers` from `[N, ...]` to `[n, N, D]`, or
            its serialised form.
        num_outputs: D, a positive integer.
        **kwargs: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: If an argument is not as described; in `sample`, if the network's output is not
            `[n, N, D]`.

    Example:
        >>> network = keras.Sequential(
        ...     [layers.VariationalDense(50, activation="tanh"), layers.VariationalDense(1)]
        ... )
        >>> VariationalProcess(network).sample(x, 100, seed=0)  # [100, N, 1]
    """

    draws_are_functions_of_x = True
    has_weight_divergence = True

    def __init__(self, network: keras.layers.Layer | Config, num_outputs: int = 1, **kwargs: Any):
        super().__init__(num_outputs, **kwargs)
        if isinstance(network, dict):
            network = keras.saving.deserialize_keras_object(network)
        if not isinstance(network, keras.layers.Layer):
            raise ValueError(
                f"`network` must be a Keras model or layer. Received: network={network!r}"
            )
        networks.refuse_acting_in_training(network, type(self).__name__)
        self.network = network

    def build(self, input_shape: Shape) -> None:
        if not self.network.built:
            self.network.build((None, *input_shape[1:]))
        check_width(self.network, input_shape[-1])
        self.built = True

    def _sample(self, x, n, seed):
        with function_draws(n, seed, noise="joint"):
            values = self._cast(self.network(x))
        if len(values.shape) != 3 or values.shape[-1] != self.num_outputs:
            raise ValueError(
                f"The network must give function values [n, N, {self.num_outputs}]. "
                f"Received: output shape={values.shape}"
            )
        return values

    def _weight_divergence(self, x, seed):
        with function_draws(1, seed, noise="joint") as draws:
            self.network(x[:1])
        return self._cast(draws.kl(self.variable_dtype))

    def get_config(self) -> Config:
        network = keras.saving.serialize_keras_object(self.network)
        return {**super().get_config(), "network": network}
