"""TAGI as a Keras model."""

import functools
import math
from collections.abc import Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_choice, checked_count
from tfp_fnspace.callbacks import refuse_learning_rates
from tfp_fnspace.layers import calls
from tfp_fnspace.likelihoods import HeteroscedasticGaussian
from tfp_fnspace.likelihoods.additive import default_noise
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.methods.tagi import (
    graph,
    inverse,
    noise,
    options,
    sampling,
    training,
)
from tfp_fnspace.methods.tagi.chain import CovarianceChain
from tfp_fnspace.methods.tagi.layers.base import TAGILayer
from tfp_fnspace.methods.tagi.learned_noise import LearnedNoise
from tfp_fnspace.model import FunctionSpaceModel, loops
from tfp_fnspace.model.whole_numbers import with_real_inputs
from tfp_fnspace.typing import (
    Array,
    ArrayLike,
    Config,
    GaussianMoments,
    Network,
    Rows,
    Seed,
    Tensor,
)


@keras.saving.register_keras_serializable(package="tfp_fnspace.tagi")
class TAGIModel(FunctionSpaceModel):
    r"""Bayesian neural network with closed-form Gaussian inference (TAGI).

    Weights and units are independent Gaussians. A batch is learnt in three steps: a forward pass of
    moments, the innovations of the outputs given the targets, and a backward pass of innovations
    (equations 14 to 16 of the paper, in `tfp_fnspace.methods.tagi.equations`). There is no loss, no
    optimizer and no learning rate; the posterior after a batch is the prior for the next batch. The
    order of the rows therefore matters. Each additional epoch counts the data once more (empirical
    Bayes, section 2.4), so stop early on `val_nll`. `train_on_batch` after `fit` continues the
    posterior online.

    Args:
        inputs: `keras.Input`, or a list of them. If a layer takes an input as the second of a
            `(mean, variance)` pair, it is the variance of the first, in the user's units squared. A
            Keras model of TAGI layers, for example `keras.Sequential`, may be given instead of
            inputs and outputs.
        outputs: `GaussianMoments` of shape `(N, D)` from a TAGI layer.
        likelihood: Observation model of `tfp_fnspace.likelihoods`: `Gaussian` (with
            `trainable=True` its scale is learnt with the weights), `HeteroscedasticGaussian`,
            `HierarchicalCategorical`, `Categorical` or `Remax`; or, with `trainable=False` or a
            rule of `noise`, `LogNormal`, `CensoredGaussian`, `CensoredLogNormal`,
            `IntervalCensoredGaussian` or `IntervalCensoredLogNormal`. The default is Gaussian noise
            with a scale for each column of the targets, which is learnt, or chosen as `noise` says.
        update: `"capped"` sums the innovations over a batch and limits each change to
            `sqrt(variance) / cap` (cap 0.1 for one row, 2 up to 255 rows, 3 from 256).
            `"exact"` is the paper's recursion, one row at a time without caps, in one compiled
            loop. Every split of the same rows into batches then gives the same posterior.
        noise: `None` keeps the likelihood's scale. `"cross_validate"` chooses it at the first
            `fit` by 5-fold cross-validation with the same epochs and batches, searching from the
            likelihood's scale. A `keras.optimizers.schedules.LearningRateSchedule` anneals it; the
            schedule is evaluated at the number of finished epochs.
        input_stddev: Standard deviation of the noise on the inputs, in model units: a
            non-negative number or one per feature; `None` for exactly known inputs.
        covariance: With `"diagonal"`, all units and parameters are independent. With `"full"`, the
            units of a layer have a full covariance, at the cost of their number squared for each
            row. With `"full_parameters"`, the parameters of a layer also have a full covariance;
            this is for small networks and `update="exact"`. The last two require a chain of dense
            layers (`tfp_fnspace.methods.tagi.covariance`).
        standardize: Whether to standardise inputs and targets by the data of the first `fit`; the
            default is true for inputs of rank 2. Indices of an `Embedding`, and integers for a
            Keras layer that encodes them, are never standardised.
        seed: Non-negative integer that determines the initial means and the order of rows, so that
            the same seed gives the same run. Means that were assigned, loaded or trained are not
            drawn again. `None` keeps all layers as they are.
        **kwargs: `name`.

    Raises:
        MemoryError: If full covariances of parameters do not fit into memory.
        TypeError: If there are no outputs, or `likelihood` is not a likelihood.
        ValueError: If the graph has ordinary trainable layers, passes moments through an ordinary
            layer, or does not end in moments, or if an argument is unknown.

    Example:
        >>> inputs = keras.Input((13,))
        >>> hidden = tfp_fnspace.tagi.Dense(50, activation="relu")(inputs)
        >>> outputs = tfp_fnspace.tagi.Dense(1)(hidden)
        >>> model = tfp_fnspace.tagi.TAGIModel(inputs, outputs)

    References:
        Goulet, Nguyen & Amiri (2021), "Tractable Approximate Gaussian Inference for Bayesian
        Neural Networks", JMLR 22(251).
    """

    noise_outputs_allowed = True

    @property
    def weights_allowed(self) -> str:
        """Whole numbers for the exact update, which learns copies of a row one by one."""
        return "whole" if self.update == "exact" else "positive"

    observation_model: Any  # a likelihood with an `innovation`
    _noisy_network: Network

    def __init__(
        self,
        inputs: Any,
        outputs: Any = None,
        *,
        likelihood: Likelihood | None = None,
        update: str = "capped",
        noise: options.Noise | Config = None,
        input_stddev: ArrayLike = None,
        covariance: str = "diagonal",
        standardize: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        # Without `inputs`, Keras does not change the bases of this class and its parents.
        super().__init__(autocast=False, **kwargs)
        self.update = checked_choice("update", update, ("capped", "exact"))
        self.noise = options.checked_noise(noise)
        self.noise_scores = []
        inputs, outputs = graph.ends(inputs, outputs)
        self.network = network = _checked_network(inputs, outputs)
        self.input_roles = graph.input_roles(network)
        self.index_inputs = graph.index_inputs(network)
        self.batch_rows = graph.batch_rows(network)
        if self.update == "exact" and self.batch_rows not in (None, 1):
            raise ValueError(
                "update='exact' takes rows one by one: a stateful layer needs inputs with "
                f"batch_size=1. Received: batch_size={self.batch_rows}"
            )
        if likelihood is None:
            likelihood = default_noise(self.variable_dtype, trainable=noise is None)
        if standardize is None:
            standardize = len(network.inputs[0].shape) == 2
        self.setup(likelihood, standardize, seed)
        options.check_likelihood(likelihood, self.noise)
        if likelihood.has_link:
            likelihood.trainable = False  # a rule chooses the scale if it was trainable
        may_miss = not (likelihood.is_classifier or likelihood.targets_are_limits)
        self.missing_targets_allowed = may_miss
        self.setup_shapes(network.inputs, network.outputs[0].shape[-1])
        calls.refuse_masked_units(network, self.standardize)
        self.learned_noise, observation_model = None, likelihood
        if getattr(likelihood, "learns_scale", False):
            self.learned_noise = LearnedNoise(likelihood, dtype=self.dtype_policy)
            observation_model = HeteroscedasticGaussian(self.learned_noise.min_scale)
        vars(self)["observation_model"] = observation_model  # hidden from Keras
        self.input_stddev = options.checked_input_stddev(
            input_stddev, self.input_tensors, self.input_roles
        )
        if self.input_stddev is not None:
            self.noisy_network()
        self.tagi_layers = graph.tagi_layers(network)
        self.covariance = options.checked_covariance(
            covariance, self.update, likelihood, self.input_roles
        )
        self.chain = None
        if self.covariance != "diagonal":
            joint = self.covariance == "full_parameters"
            self.chain = CovarianceChain(network, joint, dtype=self.dtype_policy)
        self.epochs = training.CompiledEpochs(self)
        for name in ("train_nll", "train_mse"):
            self.step_metrics[name] = keras.metrics.Mean(name, dtype="float64")
        for i, layer in enumerate(self.tagi_layers):
            if seed is not None and layer.fresh:
                layer.redraw(self.counters.seeds.of_layer(i))

    def adapt_noise(self, unit: Array) -> None:
        super().adapt_noise(unit)
        if self.learned_noise is not None:
            self.learned_noise.adapt(self.likelihood)

    # Forward ----------------------------------------------------------------------------------

    def moments(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> GaussianMoments:
        return self.network_moments(inputs)

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        return sampling.functions(self, inputs, num_samples, seed)

    def numbers_per_row(self, num_samples: int) -> int:
        layers = self.network.layers
        tensors = [t for layer in layers for t in keras.tree.flatten(layer.output)]
        return num_samples * max(math.prod(n or 1 for n in t.shape[1:]) for t in tensors)

    def network_moments(self, inputs: list[Tensor]) -> GaussianMoments:
        """Returns the moments of the outputs; inputs and outputs are in model units.

        Args:
            inputs: List of tensors `[N, ...]`.
        """
        variance = self.input_variance()
        if self.chain is not None:
            return self._cast(self.chain.moments(inputs[0], variance))
        if variance is None:
            return self._cast(self.network(inputs))
        pairs = [[x, tf.broadcast_to(variance, tf.shape(x))] for x in inputs]
        return self._cast(self.noisy_network()([part for pair in pairs for part in pair]))

    def noisy_network(self) -> Network:
        """Returns `network` as a graph that takes a mean and a variance for each input."""
        if "_noisy_network" not in vars(self):
            # Hidden from Keras's tracking: the layers are those of `network`, which saves them.
            vars(self)["_noisy_network"] = graph.with_uncertain_inputs(self.network)
        return self._noisy_network

    def _cast(self, moments):
        return GaussianMoments(*(tf.cast(part, self.variable_dtype) for part in moments))

    def input_variance(self) -> Tensor | None:
        """Returns the variance that `input_stddev` gives to plain inputs, or `None`."""
        if self.input_stddev is None:
            return None
        return tf.square(tf.constant(self.input_stddev, self.variable_dtype))

    def with_learned_noise(self, moments: GaussianMoments) -> GaussianMoments:
        """Returns the moments for `observation_model`: those of f, then those of a learnt noise."""
        return moments if self.learned_noise is None else self.learned_noise.behind(moments)

    # Training ---------------------------------------------------------------------------------

    def compile(
        self,
        metrics: Sequence[Any] = (),
        jit_compile: bool | str = "auto",
        run_eagerly: bool = False,
        **kwargs: Any,
    ) -> None:
        """Configures metrics and compilation; TAGI has no loss and no optimizer.

        Args:
            metrics: Further metrics for `evaluate` and validation.
            jit_compile: Whether XLA compiles. `"auto"` compiles epochs of in-memory data (an epoch
                is one compiled loop), except with convolutions on a CPU, which XLA runs slowly in
                loops. Keras decides about other steps. `False` compiles nothing, `True` everything.
            run_eagerly: Whether to run without graphs.
            **kwargs: Refused.

        Raises:
            ValueError: If a loss or an optimizer is given.
        """
        refused = {name: value for name, value in kwargs.items() if value is not None}
        if self.update == "exact" and self.distribute_strategy.num_replicas_in_sync > 1:
            raise ValueError(
                "update='exact' takes rows one by one and cannot run on several replicas. "
                f"Received: {self.distribute_strategy.num_replicas_in_sync} replicas"
            )
        if refused:
            raise ValueError(
                "TAGI's update is closed form: it takes no loss, optimizer or other option. "
                f"Received: {', '.join(f'{k}={v!r}' for k, v in refused.items())}"
            )
        super().compile(metrics=metrics, jit_compile=jit_compile, run_eagerly=run_eagerly)
        self.epochs.configure(jit_compile)

    @property
    def trainable_layers(self) -> list[TAGILayer]:
        """The layers that an update changes."""
        layers = [layer for layer in self.tagi_layers if layer.trainable]
        if self.learned_noise is None or not self.likelihood.trainable:
            return layers
        return [*layers, self.learned_noise]

    @property
    def parameter_variables(self) -> list[keras.Variable]:
        """All variables that an update changes: moments of parameters, and the states of layers."""
        layers = self.trainable_layers
        parameters = [part for layer in layers for pair in layer.parameters for part in pair]
        correlations = [] if self.chain is None else self.chain.correlations
        return [*parameters, *(v for layer in layers for v in layer.state), *correlations]

    def train_step(self, data: Any) -> dict[str, Tensor]:
        x, y, row_weights = keras.utils.unpack_x_y_sample_weight(data)
        inputs = self.units.scaled(x)
        targets = self.units.target_scaler(self.checks.as_columns(y))
        if self.update == "exact":
            rows = tf.range(tf.shape(targets)[0])
            if row_weights is not None:
                rows = tf.repeat(rows, tf.cast(row_weights, tf.int32))
            index, counts = rows[:, tf.newaxis], tf.ones_like(rows)
            sums = training.epoch(self, inputs, targets, index, counts, tf.shape(rows)[0])
        else:
            if row_weights is not None:
                row_weights = tf.cast(row_weights, targets.dtype)
            sums = training.observe(self, inputs, targets, row_weights=row_weights)
        self.counters.steps.assign_add(1)
        return self._logs(sums)

    def _logs(self, sums):
        """Updates and returns the running means of the epoch, given the sums of one batch."""
        log_likelihood, squared_error, rows, entries = sums
        likelihood, error = self.step_metrics.values()
        likelihood.update_state(tf.math.divide_no_nan(log_likelihood, rows), rows)
        error.update_state(tf.math.divide_no_nan(squared_error, entries), entries)
        return self._named_logs(likelihood.result(), error.result())

    def _named_logs(self, log_likelihood, error):
        logs = {"loss": -log_likelihood, "log_likelihood": log_likelihood}
        if self.likelihood.is_classifier:
            return {**logs, "accuracy": 1.0 - error}
        if self.likelihood.targets_are_limits:
            return logs  # few values may be known, or none
        return {**logs, "rmse": tf.sqrt(error)}

    def run_arrays(
        self,
        inputs: list[Array],
        targets: Array,
        batch_size: int,
        shuffle: bool,
        options: dict[str, Any],
        row_weights: Array | None = None,
    ) -> keras.callbacks.History:
        self.checks.batch_size(batch_size)
        if self.noise == "cross_validate" and not self.counters.has_steps:
            epochs = options["epochs"] - options["initial_epoch"]
            scale, self.noise_scores = noise.cross_validate(
                self,
                inputs,
                targets,
                epochs,
                batch_size,
                shuffle,
                verbose=options["verbose"],
                row_weights=row_weights,
            )
            self.likelihood.set_scale(scale)
        if not loops.may_run_whole_epochs(self, TAGIModel, options["callbacks"]):
            return loops.by_batches(
                self, inputs, targets, batch_size, shuffle, options, row_weights
            )
        learner = self.epochs.learner(inputs, targets, batch_size, row_weights)
        num_batches, counters = -(-len(targets) // batch_size), self.counters

        def train_epoch():
            order = counters.epoch_order(len(targets), shuffle)
            order = order[counters.first_batch * batch_size :]
            log_likelihood, squared_error, rows, entries = learner(order, count_steps=True)
            return self._named_logs(
                tf.math.divide_no_nan(log_likelihood, rows),
                tf.math.divide_no_nan(squared_error, entries),
            )

        return loops.by_epochs(self, train_epoch, inputs, targets, options, num_batches)

    @property
    def needs_arrays(self) -> str | None:
        if self.noise == "cross_validate" and not self.counters.has_steps:
            return "noise='cross_validate' needs arrays, which can be split into folds."
        return None

    def callbacks_of_fit(
        self, given: list[keras.callbacks.Callback]
    ) -> list[keras.callbacks.Callback]:
        refuse_learning_rates(
            given, "TAGI has no learning rate to schedule; `noise=` takes a schedule."
        )
        schedule = keras.optimizers.schedules.LearningRateSchedule
        return [noise.Schedule(self.noise)] if isinstance(self.noise, schedule) else []

    # Inputs -----------------------------------------------------------------------------------

    def with_variances(self) -> Self:
        """Returns a model with the same posterior that also takes the variance of each input.

        The two models share layers, noise and standardisation, so each knows what the other learns.

        Returns:
            `TAGIModel` with a mean and a variance (in the user's units squared) for each input of
            this model.

        Raises:
            ValueError: If an input goes to anything but TAGI layers.

        Example:
            >>> inputs = keras.Input((1,))
            >>> outputs = tfp_fnspace.tagi.Dense(1)(inputs)
            >>> model = tfp_fnspace.tagi.TAGIModel(
            ...     inputs, outputs, likelihood=tfp_fnspace.likelihoods.Gaussian(0.3)
            ... )
            >>> history = model.fit(x, y, epochs=2, batch_size=4, verbose=0)
            >>> mean = model.with_variances().predict([x, 0.1 * np.ones_like(x)])["mean"]  # [12, 1]
        """
        self.check_ready()
        network = graph.with_uncertain_inputs(self.network)
        twin = type(self)(
            network.inputs,
            GaussianMoments(*network.outputs),
            likelihood=self.likelihood,
            update=self.update,
            standardize=self.standardize,
        )
        twin.learned_noise = self.learned_noise
        new = [*twin.units.input_scalers[::2], twin.units.target_scaler]
        for scaler, own in zip(new, self.units.scalers, strict=True):
            scaler.set_weights(own.get_weights())
        return twin

    def input_gradient(self, x: Rows, batch_size: int = 1024) -> Array:
        """Returns the derivative of the mean of f with respect to the inputs.

        Args:
            x: Array `[N, D_in]`; the model has one input of rank 2.
            batch_size: Rows evaluated at a time.

        Returns:
            NumPy array `[N, D, D_in]` in the user's units.

        Raises:
            ValueError: If the model has several inputs or one of another rank, or `batch_size` is
                not a positive integer.
        """
        batch_size = checked_count("batch_size", batch_size)
        inverse.check_one_input(self, "input_gradient")
        jacobian = functools.partial(inverse.jacobian, self)
        parts = self.in_batches(jacobian, self.checked_inputs(x), batch_size)
        return np.concatenate([part.numpy() for part in parts])

    def infer_inputs(self, x_mean: Rows, x_variance: Rows, y: Rows) -> GaussianMoments:
        r"""Returns the posterior of uncertain inputs given targets (the inverse problem).

        The inputs are independent Gaussians, and the targets follow the likelihood given f. The
        innovations of the outputs pass back to the inputs (equation 15 of the paper, one layer
        further than in training). The posterior moments are `m + S dm` and `S + S^2 dS`, or with
        full covariances `m + S d` and the diagonal of `S + S G S`. This is exact for a linear
        network with known weights and `covariance="full"`. Other networks are linearised near the
        prior mean, so a prior that is too wide gives misleading results. The model itself does not
        change.

        Args:
            x_mean: Array `[N, X]`, prior means in the user's units.
            x_variance: Array `[N, X]`, prior variances in the user's units squared.
            y: Targets, as for `fit`; NaN is not observed.

        Returns:
            `GaussianMoments` of NumPy arrays `[N, X]` in the user's units.

        Raises:
            ValueError: If the model has several inputs or one of another rank, or data are bad.
        """
        checked = inverse.checked_prior(self, x_mean, x_variance, y)
        moments = inverse.posterior(self, *map(tf.constant, checked))
        return GaussianMoments(*(part.numpy() for part in moments))

    # Keras ------------------------------------------------------------------------------------

    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Prints the layers of the network, as `keras.Model.summary` does."""
        return self.network.summary(*args, **kwargs)

    def get_layer(self, name: str | None = None, index: int | None = None) -> keras.layers.Layer:
        """Returns a layer of the network by name or index, as `keras.Model.get_layer` does."""
        return self.network.get_layer(name=name, index=index)

    def get_config(self) -> Config:
        noise_rule = self.noise
        if isinstance(noise_rule, keras.optimizers.schedules.LearningRateSchedule):
            noise_rule = keras.optimizers.schedules.serialize(noise_rule)
        return {
            "name": self.name,
            "network": keras.saving.serialize_keras_object(self.network),
            "likelihood": keras.saving.serialize_keras_object(self.likelihood),
            "update": self.update,
            "noise": noise_rule,
            "input_stddev": self.input_stddev,
            "covariance": self.covariance,
            "standardize": self.standardize,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: Config, custom_objects: dict[str, Any] | None = None) -> Self:
        config = dict(config)
        load = keras.saving.deserialize_keras_object
        network = load(config.pop("network"), custom_objects=custom_objects)
        config["likelihood"] = load(config["likelihood"], custom_objects=custom_objects)
        return cls(network.inputs, network.outputs, **config)


def _checked_network(inputs: Any, outputs: Any) -> Network:
    network = keras.Model(tf.nest.flatten(inputs), tf.nest.flatten(outputs), name="network")
    graph.check_network(network)
    return with_real_inputs(network, graph.computes_with_inputs)
