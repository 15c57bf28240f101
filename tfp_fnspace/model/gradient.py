"""Training by stochastic gradients, with whole epochs in one compiled loop where possible."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.boundary.streams import Batch, CheckedStream
from tfp_fnspace.callbacks import FiniteLoss, allows_ahead
from tfp_fnspace.math import replicas
from tfp_fnspace.model import checks, loops
from tfp_fnspace.model.annealing import Annealing
from tfp_fnspace.model.base import FunctionSpaceModel
from tfp_fnspace.model.epochs_ahead import EpochsAhead
from tfp_fnspace.model.fitting import batch_of
from tfp_fnspace.model.penalties import penalty, refuse_added_losses
from tfp_fnspace.model.progress import warn_of_no_progress
from tfp_fnspace.model.seeds import seed_layers
from tfp_fnspace.tracing import traced
from tfp_fnspace.typing import Array, ArrayLike, Config, Rows, Seed, Tensor


def checked_optimizer(name: str, optimizer: Any) -> keras.optimizers.Optimizer | None:
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


class GradientModel(FunctionSpaceModel):
    """A model whose parameters minimise a stochastic objective.

    A model implements `objective` and creates all its weights before the first step; it may
    override `default_optimizer` and `prepare`. The penalties of weight regularizers
    (`kernel_regularizer`) are added to the objective, as Keras adds them to a loss.

    A model has one part that is trained, or several with an optimizer and a loss each, as in
    adversarial training: `trained_parts`.

    Step t draws from `fold_in(seed, t)`, and the order of the rows follows from the seed and the
    epoch. The same seed therefore gives the same run, and a restored run continues it. No row is
    dropped and no batch is padded. The last batch of an epoch may be smaller than the others; it is
    still an unbiased estimate, since objectives are scaled by the number of rows that they are
    given. If the loss of an epoch is not finite, the run ends with a `FloatingPointError`.
    """

    #: Layers of the model that it does not train, see `fix`.
    fixed_parts: Sequence[keras.layers.Layer] = ()

    #: How many rows of a dataset `prepare` receives, if there are that many.
    rows_to_prepare = 1

    #: Whether the objective is not a sum over rows, so that replicas cannot share the rows.
    needs_all_rows = False

    #: `Annealing` of a divergence in the objective, if the method has one.
    annealing: Annealing | None = None

    _given_rows: int | None
    _epoch_functions: dict[bool, Any]
    _trained: list[int] | None

    # Hooks ------------------------------------------------------------------------------------

    def objective(
        self, inputs: list[Tensor], targets: Tensor, num_rows: Tensor, seed: Seed
    ) -> tuple[Tensor | dict[str, Tensor], dict[str, Tensor]]:
        """Computes what a step minimises, for one batch, in the graph and in model units.

        A method with `weights_allowed` has a further argument, `row_weights=None`: a tensor `[B]`
        of weights with mean 1 over all rows, by which `weighted` multiplies the term of each row.
        It is passed if the user gives weights; `num_rows` is then the sum of the user's weights.

        Args:
            inputs: List of tensors `[B, ...]`, one for each input; B is not static.
            targets: Tensor `[B, D]`; `[B, 1]` of labels where the likelihood is categorical.
            num_rows: Scalar of the model's dtype, the number N of rows that `fit` trains on. An
                unbiased estimate of a sum over them is `N / B` times the sum over the batch.
            seed: int32 tensor `[2]`, a different one in every step.

        Returns:
            The loss, a scalar, and a dict of scalars for `History`, to which `loss` is added. The
            loss is a negative log density of a row of targets plus any other terms that are
            minimised, also per row. The entries `elbo` and `log_likelihood` are log densities of a
            row. For an epoch, `History` has means weighted by B. With several `trained_parts`, a
            dict of their losses in place of the loss; that of "model" is the loss of `History`.
        """
        raise NotImplementedError

    def default_optimizer(
        self, total_steps: int | None, part: str = "model"
    ) -> keras.optimizers.Optimizer:
        """Makes the optimizer of `compile(optimizer=None)`, before the first step.

        Args:
            total_steps: Number of steps of the first `fit`, or `None` if it is not known.
            part: Name of the part, see `trained_parts`.
        """
        return keras.optimizers.Adam(1e-3)

    def trained_parts(self) -> dict[str, list[keras.Variable]]:
        """Returns the variables of each part that is trained, a dict of lists; one is "model"."""
        return {"model": self.trainable_variables}

    def prepare(self, inputs: list[Array], targets: Array, batches: Iterable[Batch]) -> None:
        """Prepares the model with data before its very first step.

        Args:
            inputs: List of arrays `[N, ...]` in the user's units. For a dataset, these are its
                first batches that together have `rows_to_prepare` rows.
            targets: Array `[N, D]`, of the same rows.
            batches: Iterable of inputs and targets, and of weights of the rows if these are given,
                all the data; a pass over it costs a pass over a dataset. If the length of a dataset
                is not known, only the first batches.
        """

    # Compiling --------------------------------------------------------------------------------

    def compile(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        optimizer: Any = None,
        metrics: Any = (),
        num_rows: int | None = None,
        jit_compile: bool | str = "auto",
        run_eagerly: bool = False,
        **kwargs: Any,
    ) -> None:
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
            **kwargs: Arguments of `keras.Model.compile`, such as `steps_per_execution`; optimizers
                of further parts, see `optimizer_names`.

        Raises:
            ValueError: If a loss is given, or `num_rows` is not a positive integer.
        """
        for name in ("loss", "loss_weights", "weighted_metrics"):
            if kwargs.pop(name, None) is not None:
                raise ValueError(
                    f"`compile` of {type(self).__name__} takes no `{name}`: the objective is the "
                    f"method's. Received: {name}"
                )
        for part, name in self.optimizer_names.items():
            if part != "model":
                setattr(self, name, checked_optimizer(name, kwargs.pop(name, None)))
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

    def get_compile_config(self) -> Any:
        if not self.compiled:
            return None
        config = {
            **self._compile_arguments,
            "metrics": self.user_metrics,
            "num_rows": self._given_rows,
            **self._optimizers(),
        }
        return keras.saving.serialize_keras_object(config)

    def compile_from_config(self, config: Config) -> None:
        super().compile_from_config(config)
        if self.built:
            self._build_optimizers()  # so that their state can be loaded

    #: Name of a part -> name of the attribute that has its optimizer.
    optimizer_names: dict[str, str] = {"model": "optimizer"}

    def _optimizers(self) -> dict[str, keras.optimizers.Optimizer | None]:
        """Returns the optimizers by the names of their attributes; `None` until they are made."""
        return {name: getattr(self, name) for name in self.optimizer_names.values()}

    def _optimizer_of(self, part: str) -> Any:
        return getattr(self, self.optimizer_names[part])

    def _build_optimizers(self) -> None:
        for part, variables in self.trained_parts().items():
            optimizer = self._optimizer_of(part)
            if optimizer is not None and not optimizer.built:
                optimizer.build(variables)

    # What is trained --------------------------------------------------------------------------

    def fix(self, layers: Sequence[keras.layers.Layer]) -> None:
        """Sets `fixed_parts`, layers of the model that it does not train, such as a prior.

        Other models may hold and train the same layers, so their `trainable` attribute stays as it
        is.
        """
        self.__dict__["fixed_parts"] = (
            layers  # hidden from Keras's tracking, which has them already
        )

    def _trains(self, variable: keras.Variable) -> bool:
        parts = self.fixed_parts
        return variable.trainable and not any(variable is v for p in parts for v in p.variables)

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """As in Keras, without those of `fixed_parts`."""
        return [v for v in self.variables if self.trainable and self._trains(v)]

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        """As in Keras, with those of `fixed_parts`."""
        return [v for v in self.variables if not (self.trainable and self._trains(v))]

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        """As in Keras, without those of `fixed_parts`."""
        return [v for v in self.weights if self.trainable and self._trains(v)]

    @property
    def non_trainable_weights(self) -> list[keras.Variable]:
        """As in Keras, with those of `fixed_parts`."""
        return [v for v in self.weights if not (self.trainable and self._trains(v))]

    # Steps ------------------------------------------------------------------------------------

    def annealed(self) -> Tensor:
        """Returns the factor of the divergence in this step, a scalar in [0, 1]."""
        factor = self.annealing.factor  # pyright: ignore[reportOptionalMemberAccess]
        return factor(self.counters.steps.value)

    def update(
        self, inputs: list[Tensor], targets: Tensor, row_weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Runs one step of the optimizers, in the graph and in model units; see `objective`.

        Args:
            inputs: List of tensors `[B, ...]`.
            targets: Tensor `[B, D]`.
            row_weights: Tensor `[B]` of the user's weights, float64, or `None`.

        Returns:
            Dict with the loss and the other entries of `History`.
        """
        seed = self.counters.step_seed()
        seed_layers(self, seed)
        num_rows, weights = self._sizes(row_weights)
        parts = self.trained_parts()
        with tf.GradientTape(persistent=len(parts) > 1) as tape:
            losses, entries = self.objective(inputs, targets, num_rows, seed, **weights)
            losses = losses if isinstance(losses, dict) else {"model": losses}
            refuse_added_losses(self)
            losses = {
                part: loss + penalty(parts[part], loss.dtype) for part, loss in losses.items()
            }
            # The optimizer adds the losses of the replicas, each of which is a mean over its rows.
            scaled = {
                part: self._optimizer_of(part).scale_loss(loss * replicas.weight(loss.dtype))
                for part, loss in losses.items()
            }
        gradients = {part: tape.gradient(loss, parts[part]) for part, loss in scaled.items()}
        del tape
        # Keras runs a step without data at the end of a generator, which must not count.
        with tf.control_dependencies([losses["model"]]):
            for part, variables in parts.items():
                self._optimizer_of(part).apply(gradients[part], variables)
            self.counters.steps.assign_add(1)
        return {"loss": losses["model"], **entries}

    def _sizes(self, row_weights: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the number of rows, and the weights among the arguments of `objective`."""
        rows = self.counters.rows.value
        if row_weights is None:
            return tf.cast(rows, self.variable_dtype), {}
        mean = self.counters.mean_weight.value
        total, weights = tf.cast(rows, mean.dtype) * mean, row_weights / mean
        weights = tf.cast(weights, self.variable_dtype)
        return tf.cast(total, self.variable_dtype), {"row_weights": weights}

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y, row_weights = keras.utils.unpack_x_y_sample_weight(data)
        columns = self.checks.as_columns(y)
        targets = self.units.target_scaler(columns)
        scaled = self.units.scaled(x)
        tensors = [*scaled, targets]
        if row_weights is not None:
            tensors.append(tf.cast(row_weights, tf.float64))
        with replicas.sharing(tensors, self.needs_all_rows) as tensors:
            inputs, others = tensors[: len(scaled)], tensors[len(scaled) :]
            entries = replicas.averaged(self.update(inputs, *others))
        rows = replicas.summed(tf.shape(columns)[0])
        for name, value in self.units.logs(entries).items():
            self._mean_of(name).update_state(value, rows)
        return {name: tracker.result() for name, tracker in self.step_metrics.items()}

    def _mean_of(self, name: str) -> keras.metrics.Mean:
        if name not in self.step_metrics:
            self.step_metrics[name] = keras.metrics.Mean(name, dtype=self.variable_dtype)
        return self.step_metrics[name]

    def _make_trackers(self) -> None:
        """Makes the trackers before replicas are traced, which cannot make them.

        A trace gives their names.
        """
        specs = self._epoch_signature()[:2]
        seed = tf.zeros([2], tf.int32)
        one = tf.ones([], self.variable_dtype)
        function = traced(lambda x, y: self.objective(x, y, one, seed)[1])
        for name in ("loss", *function.get_concrete_function(*specs).structured_outputs):
            self._mean_of(name)

    def train_epochs(
        self,
        inputs: list[Tensor],
        targets: Tensor,
        orders: Tensor,
        batch_size: Tensor,
        row_weights: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Runs all batches of some epochs, in one loop in the graph, in model units.

        Args:
            inputs: List of tensors `[N, ...]`.
            targets: Tensor `[N, D]`.
            orders: int32 tensor `[E, N]`, the order of the rows in each epoch.
            batch_size: Scalar int32 tensor.
            row_weights: Tensor `[N]` of the user's weights, float64, or `None`.

        Returns:
            Dict of the loss and the other entries, means over the rows, `[E]`, in the user's units.
        """
        num_epochs, num_rows = tf.unstack(tf.shape(orders))
        num_batches = -(-num_rows // batch_size)
        num_steps = num_epochs * num_batches
        names, others = [], [targets] if row_weights is None else [targets, row_weights]

        def body(step, values, counts):
            start = step % num_batches * batch_size
            rows = orders[step // num_batches, start : start + batch_size]
            batch = [tf.gather(x, rows) for x in inputs]
            entries = self.update(batch, *(tf.gather(tensor, rows) for tensor in others))
            names[:] = entries
            stacked = tf.stack([tf.cast(entry, targets.dtype) for entry in entries.values()])
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
        return self.units.logs({name: means[:, i] for i, name in enumerate(names)})

    # Fitting ----------------------------------------------------------------------------------

    def begin(
        self,
        num_rows: int | None,
        total_steps: int | None,
        mean_weight: float | None = None,
    ) -> None:
        """Sets the number of rows and makes the optimizers, before callbacks may load their state.

        Args:
            num_rows: Number of rows to train on, `None` if it is not known.
            total_steps: Number of steps of this `fit`, `None` if it is not known.
            mean_weight: Mean weight of the rows; `None` leaves that of the last `fit`.
        """
        num_rows = self._given_rows or num_rows or int(self.counters.rows.numpy())
        if not num_rows:
            raise ValueError(
                "The objective is scaled by the number of training rows: pass it to "
                "`compile(num_rows=...)`, or `fit` arrays or a finite dataset first. "
                "Received: data of unknown length"
            )
        self.counters.rows.assign(num_rows)
        if mean_weight is not None:
            self.counters.mean_weight.assign(mean_weight)
        if self.annealing is not None:
            self.annealing.begin(total_steps, not self.counters.has_steps)
        with self.distribute_strategy.scope():
            for part, name in self.optimizer_names.items():
                if getattr(self, name) is None:
                    setattr(
                        self, name, self._loss_scaled(self.default_optimizer(total_steps, part))
                    )
            self._build_optimizers()
            if self.distribute_strategy.num_replicas_in_sync > 1 and not self.step_metrics:
                self._make_trackers()
        trained = [id(v) for variables in self.trained_parts().values() for v in variables]
        if trained != self._trained:
            self._forget_functions()
            self.__dict__["_trained"] = trained

    def _loss_scaled(self, optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
        """Returns an optimizer with the loss scaling that Keras needs in mixed precision."""
        is_half = self.dtype_policy.name == "mixed_float16"
        return keras.optimizers.LossScaleOptimizer(optimizer) if is_half else optimizer

    def _forget_functions(self) -> None:
        """Drops functions that were traced with another optimizer or other trainable weights."""
        self.train_function = None
        # These are hidden from Keras's tracking, which would export them.
        self.__dict__.update(_epoch_functions={}, _trained=None)

    def _compiled_epochs(self, weighted: bool) -> Any:
        """Returns `train_epochs`, traced once for rows without weights and once for rows with."""
        if weighted not in self._epoch_functions:
            signature = [*self._epoch_signature(), tf.TensorSpec((None,), tf.float64)]
            signature = signature if weighted else signature[:-1]
            self._epoch_functions[weighted] = traced(self.train_epochs, input_signature=signature)
        return self._epoch_functions[weighted]

    def _epoch_signature(self) -> list[Any]:
        """Returns a signature whose one trace serves any number of rows and any batch size."""
        dtypes = [scaler.variable_dtype for scaler in self.units.scalers]
        shapes = [tensor.shape[1:] for tensor in self.input_tensors] + [(self.num_target_columns,)]
        specs = [tf.TensorSpec((None, *s), d) for s, d in zip(shapes, dtypes, strict=True)]
        orders, batch_size = (tf.TensorSpec(shape, tf.int32) for shape in ([None, None], []))
        return [specs[:-1], specs[-1], orders, batch_size]

    def first_callbacks(self) -> list[keras.callbacks.Callback]:
        return [FiniteLoss()]

    def run_arrays(
        self,
        inputs: list[Array],
        targets: Array,
        batch_size: int,
        shuffle: bool,
        options: dict[str, Any],
        row_weights: Array | None = None,
    ) -> keras.callbacks.History:
        if not self.counters.has_steps:
            self.prepare(inputs, targets, [batch_of(inputs, targets, row_weights)])
        num_batches = -(-len(targets) // batch_size)
        epochs = options["epochs"] - options["initial_epoch"]
        mean_weight = 1.0 if row_weights is None else float(np.mean(row_weights))
        self.begin(len(targets), epochs * num_batches, mean_weight)
        whole = loops.may_run_whole_epochs(self, GradientModel, options["callbacks"])
        run = self._run_epochs if whole and not self.jit_compile else self._run_batches
        history = run(inputs, targets, batch_size, shuffle, options, row_weights)
        if row_weights is None:  # the constant that it compares with is that of equal weights
            warn_of_no_progress(self, history.history, targets)
        return history

    def _run_batches(self, *arguments: Any) -> keras.callbacks.History:
        return loops.by_batches(self, *arguments)

    def _run_epochs(
        self,
        inputs: list[Array],
        targets: Array,
        batch_size: int,
        shuffle: bool,
        options: dict[str, Any],
        row_weights: Array | None,
    ) -> keras.callbacks.History:
        num_batches = -(-len(targets) // batch_size)
        epochs = options["epochs"] - options["initial_epoch"]
        arrays = [
            self.units.scaled([tf.constant(x) for x in inputs]),
            self.units.target_scaler(tf.constant(targets)),
        ]
        counters, weights = self.counters, [] if row_weights is None else [tf.constant(row_weights)]

        def run(count):
            orders = [counters.epoch_order(len(targets), shuffle, ahead) for ahead in range(count)]
            orders = np.stack(orders)[:, counters.first_batch * batch_size :]
            orders = tf.constant(orders, tf.int32)
            size = tf.constant(batch_size, tf.int32)
            return self._compiled_epochs(bool(weights))(*arrays, orders, size, *weights)

        every = _looks_every(options, self.optimizer)
        train_epoch = EpochsAhead(run, epochs, every, options["initial_epoch"])
        return loops.by_epochs(self, train_epoch, inputs, targets, options, num_batches)

    def run_stream(
        self, stream: CheckedStream, steps_per_epoch: int | None, options: dict[str, Any]
    ) -> keras.callbacks.History:
        num_rows, mean_weight = (None, 1.0) if self._given_rows else stream.count_rows()
        num_batches = steps_per_epoch or stream.count_batches()
        epochs = options["epochs"] - options["initial_epoch"]
        if not self.counters.has_steps:
            parts = stream.first_batches(self.rows_to_prepare)
            inputs = [
                np.concatenate(each) for each in zip(*(part[0] for part in parts), strict=True)
            ]
            is_finite = stream.count_batches() is not None
            targets = np.concatenate([part[1] for part in parts])
            self.prepare(inputs, targets, _Passes(stream) if is_finite else parts)
        self.begin(num_rows, epochs * num_batches if num_batches else None, mean_weight)
        return loops.by_stream(self, stream, steps_per_epoch, options)

    def train_on_batch(
        self,
        x: Rows,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        class_weight: dict[int, float] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Runs one step on one batch; continues a fitted model.

        The objective is scaled by the number of rows of the last `fit`, or `compile(num_rows=...)`,
        and by their mean weight.
        """
        with self.turns.training:
            checks.refuse_weights(self, class_weight=class_weight, sample_weight=sample_weight)
            self.check_ready()
            self.ensure_compiled()
            inputs, targets = self.checks.data(x, y)
            if not self.counters.has_steps:
                weights = self.checks.weights(sample_weight, len(targets), learnt=True)
                self.prepare(inputs, targets, [batch_of(inputs, targets, weights)])
            self.begin(None, None)
            return super().train_on_batch(x, y, sample_weight, class_weight, return_dict)


class _Passes:
    """The batches of a stream, in a pass that begins when it is needed."""

    def __init__(self, stream: CheckedStream):
        self.stream = stream

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.stream.batches())


def _looks_every(options: dict[str, Any], optimizer: Any) -> int:
    """Returns the epochs after which a callback may read the weights, 1 unless all allow more.

    A callback that `allows_ahead` never reads them, or states in `looks_every` how often it does.
    """
    callbacks = options["callbacks"]
    if options["validation_data"] is not None or loops.keras_fit_is_replaced():
        return 1
    if not all(allows_ahead(callback, optimizer) for callback in callbacks):
        return 1
    every = [getattr(callback, "looks_every", None) for callback in callbacks]
    return math.gcd(*filter(None, every)) or options["epochs"]
