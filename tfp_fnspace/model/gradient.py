"""Training by stochastic gradients, with whole epochs in one compiled loop where possible."""

import math

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import arguments
from tfp_fnspace.callbacks import FiniteLoss, wants_batches
from tfp_fnspace.layers import networks
from tfp_fnspace.math import replicas
from tfp_fnspace.math.random import fold_in
from tfp_fnspace.model.epochs_ahead import EpochsAhead
from tfp_fnspace.model.penalties import penalty, refuse_added_losses
from tfp_fnspace.model.progress import warn_of_no_progress
from tfp_fnspace.model.turns import one_thread_at_a_time
from tfp_fnspace.tracing import traced


def checked_optimizer(name, optimizer):
    """Returns an optimizer of Keras, or `None`.

    Args:
        name: Name of the argument.
        optimizer: An optimizer, its name or its configuration, or `None`.

    Raises:
        ValueError: If it is something else.
    """
    try:
        return None if optimizer is None else keras.optimizers.get(optimizer)
    except (TypeError, ValueError):
        raise ValueError(
            f"`{name}` must be an optimizer of Keras or the name of one"
            f"{arguments.what_it_is(optimizer)}. Received: {name}={optimizer!r}"
        ) from None


#: Folded into the seed of a step; gives the seed of the noise of Keras layers.
_OF_LAYERS = -10


class GradientTraining:
    """Mixin of models whose parameters minimise a stochastic objective.

    A model is declared as `class M(GradientTraining, MixturePrediction, keras.Model)`. This is a
    plain class, as the contract is. A model implements `objective` and creates all its weights
    before the first step; it may override `default_optimizer` and `prepare_training`. The penalties
    of weight regularizers (`kernel_regularizer`) are added to the objective, as Keras adds them to
    a loss.

    Step t draws from `fold_in(seed, t)`, and the order of the rows follows from the seed and the
    epoch. The same seed therefore gives the same run, and a restored run continues it. No row is
    dropped and no batch is padded. The last batch of an epoch may be smaller than the others; it is
    still an unbiased estimate, since objectives are scaled by the number of rows that they are
    given. If the loss of an epoch is not finite, the run ends with a `FloatingPointError`.
    """

    def objective(self, inputs, targets, num_rows, seed):
        """Computes what a step minimises, for one batch, in the graph and in model units.

        Args:
            inputs: List of tensors `[B, ...]`, one for each input; B is not static.
            targets: Tensor `[B, D]`; `[B, 1]` of labels where the likelihood is categorical.
            num_rows: Scalar of the model's dtype, the number N of rows that `fit` trains on. An
                unbiased estimate of a sum over them is `N / B` times the sum over the batch.
            seed: int32 tensor `[2]`, a different one in every step.

        Returns:
            The loss, a scalar, and a dict of scalars for `History`, to which `loss` is added. All
            are in model units. The loss is a negative log density of a row of targets plus any
            other terms that are minimised, also per row. Entries named in `log_densities` are log
            densities of a row. For an epoch, `History` has means weighted by B, in the user's units
            (`logs_in_user_units`).
        """
        raise NotImplementedError

    def default_optimizer(self, total_steps):
        """Makes the optimizer of `compile(optimizer=None)`, before the first step.

        Args:
            total_steps: Number of steps of the first `fit`, or `None` if it is not known.
        """
        return keras.optimizers.Adam(1e-3)

    #: Whether the objective is not a sum over rows, so that replicas cannot share the rows.
    needs_all_rows = False

    #: How many rows of a dataset `prepare_training` receives, if there are that many.
    first_rows = 1

    def prepare_training(self, inputs, targets):
        """Prepares the model with data before its very first step.

        Args:
            inputs: List of arrays `[N, ...]` in the user's units. For a dataset, these are its
                first batches that together have `first_rows` rows.
            targets: Array `[N, D]`, of the same rows.
        """

    #: Whether to call `prepare_with_batches`, which costs a pass over a dataset.
    wants_batches_first = False

    def prepare_with_batches(self, batches):
        """Prepares the model with all the data before its first step, after `prepare_training`.

        Args:
            batches: Iterable of inputs and targets, as for `prepare_training`: the arrays, or all
                batches of a dataset. If the length of the dataset is not known, only the first
                batches.
        """

    # Compiling --------------------------------------------------------------------------------

    def compile(
        self,
        optimizer=None,
        metrics=(),
        num_rows=None,
        jit_compile="auto",
        run_eagerly=False,
        **kwargs,
    ):
        """Configures the optimizer, the metrics and compilation; the method defines the loss.

        Args:
            optimizer: As in Keras. `None` is the method's own optimizer. It is made at the first
                `fit`, when the number of steps is known, and later fits continue with it.
            metrics: Further metrics for `evaluate` and validation.
            num_rows: Number of training rows that the objective is scaled by. The default is the
                number of rows that `fit` receives (a pass over a dataset counts them). It is
                required for generators and endless datasets.
            jit_compile: Whether XLA compiles steps. `"auto"` leaves the choice to Keras, which does
                not use XLA on a CPU, where XLA's Cholesky is slow. Whole epochs are compiled only
                without XLA.
            run_eagerly: Whether to run without graphs.
            **kwargs: Arguments of `keras.Model.compile`, such as `steps_per_execution`.

        Raises:
            ValueError: If a loss is given, or `num_rows` is not a positive integer.
        """
        for name in ("loss", "loss_weights", "weighted_metrics"):
            if kwargs.pop(name, None) is not None:
                raise ValueError(
                    f"`compile` of {type(self).__name__} takes no `{name}`: the objective is the "
                    f"method's. Received: {name}"
                )
        if num_rows is not None:
            arguments.check_count("num_rows", num_rows)
        self._given_rows = None if num_rows is None else int(num_rows)
        optimizer = checked_optimizer("optimizer", optimizer)
        self._forget_functions()
        super().compile(
            metrics=metrics,
            jit_compile=jit_compile,
            run_eagerly=run_eagerly,
            optimizer=optimizer,
            **kwargs,
        )

    def get_compile_config(self):
        if not self.compiled:
            return None
        config = {
            **self._compile_arguments,
            "metrics": self._user_metrics,
            "optimizer": self.optimizer,
            "num_rows": self._given_rows,
        }
        return keras.saving.serialize_keras_object(config)

    def compile_from_config(self, config):
        super().compile_from_config(config)
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.optimized_variables)  # so that its state can be loaded

    # Steps ------------------------------------------------------------------------------------

    def _setup_counters(self, seed):
        super()._setup_counters(seed)
        options = {"trainable": False, "initializer": "zeros", "dtype": "int64"}
        self.training_rows = self.add_weight(name="training_rows", **options)
        vars(self)["_trackers"] = {}  # hidden from Keras: made at the first step

    @property
    def fixed_parts(self):
        """Layers of the model that it does not train, such as a prior.

        Other models may hold and train the same layers, so their `trainable` attribute stays as it
        is.
        """
        return []

    def _trains(self, variable):
        parts = self.fixed_parts
        return variable.trainable and not any(variable is v for p in parts for v in p.variables)

    @property
    def trainable_variables(self):
        """As in Keras, without those of `fixed_parts`."""
        return [v for v in self.variables if self.trainable and self._trains(v)]

    @property
    def non_trainable_variables(self):
        """As in Keras, with those of `fixed_parts`."""
        return [v for v in self.variables if not (self.trainable and self._trains(v))]

    @property
    def trainable_weights(self):
        """As in Keras, without those of `fixed_parts`."""
        return [v for v in self.weights if self.trainable and self._trains(v)]

    @property
    def non_trainable_weights(self):
        """As in Keras, with those of `fixed_parts`."""
        return [v for v in self.weights if not (self.trainable and self._trains(v))]

    @property
    def optimized_variables(self):
        """The variables that the optimizer of the model trains."""
        return self.trainable_variables

    def update(self, inputs, targets):
        """Runs one step of the optimizer, in the graph and in model units; see `objective`.

        Returns:
            Dict with the loss and the parts.
        """
        seed = fold_in(tf.convert_to_tensor(self.seed_state), self.steps_seen.value)
        self._seed_layers(seed)
        num_rows = tf.cast(self.training_rows.value, self.variable_dtype)
        variables = self.optimized_variables
        with tf.GradientTape() as tape:
            loss, parts = self.objective(inputs, targets, num_rows, seed)
            refuse_added_losses(self)
            loss += penalty(variables, loss.dtype)
            # The optimizer adds the losses of the replicas, each of which is a mean over its rows.
            scaled_loss = self.optimizer.scale_loss(loss * replicas.weight(loss.dtype))
        gradients = tape.gradient(scaled_loss, variables)
        # Keras runs a step without data at the end of a generator, which must not count.
        with tf.control_dependencies([loss]):
            self.optimizer.apply(gradients, variables)
            self.steps_seen.assign_add(1)
        return {"loss": loss, **parts}

    def _seed_layers(self, seed):
        """Seeds the noise of Keras layers (such as dropout) with the seed of a step."""
        for i, generator in enumerate(networks.seed_generators(self)):
            own = tf.bitcast(fold_in(fold_in(seed, _OF_LAYERS), i), tf.uint32)
            generator.state.assign(tf.cast(own, generator.state.dtype))

    def train_step(self, data):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if sample_weight is not None:
            self._refuse_weights(sample_weight=sample_weight)
        targets = self.target_scaler(self._as_columns(y))
        with replicas.sharing([*self.scaled(x), targets], self.needs_all_rows) as tensors:
            *inputs, targets = tensors
            parts = replicas.averaged(self.update(inputs, targets))
        rows = replicas.summed(tf.shape(y)[0])
        for name, value in self.logs_in_user_units(parts).items():
            self._part_mean(name).update_state(value, rows)
        return {name: tracker.result() for name, tracker in self._trackers.items()}

    def _part_mean(self, name):
        if name not in self._trackers:
            self._trackers[name] = keras.metrics.Mean(name, dtype=self.variable_dtype)
        return self._trackers[name]

    def _make_trackers(self):
        """Makes the trackers before replicas are traced, which cannot make them.

        A trace gives their names.
        """
        specs = self._epoch_signature()[:2]
        seed = tf.zeros([2], tf.int32)
        one = tf.ones([], self.variable_dtype)
        function = traced(lambda x, y: self.objective(x, y, one, seed))
        _, parts = function.get_concrete_function(*specs).structured_outputs
        for name in ("loss", *parts):
            self._part_mean(name)

    @property
    def _training_metrics(self):
        return list(self._trackers.values())

    def train_epochs(self, inputs, targets, orders, batch_size):
        """Runs all batches of some epochs, in one loop in the graph, in model units.

        Args:
            inputs: List of tensors `[N, ...]`.
            targets: Tensor `[N, D]`.
            orders: int32 tensor `[E, N]`, the order of the rows in each epoch.
            batch_size: Scalar int32 tensor.

        Returns:
            Dict of the loss and the parts, means over the rows, `[E]`, in the user's units.
        """
        num_epochs, num_rows = tf.unstack(tf.shape(orders))
        num_batches = -(-num_rows // batch_size)
        num_steps = num_epochs * num_batches
        names = []

        def body(step, values, counts):
            start = step % num_batches * batch_size
            rows = orders[step // num_batches, start : start + batch_size]
            parts = self.update([tf.gather(x, rows) for x in inputs], tf.gather(targets, rows))
            names[:] = parts
            stacked = tf.stack([tf.cast(part, targets.dtype) for part in parts.values()])
            count = tf.cast(tf.shape(rows)[0], targets.dtype)
            return step + 1, values.write(step, stacked), counts.write(step, count)

        arrays = [tf.TensorArray(targets.dtype, size=num_steps) for _ in range(2)]
        _, values, counts = tf.while_loop(
            lambda step, *_: step < num_steps, body, (tf.constant(0), *arrays)
        )
        weights = tf.reshape(counts.stack(), [num_epochs, num_batches])
        values = tf.reshape(values.stack(), [num_epochs, num_batches, len(names)])
        means = tf.linalg.matvec(
            values, weights / tf.cast(num_rows, values.dtype), transpose_a=True
        )
        return self.logs_in_user_units({name: means[:, i] for i, name in enumerate(names)})

    # Fitting ----------------------------------------------------------------------------------

    def _prepare_steps(self, num_rows, total_steps):
        """Sets the number of rows and makes the optimizer, before callbacks may load its state."""
        num_rows = self._given_rows or num_rows or int(self.training_rows.numpy())
        if not num_rows:
            raise ValueError(
                "The objective is scaled by the number of training rows: pass it to "
                "`compile(num_rows=...)`, or `fit` arrays or a finite dataset first. "
                "Received: data of unknown length"
            )
        self.training_rows.assign(num_rows)
        with self.distribute_strategy.scope():
            if self.optimizer is None:
                self.optimizer = self._loss_scaled(self.default_optimizer(total_steps))
            if not self.optimizer.built:
                self.optimizer.build(self.optimized_variables)
            if self.distribute_strategy.num_replicas_in_sync > 1 and not self._trackers:
                self._make_trackers()
        trained = [id(variable) for variable in self.optimized_variables]
        if self._epoch_function is None or trained != self._trained:
            self._forget_functions()
            function = traced(self.train_epochs, input_signature=self._epoch_signature())
            vars(self).update(_epoch_function=function, _trained=trained)

    def _loss_scaled(self, optimizer):
        """Returns an optimizer with the loss scaling that Keras needs in mixed precision."""
        is_half = self.dtype_policy.name == "mixed_float16"
        return keras.optimizers.LossScaleOptimizer(optimizer) if is_half else optimizer

    def _forget_functions(self):
        """Drops functions that were traced with another optimizer or other trainable weights."""
        self.train_function = None
        vars(self)["_epoch_function"] = None  # hidden from Keras's tracking, which would export it

    def _epoch_signature(self):
        """Returns a signature whose one trace serves any number of rows and any batch size."""
        scalers = [*self.input_scalers, self.target_scaler]
        dtypes = [scaler.variable_dtype for scaler in scalers]
        shapes = [tensor.shape[1:] for tensor in self.input_tensors] + [(self.num_target_columns,)]
        specs = [tf.TensorSpec((None, *s), d) for s, d in zip(shapes, dtypes, strict=True)]
        orders, batch_size = (tf.TensorSpec(shape, tf.int32) for shape in ([None, None], []))
        return [specs[:-1], specs[-1], orders, batch_size]

    def _epoch_callbacks(self, callbacks, initial_epoch):
        return [FiniteLoss(), *super()._epoch_callbacks(callbacks, initial_epoch)]

    def _compiles_epochs(self, callbacks):
        """Returns whether nothing needs control between the batches of an epoch."""
        own_step = type(self).train_step is GradientTraining.train_step
        one_device = self.distribute_strategy.num_replicas_in_sync == 1
        graph = not self.run_eagerly and not self.jit_compile
        return own_step and one_device and graph and not any(map(wants_batches, callbacks))

    def _fit_arrays(self, inputs, targets, batch_size, shuffle, options):
        history = self._run_epochs(inputs, targets, batch_size, shuffle, options)
        warn_of_no_progress(self, history.history, targets)
        return history

    def _run_epochs(self, inputs, targets, batch_size, shuffle, options):
        if not self.steps_seen.numpy():
            self._prepare_with_rows(inputs, targets)
        num_batches = -(-len(targets) // batch_size)
        epochs = options["epochs"] - options["initial_epoch"]
        self._prepare_steps(len(targets), epochs * num_batches)
        if not self._compiles_epochs(options["callbacks"]):
            return super()._fit_arrays(inputs, targets, batch_size, shuffle, options)
        arguments = [
            self.scaled([tf.constant(x) for x in inputs]),
            self.target_scaler(tf.constant(targets)),
        ]

        def run(count):
            orders = [self.epoch_order(len(targets), shuffle, ahead) for ahead in range(count)]
            orders = np.stack(orders)[:, self._first_batch * batch_size :]
            orders = tf.constant(orders, tf.int32)
            return self._epoch_function(*arguments, orders, tf.constant(batch_size, tf.int32))

        train_epoch = EpochsAhead(run, epochs, _looks_every(options), options["initial_epoch"])
        return self._fit_epochs(train_epoch, inputs, targets, options, num_batches)

    def _prepare_with_rows(self, inputs, targets):
        self.prepare_training(inputs, targets)
        if self.wants_batches_first:
            self.prepare_with_batches([(inputs, targets)])

    def _fit_stream(self, stream, steps_per_epoch, options):
        num_rows = stream.count_rows() if self._given_rows is None else None
        num_batches = steps_per_epoch or stream.count_batches()
        epochs = options["epochs"] - options["initial_epoch"]
        if not self.steps_seen.numpy():
            parts = stream.first_batches(self.first_rows)
            inputs = [
                np.concatenate(each) for each in zip(*(part[0] for part in parts), strict=True)
            ]
            self.prepare_training(inputs, np.concatenate([part[1] for part in parts]))
            if self.wants_batches_first:
                is_finite = stream.count_batches() is not None
                self.prepare_with_batches(stream.batches() if is_finite else parts)
        self._prepare_steps(num_rows, epochs * num_batches if num_batches else None)
        return super()._fit_stream(stream, steps_per_epoch, options)

    @one_thread_at_a_time
    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        """Runs one step on one batch; continues a fitted model.

        The objective is scaled by the number of rows of the last `fit`, or `compile(num_rows=...)`.
        """
        self._check_ready()
        self._ensure_compiled()
        inputs, targets = self._check_data(x, y)
        if not self.steps_seen.numpy():
            self._prepare_with_rows(inputs, targets)
        self._prepare_steps(None, None)
        return super().train_on_batch(x, y, sample_weight, class_weight, return_dict)


def _looks_every(options):
    """Returns the epochs after which a callback may read the weights, 1 unless all allow more.

    A callback with `allows_ahead` never reads them, or states in `looks_every` how often it does.
    """
    callbacks = options["callbacks"]
    if options["validation_data"] is not None:
        return 1
    if not all(getattr(callback, "allows_ahead", False) for callback in callbacks):
        return 1
    every = [getattr(callback, "looks_every", None) for callback in callbacks]
    return math.gcd(*filter(None, every)) or options["epochs"]
