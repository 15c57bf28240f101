"""Variational inference in the space of weights, as a Keras model."""

import math
from collections.abc import Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.layers import calls, networks
from tfp_fnspace.layers.dense import VariationalDense
from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.layers.fourier import RandomFourierFeatures
from tfp_fnspace.layers.per_sample import PerSample
from tfp_fnspace.layers.priors import RELEVANCE
from tfp_fnspace.layers.variational import VariationalLayer
from tfp_fnspace.likelihoods.additive import default_noise
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.math.random import split
from tfp_fnspace.math.row_weights import weighted
from tfp_fnspace.methods.fbnn import equations
from tfp_fnspace.model import GradientModel
from tfp_fnspace.model.annealing import Annealing
from tfp_fnspace.model.whole_numbers import with_real_inputs
from tfp_fnspace.typing import Config, GaussianMoments, Network, Seed, Tensor

#: Assumed number of steps of a first `fit` of unknown length.
_UNKNOWN_STEPS = 3000

#: The least number of steps in which the divergence is introduced by default; short runs are better
#: without it.
_LEAST_ANNEALING = 1000


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
class VariationalModel(GradientModel):
    r"""Bayes by Backprop: a network of variational layers trained by its evidence lower bound.

        elbo = E_q log p(y | f) - KL(q(w) || p(w)),

    where the expectation is over S draws of the weights, and the divergence of all layers has a
    closed form if posterior and prior have one. A step estimates the bound from a batch, by the
    mean over its rows of the expected log-likelihood minus `KL / N`, where N is the number of rows
    that `fit` trains on.

    Args:
        network: Keras model from inputs in model units to f, `[S, N, D]`, with layers of
            `tfp_fnspace.layers` (`layers.from_keras` makes one from a deterministic network), or a
            pair of its symbolic inputs and outputs. Its Keras layers act in training as in Keras
            (dropout, batch normalisation over draws and rows); their noise follows from the seed
            and the step. A row must not depend on the other rows of its batch.
        likelihood: A layer of `tfp_fnspace.likelihoods`. The default is Gaussian noise with a
            learned scale for each column of the targets.
        kl_weight: Factor of the divergence in the loss. With 1 the loss is the negative bound;
            smaller values, such as 0.001, reduce the influence of the prior.
        kl_annealing_steps: Number of steps over which the weight rises linearly to `kl_weight`. The
            default is the first third of the steps of the first `fit`, but at least 1000, so that a
            network has learnt something before the divergence switches units off.
        num_samples: S, the number of draws, in a training step.
        num_eval_samples: S of all predictions.
        standardize: Whether to standardise inputs and targets by the data of the first `fit`; the
            default is true for rows of rank 1 that are not indices.
        seed: Non-negative integer: the same seed gives the same run from the same initial weights.
        **kwargs: `name`, `dtype`.

    Raises:
        TypeError: If `network` is neither of these, or `likelihood` is not a likelihood.
        ValueError: If the network has no variational layers, has layers with a `kl_weight` or with
            `stateful=True`, mixes rows, or ends in probabilities of classes, or if an argument is
            not as described.

    Example:
        >>> inputs = keras.Input((1,))
        >>> hidden = layers.VariationalDense(50, activation="tanh")(inputs)
        >>> model = VariationalModel((inputs, layers.VariationalDense(1)(hidden)))
        >>> history = model.fit(x, y, epochs=100)
        >>> f = model.sample_functions(x, 10)  # [10, N, 1]

    References:
        Blundell et al. (2015), "Weight uncertainty in neural networks", ICML.
    """

    weights_allowed = "positive"
    noise_outputs_allowed = True

    network: Network
    num_samples: int

    def __init__(
        self,
        network: Network | Sequence[Any],
        *,
        likelihood: Likelihood | None = None,
        kl_weight: float = 1.0,
        kl_annealing_steps: int | None = None,
        num_samples: int = 10,
        num_eval_samples: int = 100,
        standardize: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        for name, value in {
            "num_samples": num_samples,
            "num_eval_samples": num_eval_samples,
        }.items():
            setattr(self, name, arguments.checked_count(name, value))
        self.kl_weight = arguments.checked_number("kl_weight", kl_weight, 0.0, inclusive=True)
        if kl_annealing_steps is not None:
            kl_annealing_steps = arguments.checked_count(
                "kl_annealing_steps", kl_annealing_steps, 0
            )
        self.kl_annealing_steps = kl_annealing_steps
        # The inputs and outputs of networks of `from_keras` stay in the user's units, whatever is
        # standardised around them.
        self.in_users_units = getattr(network, "in_users_units", False)
        self.network = _checked_network(network)
        networks.refuse_states(self.network, type(self).__name__)
        networks.refuse_mixed_rows(self.network)
        if getattr(likelihood, "is_classifier", False):
            _refuse_probabilities(self.network)
        if likelihood is None:
            likelihood = default_noise(self.variable_dtype)
        inputs = self.network.inputs
        if standardize is None:
            are_numbers = all("int" not in str(tensor.dtype) for tensor in inputs)
            standardize = len(inputs[0].shape) == 2 and are_numbers
        self.setup(likelihood, standardize, seed)
        self.setup_shapes(inputs, self.network.outputs[0].shape[-1])
        steps = _default_annealing if kl_annealing_steps is None else kl_annealing_steps
        self.annealing = Annealing(steps, dtype=self.variable_dtype)
        calls.refuse_masked_units(self.network, self.standardize)

    # Training ---------------------------------------------------------------------------------

    def default_optimizer(
        self, total_steps: int | None, part: str = "model"
    ) -> keras.optimizers.Optimizer:
        """Makes Adam, with a cosine from 1e-2 to 1e-3 over the first `fit` and 1e-3 after it."""
        steps = total_steps or _UNKNOWN_STEPS
        return keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-2, steps, alpha=0.1))

    def objective(
        self,
        inputs: list[Tensor],
        targets: Tensor,
        num_rows: Tensor,
        seed: Seed,
        row_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Computes the loss and the entries of `History`, see `GradientModel.objective`.

        Returns:
            The loss per row, and `elbo`, `log_likelihood` (expected) and `kl` per row, with `elbo =
            log_likelihood - kl`. The loss is `-elbo` if the weight of the divergence is 1.
        """
        seeds = split(seed, 2)
        with function_draws(self.num_samples, seeds[0], prior=RELEVANCE) as draws:
            moments = GaussianMoments(self._values(inputs, training=True), None)
        log_likelihood = self.likelihood.expected_log_prob(moments, targets, seeds[1])
        log_likelihood = tf.reduce_mean(weighted(log_likelihood, row_weights))
        kl = tf.cast(draws.kl(self.variable_dtype), self.variable_dtype) / num_rows
        loss = -equations.elbo(log_likelihood, kl, self.kl_weight * self.annealed())
        elbo = equations.elbo(log_likelihood, kl)
        parts = {"elbo": elbo, "log_likelihood": log_likelihood, "kl": kl}
        return loss, parts

    # Prediction -------------------------------------------------------------------------------

    def _values(self, inputs, training=False):
        """Draws f in model units, `[S, N, D]`, for a list of inputs in model units.

        With `training`, the Keras layers of the network act as in training: dropout is active, and
        batch normalisation uses the moments of the batch, over draws and rows.
        """
        if self.in_users_units:
            scalers = zip(self.units.input_scalers, inputs, strict=True)
            inputs = [s.inverse(x) if s.enabled else x for s, x in scalers]
            inputs = [
                tf.cast(x, tensor.dtype)
                for x, tensor in zip(inputs, self.network.inputs, strict=True)
            ]
        if isinstance(self.network, keras.Sequential):
            (packed,) = inputs
        else:
            packed = keras.tree.pack_sequence_as(self.network.input, inputs)
        values = tf.cast(self.network(packed, training=training), self.variable_dtype)
        scaler = self.units.function_scaler
        if not self.in_users_units or not scaler.enabled:
            return values
        columns = self.num_target_columns  # further columns describe the noise
        scaled = scaler(values[..., :columns])
        return tf.concat([scaled, values[..., columns:]], axis=-1)

    def call(self, inputs: Any) -> Tensor:
        """Draws f in model units, `[S, N, D]`, for inputs in the user's units."""
        seed = self.counters.seeds.stream("predict")
        return self.functions(self.units.scaled(inputs), self.num_eval_samples, seed)

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        with function_draws(num_samples, seed, noise="joint"):
            return self._values(inputs)

    def moments(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> GaussianMoments:
        return GaussianMoments(self.functions(inputs, num_samples, seed), None)

    def numbers_per_row(self, num_samples: int) -> int:
        shapes = [tensor.shape for layer in self.network.layers for tensor in _outputs(layer)]
        return num_samples * max(math.prod(size or 1 for size in shape) for shape in shapes)

    # Keras ------------------------------------------------------------------------------------

    def get_config(self) -> Config:
        options = ("kl_weight", "kl_annealing_steps", "num_samples", "num_eval_samples")
        options += ("standardize", "seed")
        return {
            "name": self.name,
            "dtype": self.variable_dtype,
            **{name: getattr(self, name) for name in options},
            "likelihood": keras.saving.serialize_keras_object(self.likelihood),
            "network": keras.saving.serialize_keras_object(self.network),
            "in_users_units": self.in_users_units,
        }

    @classmethod
    def from_config(cls, config: Config, custom_objects: dict[str, Any] | None = None) -> Self:
        """Makes a model; the network gets back its units, which Keras does not save."""
        config = dict(config)
        in_users_units = config.pop("in_users_units")
        load = keras.saving.deserialize_keras_object
        config["network"] = load(config["network"], custom_objects=custom_objects)
        config["network"].in_users_units = in_users_units
        return super().from_config(config, custom_objects)


def _default_annealing(total_steps):
    return max((total_steps or 0) // 3, _LEAST_ANNEALING)


def _checked_network(given: Network | Sequence[Any]) -> Network:
    """Returns a network of variational layers whose inputs can hold standardised values."""
    network = networks.functional(given)
    if not any(isinstance(layer, VariationalLayer) for layer in network._flatten_layers()):
        raise ValueError(
            "`network` must have variational layers: `layers.from_keras` makes them from "
            f"deterministic ones. Received: network with {len(network.layers)} layers and none"
        )
    weighted = [
        layer.name
        for layer in network._flatten_layers()
        if isinstance(layer, VariationalLayer) and layer.kl_weight is not None
    ]
    if weighted:
        raise ValueError(
            "A `kl_weight` is for layers of a plain Keras model: this model has the divergence in "
            f"its objective and takes a `kl_weight` itself. Received: layers {weighted} with one"
        )
    if len(network.outputs) != 1 or len(network.outputs[0].shape) != 3:
        shapes = [tuple(tensor.shape) for tensor in network.outputs]
        raise ValueError(
            "`network` must end in function values, one output [S, N, D]. "
            f"Received: outputs of shapes {shapes}"
        )
    computes = VariationalDense | RandomFourierFeatures
    return with_real_inputs(network, lambda layer: isinstance(layer, computes))


def _refuse_probabilities(network):
    """Refuses a network of classes that ends in probabilities instead of logits."""
    last = network.outputs[0]._keras_history.operation
    inner = last.layer if isinstance(last, PerSample) else last
    kinds = keras.activations.softmax, keras.activations.sigmoid
    if isinstance(inner, keras.layers.Softmax) or getattr(inner, "activation", None) in kinds:
        raise ValueError(
            "The network of a likelihood of classes must end in logits, without the softmax or "
            f"sigmoid that converts them to probabilities. Received: layer {last.name!r} at its end"
        )


def _outputs(layer):
    return keras.tree.flatten(layer.output)
