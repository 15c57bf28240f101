"""The base of the models of all methods: what users call, and what a method implements."""

import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import metrics
from tfp_fnspace.boundary import arguments
from tfp_fnspace.boundary.streams import CheckedStream
from tfp_fnspace.distributions.quantile import quantile
from tfp_fnspace.export import (
    ENDINGS,
    check_served_range,
    export_program,
    export_saved_model,
)
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.math import replicas
from tfp_fnspace.metrics.given import checked_metrics
from tfp_fnspace.model import checks, fitting, loops, predicting, saving, scoring, summary
from tfp_fnspace.model.check_up import CheckUp, check_up
from tfp_fnspace.model.checks import Checks
from tfp_fnspace.model.counters import Counters
from tfp_fnspace.model.no_optimizer import NoOptimizer
from tfp_fnspace.model.turns import Turns
from tfp_fnspace.model.units import Units
from tfp_fnspace.tracing import collectable, count_apart, traced
from tfp_fnspace.typing import (
    Array,
    ArrayLike,
    Config,
    Distribution,
    GaussianMoments,
    Rows,
    Seed,
    Tensor,
)

_T = TypeVar("_T")

#: `None` in place of what is known as soon as the shapes are: methods need not ask.
_NOT_YET: Any = None


class FunctionSpaceModel(keras.Model):
    """What the models of all methods share: data checks, units, metrics, prediction, files.

    A model `class M(FunctionSpaceModel)` calls `keras.Model.__init__` and `setup`. It calls
    `setup_shapes` as soon as it knows the shapes of its inputs and targets: in its constructor, or
    in `create`. It implements `moments`, `functions` and `train_step`. A model that is trained by
    gradients is a `GradientModel`, with an `objective`. The other hooks have defaults.

    Hooks are in *model* units, and this class converts. The arguments of a constructor are in
    standardised units if the model standardises. Predictions, scores and `History` are in the
    user's units. Under a likelihood of classes, f are logits and the targets are labels, which are
    not standardised. Under a likelihood with a link, f is the logarithm of a mean, say, and
    targets are not standardised either.

    Attributes:
        likelihood: Observation model, a layer of `tfp_fnspace.likelihoods`.
        units: `Units`, `None` until the shapes are known.
        checks: `Checks` of what users hand over, `None` until the shapes are known.
        counters: `Counters`, the seed and the numbers of steps and epochs.
        num_outputs: Number of outputs of the model, `None` until the shapes are known.
    """

    likelihood: Any  # a `Likelihood`, with what its kind has beside that
    standardize: bool
    seed: int | None
    units: Units
    checks: Checks
    counters: Counters
    num_outputs: int
    default_metrics: list[keras.metrics.Metric]
    user_metrics: list[keras.metrics.Metric]
    step_metrics: dict[str, keras.metrics.Mean]

    train_function: Any
    test_function: Any
    predict_function: Any
    turns: Turns
    _traced: dict[str, Any]

    # What a method says of itself -------------------------------------------------------------

    #: Whether NaN in the targets stands for a missing value.
    missing_targets_allowed = False

    #: Which weights of rows the model learns from: `"none"`, `"whole"` numbers, or any `"positive"`
    #: ones. Every model is evaluated with weights.
    weights_allowed = "none"

    #: Whether outputs may describe the noise, as in `HeteroscedasticGaussian`.
    noise_outputs_allowed = False

    #: Whether function draws are differentiable in x, and are the same in every call with the same
    #: seed.
    draws_smooth_functions = True

    #: Whether the functions of a call are joint draws at its points, and need all of them at once.
    draws_jointly = False

    #: S, the number of draws in predictions; `None` if f is one Gaussian at each point.
    num_eval_samples: int | None = None

    #: Number of functions of the joint distribution of all points; `num_eval_samples` by default.
    num_joint_functions: int | None = None

    #: Dtype of the inputs of a model that learns their shapes; `None` is the model's own dtype.
    input_tensor_dtype: str | None = None

    #: Dtype in which inputs are standardised; `None` stands for the model's own dtype.
    input_scaler_dtype: str | None = None

    #: As for `Checks`.
    index_inputs: Sequence[int | None] | None = None
    input_roles: Sequence[int | None] | None = None
    batch_rows: int | None = None

    #: Rows that are read of a stream before `create`.
    rows_for_shapes = 1

    #: Dtype of real inputs of an exported model; `None` stands for those of the inputs.
    served_dtype: str | None = None

    #: Whether the model predicts nothing before its first step.
    needs_steps = False

    #: The model's own steps may call Bayesian layers: it is not a plain Keras model.
    trains_bayesian_layers = True

    #: Entries of the config that are serialised objects.
    object_names: tuple[str, ...] = ("likelihood", "network")

    # Hooks ------------------------------------------------------------------------------------

    def create(self, input_shape: tuple[int, ...], num_columns: int, num_rows: int) -> None:
        """Makes the parts that need shapes, and calls `setup_shapes`.

        Only models that learn the shapes from the first data need this hook.

        Args:
            input_shape: Shape of a row.
            num_columns: Columns of the targets.
            num_rows: Number of rows of the first data; for a stream, of the batches that were read.
        """
        raise NotImplementedError

    def moments(self, inputs: list[Tensor], num_samples: int | None, seed: Seed) -> GaussianMoments:
        """Computes the moments of f, in the graph and in model units.

        Args:
            inputs: List of tensors `[N, ...]`.
            num_samples: S, `num_eval_samples`.
            seed: int32 tensor `[2]`.

        Returns:
            `GaussianMoments` of tensors `[N, D]`; or `[S, N, D]`, given each of S draws of what f
            depends on, with `variance=None` for function draws.
        """
        raise NotImplementedError

    def call(self, inputs: Any) -> Any:
        """Returns the moments of f in model units, see `moments`, for inputs in the user's units.

        Args:
            inputs: Tensor `[N, ...]`, or a list of tensors.
        """
        if not self.has_shapes:
            self.check_ready()
        seed = self.counters.seeds.stream("predict")
        return self.moments(self.units.scaled(inputs), self.num_eval_samples, seed)

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        """Draws functions `[S, N, D]`, in the graph and in model units; arguments as `moments`."""
        raise NotImplementedError

    def predicted(self, x: Tensor | Sequence[Tensor]) -> summary.Predicted:
        """Returns `Predicted` for x in the user's units, in the graph.

        By default, all follows from `moments` and the likelihood.
        """
        moments = self.posterior_moments(x)
        parts = self.likelihood, self.units, self.counters.seeds.stream("likelihood")
        return summary.Predicted(
            lambda: summary.distribution(moments, *parts), lambda: summary.tensors(moments, *parts)
        )

    def run_arrays(
        self,
        inputs: list[Array],
        targets: Array,
        batch_size: int,
        shuffle: bool,
        options: dict[str, Any],
        row_weights: Array | None = None,
    ) -> keras.callbacks.History:
        """Runs the loop of `fit` over arrays, in the user's units (see `loops`).

        It gets weights of the rows only if they are given and `weights_allowed`.
        """
        return loops.by_batches(self, inputs, targets, batch_size, shuffle, options, row_weights)

    def run_stream(
        self, stream: CheckedStream, steps_per_epoch: int | None, options: dict[str, Any]
    ) -> keras.callbacks.History:
        """Runs the loop of `fit` over a `CheckedStream` (see `loops`)."""
        return loops.by_stream(self, stream, steps_per_epoch, options)

    def callbacks_of_fit(
        self, given: list[keras.callbacks.Callback]
    ) -> Sequence[keras.callbacks.Callback]:
        """Returns the method's own callbacks; may refuse some of those that the user has given."""
        return []

    def first_callbacks(self) -> Sequence[keras.callbacks.Callback]:
        """Returns callbacks that come before the counter of epochs and all that save."""
        return []

    def numbers_per_row(self, num_samples: int) -> int:
        """Returns how many numbers `num_samples` functions take at one point."""
        return num_samples * max(
            self.num_outputs, *(math.prod(t.shape[1:]) for t in self.input_tensors)
        )

    # Setting up -------------------------------------------------------------------------------

    def setup(self, likelihood: Likelihood, standardize: bool, seed: int | None) -> None:
        """Checks and keeps what all models have, and makes counters and metrics.

        Args:
            likelihood: Observation model, a layer of `tfp_fnspace.likelihoods`.
            standardize: Whether to standardise inputs and targets.
            seed: Non-negative integer, or `None` for one drawn by NumPy's global generator (which
                `keras.utils.set_random_seed` sets).

        Raises:
            TypeError: If `likelihood` is not a likelihood.
            ValueError: If the method cannot have it, or `standardize` is not a boolean.
        """
        if isinstance(likelihood, type) or not hasattr(likelihood, "check_outputs"):
            raise TypeError(
                "`likelihood` must be one of `tfp_fnspace.likelihoods`, `Gaussian(0.3)` say"
                f"{arguments.what_it_is(likelihood)}. Received: likelihood={likelihood!r}"
            )
        if likelihood.has_noise_outputs and not self.noise_outputs_allowed:
            raise ValueError(
                f"`likelihood` of a {type(self).__name__} cannot have outputs that describe the "
                "noise: TAGI, SIP and `fbnn.VariationalModel` can. "
                f"Received: likelihood={type(likelihood).__name__}"
            )
        if not isinstance(standardize, bool | np.bool_):
            raise ValueError(
                f"`standardize` must be True, False or None. Received: standardize={standardize!r}"
            )
        self.likelihood = likelihood
        self.standardize, self.seed = bool(standardize), seed
        self.units = self.checks = self.num_outputs = _NOT_YET
        self.counters = Counters(seed)
        if likelihood.is_classifier:
            scores = [metrics.Accuracy(), metrics.NLL(), metrics.ExpectedCalibrationError()]
        else:
            coverage = metrics.IntervalCoverage(level=0.9)
            nll = metrics.NLL()
            if likelihood.targets_are_limits:
                nll = metrics.IntervalCensoredNLL(name="nll")
            scores = [metrics.RMSE(), nll, metrics.CRPS(), coverage]
        self.default_metrics, self.user_metrics = scores, []
        # Hidden from Keras's tracking, so they are not saved: the means that training steps update
        # (`evaluate` updates others), by their names in `History`.
        self.__dict__.update(turns=Turns(), step_metrics={})
        self._compile_arguments = {}

    def setup_shapes(self, input_tensors: Iterable[keras.KerasTensor], num_outputs: int) -> None:
        """Makes the units and the checks.

        Args:
            input_tensors: Symbolic inputs, a list of `keras.KerasTensor`.
            num_outputs: Number of outputs of the model.
        """
        num_outputs = int(num_outputs)
        self.likelihood.check_outputs(num_outputs)
        if not self.likelihood.built:
            self.likelihood.build((None, num_outputs))
        self.num_outputs = num_outputs
        self.units = Units(
            input_tensors,
            self.likelihood,
            num_outputs,
            standardize=self.standardize,
            index_inputs=self.index_inputs,
            input_roles=self.input_roles,
            input_dtype=self.input_scaler_dtype,
            dtype=self.variable_dtype,
        )
        self.checks = Checks(
            self.units,
            self.likelihood,
            num_outputs,
            self.standardize,
            self.missing_targets_allowed,
            self.index_inputs,
            self.batch_rows,
            self.weights_allowed,
        )
        self.reset_functions()
        self.built = True  # Keras calls `build_from_config` on unbuilt models

    def reset_functions(self) -> None:
        """Drops the traced functions that predict, since they hold the variables of their trace."""
        self.test_function, self.predict_function = None, None
        self.__dict__["_traced"] = {}  # hidden from Keras's tracking, which would export them

    def traced(self, function: Callable[..., Any]) -> Any:
        """Returns a method of this model that predicts, traced once."""
        name = function.__name__
        if name not in self._traced:
            self._traced[name] = traced(function, reduce_retracing=True)
        return self._traced[name]

    @property
    def has_shapes(self) -> bool:
        """Whether the shapes are known, and with them `units`, `checks` and `num_outputs`."""
        return self.units is not None

    @property
    def input_tensors(self) -> list[keras.KerasTensor]:
        """Symbolic inputs, a list; `None` until the shapes are known."""
        return self.units.input_tensors if self.has_shapes else _NOT_YET

    @property
    def num_target_columns(self) -> int:
        """Columns of the targets: D, or one of class labels."""
        return self.likelihood.num_target_columns(self.num_outputs)

    @property
    def is_ready(self) -> bool:
        """Whether inputs and targets have a standardisation, or need none."""
        return self.has_shapes and self.units.ready

    @property
    def needs_arrays(self) -> str | None:
        """Why `fit` takes no stream at present, a sentence; `None` if it takes one."""
        return None

    @property
    def has_units(self) -> bool:
        """Whether the model has seen data: later data must then have the same columns."""
        scalers = [*self.units.scalers, self.units.function_scaler]
        adapted = any(scaler.adapted.numpy() for scaler in scalers)
        return self.counters.has_steps or adapted

    def check_ready(self) -> None:
        """Refuses to predict without a standardisation, or without a step if one is needed."""
        if self.needs_steps and not self.counters.has_steps:
            raise ValueError("The model is not fitted: call `fit`. Received: a model without draws")
        if not self.is_ready:
            raise ValueError(
                "The model is not fitted: call `fit`, or `adapt(x, y)` to predict from the "
                "prior. Received: a model whose standardisation has seen no data"
            )

    @property
    def column_names(self) -> list[Any] | None:
        """The column names of the data frame that the model was first fitted to, or `None`.

        This is a list for the model's first input. A frame whose columns differ, or have another
        order, is then refused; this holds for each input.
        """
        names = self.units.input_scalers[0].column_names if self.has_shapes else None
        return names if names is None else list(names)

    @property
    def target_names(self) -> list[Any] | None:
        """The column names of the targets, as `column_names` for the inputs."""
        names = self.units.target_scaler.column_names if self.has_shapes else None
        return names if names is None else list(names)

    # Compiling --------------------------------------------------------------------------------

    def compile(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        metrics: Any = (),
        jit_compile: bool | str = "auto",
        run_eagerly: bool = False,
        **kwargs: Any,
    ) -> None:
        """Configures the model.

        Args:
            metrics: Further metrics for `evaluate` and validation, of `tfp_fnspace.metrics` or of
                Keras. Keras's metrics see the predictive mean. For a classifier, binary metrics
                (`AUC`, `Precision`) see the probability of class 1, metrics named `Sparse...` see
                the probabilities of all classes, and metrics of labels see the most probable label.
                Metrics of one-hot targets are refused.
            jit_compile: Whether XLA compiles training and prediction; `"auto"` chooses what is
                faster on the device.
            run_eagerly: Whether to run without graphs, for debugging.
            **kwargs: Further options of the method.

        Raises:
            ValueError: If a metric or an option is unknown.
        """
        arguments.checked_choice("jit_compile", jit_compile, ("auto", True, False))
        self.user_metrics = checked_metrics(metrics)
        scoring.check_metrics(self)
        self._compile_arguments = {"jit_compile": jit_compile, "run_eagerly": run_eagerly, **kwargs}
        keras_arguments = {"optimizer": None, **self._compile_arguments}
        super().compile(loss=None, **keras_arguments)
        if "optimizer" not in kwargs:
            self.optimizer = NoOptimizer(self.counters.steps)

    def get_compile_config(self) -> Any:
        config = {**self._compile_arguments, "metrics": self.user_metrics}
        return keras.saving.serialize_keras_object(config)

    def compile_from_config(self, config: Config) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))

    def ensure_compiled(self) -> None:
        """Compiles a model with the defaults, unless it is compiled."""
        if self._distribute_strategy is None and replicas.number() > 1:
            raise ValueError(
                "A model that is used in the scope of a strategy with several replicas must have "
                f"been made there. Received: {type(self).__name__} made outside of the scope"
            )
        if not self.compiled:
            self.compile()

    @classmethod
    def from_config(cls, config: Config, custom_objects: dict[str, Any] | None = None) -> Self:
        """Makes a model from the result of `get_config`, after its parts that are objects."""
        load, config = keras.saving.deserialize_keras_object, dict(config)
        for name in cls.object_names:
            if isinstance(config.get(name), dict):
                config[name] = load(config[name], custom_objects=custom_objects)
        return cls(**config)

    # Training ---------------------------------------------------------------------------------

    def adapt(
        self, x: Rows, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> None:
        """Sets the standardisation from data; `fit` does so by itself the first time.

        Args:
            x: Arrays, as for `fit`, or a finite dataset of batches.
            y: Targets, for arrays.
            sample_weight: As for `fit`.

        Raises:
            ValueError: If a dataset's length is infinite or unknown, the data are bad, or the
                model has learnt already.
        """
        with self.turns.training:
            checks.refuse_weights(self, sample_weight=sample_weight)
            fitting.adapt(self, fitting.learn_shapes(self, x, y), y, sample_weight)

    def check(self, x: Rows, y: ArrayLike, batch_size: int | None = None) -> CheckUp:
        """Looks for what is probably wrong with the data or the model before a long `fit`.

        A copy of the model, which itself stays as it is, predicts some of the rows and is fitted to
        them for three epochs. The rows are at most 1,000, or 100 if the method learns from all rows
        at once.

        Args:
            x: Arrays, as for `fit`.
            y: Targets, as for `fit`.
            batch_size: As for `fit`.

        Returns:
            `CheckUp`, which prints its findings as sentences: shapes and sizes; the range of the
            predictions before training and how many targets are in it; seconds of an epoch; the
            memory it took; and warnings of odd scales, of values that are not finite, of weights
            that no gradient reaches. The list `warnings` is empty if nothing looks wrong.

        Raises:
            TypeError: If the data are not numbers.
            ValueError: If the data are bad, as for `fit`, or are a stream.
        """
        return check_up(self, x, y, batch_size)

    def adapt_noise(self, unit: Array) -> None:
        """Converts a noise scale that the user gave in their units to model units."""
        if hasattr(self.likelihood, "adapt"):
            self.likelihood.adapt(unit)

    def fit(
        self,
        x: Rows = None,
        y: ArrayLike | None = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: dict[int, float] | None = None,
        sample_weight: ArrayLike | None = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | Collection[int] = 1,
        **unknown: Any,
    ) -> keras.callbacks.History:
        """Fits the model; arguments and result are as in `keras.Model.fit`.

        In-memory data is permuted in each epoch by the model's seed and its count of epochs. The
        same seed therefore gives the same run, and a restored run continues it.

        Ctrl-C ends the run with `KeyboardInterrupt` at the end of the epoch. If the epoch takes
        longer than 5 seconds, the run ends after a batch; if Ctrl-C is pressed again, it ends at
        once. The weights are those of the last whole step, and the counters agree with them. On
        arrays, a `fit` for the remaining epochs therefore ends at the same weights as a run that
        was not stopped. An epoch that was stopped midway continues at its next batch if `fit` is
        given the same rows and batch size. A first `fit` that ends before its first step leaves the
        model unchanged.

        Args:
            x: Array `[N, ...]`, a list of arrays for several inputs, or a dataset or generator
                of `(x, y)` or `(x, y, sample_weight)` batches.
            y: Targets `[N, D]`, or `[N]` when D is 1; `[N]` integer labels for a categorical
                likelihood.
            batch_size: Rows in a batch, 32 by default (arrays only).
            epochs: Number of epochs.
            verbose: As in Keras.
            callbacks: List of callbacks. A callback that acts at every batch is honoured, but it
                slows down a method that compiles whole epochs. Without callbacks and validation,
                several short epochs may be computed at once; the run is the same.
            validation_split: Fraction of the last rows to validate on (arrays only).
            validation_data: `(x, y)`, `(x, y, sample_weight)` or a dataset. Use `val_nll` for early
                stopping.
            shuffle: Whether to permute the rows of arrays.
            class_weight: Dict from labels to positive numbers, by which the weights of the rows are
                multiplied; for classifiers. It has no effect on validation.
            sample_weight: Positive weights `[N]` of the rows of arrays. A row of weight w counts as
                w copies of it; [the guide](../howto/weights.md) says how exactly in each method.
            initial_epoch: Number of the first epoch.
            steps_per_epoch: Number of batches in an epoch (datasets only).
            validation_steps: Number of validation batches (datasets only).
            validation_batch_size: Rows in a validation batch.
            validation_freq: Epochs between validations.
            **unknown: Refused.

        Returns:
            `keras.callbacks.History` with (weighted) means over the rows of an epoch, in the user's
            units. `loss` is what the method minimises: the negative of the lower bound, or of the
            objective that replaces it. For methods that minimise nothing (TAGI, the stable process)
            it is the negative of `log_likelihood`. `val_loss` equals `val_nll`, so it is not
            comparable with `loss`.

        Raises:
            TypeError: If the data are not numbers, a callback is not one, or an argument is
                unknown.
            ValueError: If the data are bad, or an argument cannot be honoured.
        """
        arguments.refuse_unknown("fit", unknown)
        with self.turns.training:
            return fitting.fit(
                self,
                x,
                y,
                sample_weight=sample_weight,
                class_weight=class_weight,
                batch_size=batch_size,
                shuffle=shuffle,
                validation_split=validation_split,
                steps_per_epoch=steps_per_epoch,
                epochs=epochs,
                verbose=verbose,
                callbacks=callbacks,
                validation_data=validation_data,
                initial_epoch=initial_epoch,
                validation_steps=validation_steps,
                validation_batch_size=validation_batch_size,
                validation_freq=validation_freq,
            )

    def train_on_batch(
        self,
        x: Rows,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        class_weight: dict[int, float] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Runs one update on one batch; continues a fitted model (`fit` adapts, this does not)."""
        with self.turns.training:
            return fitting.train_on_batch(self, x, y, sample_weight, class_weight, return_dict)

    def checked_stream(
        self,
        stream: Rows,
        with_targets: bool = True,
        first: bool = False,
        learnt: bool = False,
        class_weight: Any = None,
    ) -> CheckedStream:
        """Returns the batches of a stream, see `Checks.stream`; refuses one that cannot be shared.

        Raises:
            ValueError: If it is a generator and the model belongs to a strategy.
        """
        checks.check_strategy(stream, self.distribute_strategy)
        return self.checks.stream(stream, with_targets, first, learnt, class_weight)

    # Prediction -------------------------------------------------------------------------------

    def posterior_moments(self, x: Tensor | Sequence[Tensor]) -> GaussianMoments:
        """Returns the moments of f behind all predictions, in the graph and in the user's units.

        Args:
            x: Tensor `[N, ...]`, or a list of tensors, in the user's units.

        Returns:
            `GaussianMoments`, as `moments` returns them.
        """
        seed = self.counters.seeds.stream("predict")
        return self.units.moments(self.moments(self.units.scaled(x), self.num_eval_samples, seed))

    def function_moments(self, x: Tensor | Sequence[Tensor]) -> GaussianMoments:
        """Returns `GaussianMoments` of f in the user's units, `[N, D]`, in the graph."""
        return summary.total_moments(self.posterior_moments(x), self.units)

    def draw_functions(self, x: Tensor | Sequence[Tensor], num_samples: int, seed: Seed) -> Tensor:
        """Draws functions `[S, N, D]` in the user's units, in the graph."""
        return self.units.functions(self.functions(self.units.scaled(x), num_samples, seed))

    def predictive(self, x: Tensor | Sequence[Tensor]) -> Distribution:
        """Returns the distribution of the observations, in the graph and in the user's units."""
        return self.predicted(x).distribution()

    def predictive_moments(self, x: Tensor | Sequence[Tensor]) -> dict[str, Tensor]:
        """Returns the tensors of `predict`, in the graph and in the user's units."""
        return self.predicted(x).tensors()

    def served_outputs(self, x: Tensor | Sequence[Tensor]) -> dict[str, Tensor]:
        """Returns the tensors of the endpoint `serve`, in the graph; x is in the user's units."""
        found = self.predicted(x)  # once, since it is most of the work
        if self.likelihood.is_classifier:
            return found.tensors()
        return summary.with_quantiles(found.tensors(), found.distribution())

    @property
    def predict_batch_size(self) -> int:
        """Rows in a batch of `predict` and `evaluate` if the user does not say.

        For a mixture the widest tensor of a batch takes about 20 MB.
        """
        if self.batch_rows is not None:
            return self.batch_rows
        if self.num_eval_samples is None or not self.has_shapes:
            return checks.PREDICT_BATCH_SIZE
        rows = predicting.CHUNK_NUMBERS // self.numbers_per_row(self.num_eval_samples)
        return int(np.clip(rows, 1, checks.PREDICT_BATCH_SIZE))

    @property
    def fit_batch_size(self) -> int:
        """Rows in a batch of `fit` if the user does not say."""
        return self.batch_rows or checks.FIT_BATCH_SIZE

    @property
    def served_dtypes(self) -> list[str]:
        """Dtypes of the inputs of an exported model."""
        return [self.served_dtype or tensor.dtype for tensor in self.input_tensors]

    def checked_inputs(self, x: Rows) -> list[Array]:
        """Returns inputs that were checked, a list of arrays, of a model that is ready."""
        self.check_ready()
        return self.checks.inputs(x)

    def in_batches(self, function: Callable[[Any], _T], inputs: list[Array], rows: int) -> list[_T]:
        """Applies a function to rows of checked inputs, so that memory does not grow with them.

        Args:
            function: Function of a tensor `[N, ...]`, or of a list of them.
            inputs: List of arrays.
            rows: Number of rows in a batch.

        Returns:
            List of results.
        """
        pack = self.checks.pack
        return [
            function(pack([tf.constant(array[i : i + rows]) for array in inputs]))
            for i in range(0, len(inputs[0]), rows)
        ]

    def evaluate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Rows = None,
        y: ArrayLike | None = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: ArrayLike | None = None,
        **kwargs: Any,
    ) -> Any:
        """Scores the predictive distribution, as `keras.Model.evaluate` does.

        Args:
            x: As for `fit`.
            y: Targets, for arrays; NaN entries are left out where a method allows them.
            batch_size: Rows in a batch; the result does not depend on it.
            verbose: As in Keras.
            sample_weight: Positive weights `[N]` of the rows of arrays. A row of weight w counts as
                w copies: scores are weighted means, and `rmse` is the root of one.
            **kwargs: Arguments of `keras.Model.evaluate`; `return_dict=True` gives names.

        Returns:
            `loss` (equal to `nll`), `rmse`, `nll`, `crps`, `coverage_90` and the metrics of
            `compile`, in the user's units. A classifier has `accuracy`, `nll` and `ece` instead.
        """
        return scoring.evaluate(self, x, y, batch_size, verbose, sample_weight, **kwargs)

    def test_on_batch(
        self,
        x: Rows,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Scores one batch, as `evaluate` does."""
        return scoring.evaluate_batch(self, x, y, sample_weight, return_dict)

    def test_step(self, data: Any) -> dict[str, Any]:
        return scoring.step(self, *keras.utils.unpack_x_y_sample_weight(data))

    @property
    def scores(self) -> list[keras.metrics.Metric]:
        """The metrics that evaluation reports, a list."""
        return [*self.default_metrics, *self.user_metrics]

    def get_metrics_result(self) -> dict[str, Any]:
        # Training reports its own results. With several replicas, these are the results of all.
        return scoring.results(self) if self.turns.is_scoring else {}

    def reset_metrics(self) -> None:
        for metric in self.scores if self.turns.is_scoring else self.step_metrics.values():
            metric.reset_state()

    def predict(
        self,
        x: Rows,
        batch_size: int | None = None,
        verbose: int | str = 0,
        steps: int | None = None,
        callbacks: Any = None,
    ) -> dict[str, Array]:
        """Predicts moments, or probabilities of classes.

        Args:
            x: Array `[N, ...]`, a list for several inputs, or a dataset of inputs.
            batch_size: Rows in a batch; the result does not depend on it.
            verbose: As in Keras.
            steps: As in Keras.
            callbacks: As in Keras.

        Returns:
            Dict of NumPy arrays `[N, D]`: `mean`, `stddev` (of an observation), `epistemic_stddev`
            (of f) and `aleatoric_stddev` (of the noise); the variances add up. Under a
            likelihood with a link (counts, say), the function is `E(y | f)`. For a classifier, the
            dict has `probabilities` `[N, D]`, the `entropy` `[N]` of the label in nats, and the
            `mutual_information` `[N]` between the label and f, which is the part of the entropy
            that knowing f would remove.
        """
        return predicting.predict(self, x, batch_size, verbose, steps, callbacks)

    def predict_on_batch(self, x: Rows) -> dict[str, Array]:
        """Predicts for one batch, as `predict` does."""
        self.check_ready()
        if self.distribute_strategy.num_replicas_in_sync > 1:  # Keras gives each the whole batch
            return self.predict(x, batch_size=len(tf.nest.flatten(x)[0]))
        outputs: Any = super().predict_on_batch(self.checks.pack(self.checks.inputs(x)))
        return outputs

    @collectable
    def predict_step(self, data: Any) -> dict[str, Tensor]:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.predictive_moments(x)

    def predict_distribution(
        self, x: Rows, batch_size: int | None = None, joint: bool = False
    ) -> Distribution:
        """Returns the predictive distribution of the observations, at each point or jointly.

        Args:
            x: As for `predict`; arrays only, if predictions are mixtures over draws.
            batch_size: As for `predict`.
            joint: Whether to return the joint distribution of all points, S functions with noise,
                for regressions whose predictions are mixtures over draws. It gives the covariance
                of points, and statements about several points at once. Its density is accurate as
                long as some of the functions are near the observations, so more points need more
                functions.

        Returns:
            `tfd.Distribution` in the user's units, with batch `[N]` and event `[D]`. If `joint`, it
            has no batch and event `[N, D]`. For a classifier, the distribution of the label with
            the averaged probabilities.

        Raises:
            ValueError: If `joint` is true for a model that knows the distribution or the noise at
                each point only; or if the data are bad.
        """
        return predicting.distribution(self, x, batch_size, joint)

    def predict_quantiles(
        self, x: Rows, levels: ArrayLike = summary.QUANTILE_LEVELS, batch_size: int | None = None
    ) -> Array:
        """Predicts quantiles of the observations.

        Args:
            x: As for `predict`, arrays only.
            levels: Levels in (0, 1), Q of them.
            batch_size: As for `predict`.

        Returns:
            NumPy array `[N, D, Q]` in the user's units.

        Raises:
            TypeError: If the levels or the data are not numbers.
            ValueError: If a level is out of range, the model is a classifier, or the data are bad.
        """
        return predicting.quantiles(self, x, levels, batch_size)

    def quantiles_at(self, x: Tensor | Sequence[Tensor], levels: Tensor) -> Tensor:
        """Returns quantiles in the graph, see `predict_quantiles`."""
        return quantile(self.predicted(x).distribution(), levels)

    def sample_functions(self, x: Rows, num_samples: int, seed: Seed = (0, 0)) -> Array:
        """Draws functions from the posterior.

        Args:
            x: As for `predict`, arrays only.
            num_samples: S, a positive integer.
            seed: Integer or two integers. The same seed gives the same functions at any x, unless
                the model documents otherwise.

        Returns:
            NumPy array `[S, N, D]` in the user's units; logits of a classifier; f on the scale of
            the link if the likelihood has one, see `LinkedLikelihood.mean`.

        Raises:
            MemoryError: If the functions do not fit into memory.
            ValueError: If `num_samples` is not a positive integer, or the data are bad.
        """
        return predicting.functions(self, x, num_samples, seed)

    # Files ------------------------------------------------------------------------------------

    def save(
        self,
        filepath: str | os.PathLike[str],
        overwrite: bool = True,
        zipped: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Writes a `.keras` file, as in Keras; an existing file is replaced in one step.

        `load_model` reads it, and so does `keras.models.load_model`.

        Args:
            filepath: Path that ends in `.keras`; if `zipped` is false, path of a folder.
            overwrite: Whether to replace an existing file, or to ask.
            zipped: Whether to write one file, the default, or a folder.
            **kwargs: As in Keras.

        Raises:
            OSError: If the file cannot be written; an existing file is then unchanged.
            TypeError: If `filepath` is not a path.
            ValueError: If it does not end in `.keras`, or the folder holds other things.
        """
        return saving.save(self, filepath, overwrite, zipped, **kwargs)

    def save_weights(
        self,
        filepath: str | os.PathLike[str],
        overwrite: bool = True,
        max_shard_size: float | None = None,
    ) -> None:
        """Writes the weights to a file, as in Keras; an existing file is replaced in one step.

        Args:
            filepath: Path that ends in `.weights.h5`.
            overwrite: Whether to replace an existing file, or to ask.
            max_shard_size: As in Keras. Several files are put in place when all are whole. The
                index, whose name ends in `.weights.json`, comes last.

        Raises:
            OSError: If the file cannot be written; an existing file is then unchanged.
            TypeError: If `filepath` is not a path.
            ValueError: If the name of the file ends in something else.
        """
        return saving.save_weights(self, filepath, overwrite, max_shard_size)

    def load_weights(
        self, filepath: str | os.PathLike[str], skip_mismatch: bool = False, **kwargs: Any
    ) -> None:
        """Reads the weights from a file, as in Keras.

        Args:
            filepath: Path of a file that `save_weights` or `save` wrote.
            skip_mismatch: As in Keras.
            **kwargs: As in Keras.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is not whole, belongs to another model, or has weights that are
                not finite. The weights of this model are then unchanged.
        """
        saving.load_weights(self, filepath, skip_mismatch=skip_mismatch, **kwargs)

    def load_own_variables(self, store: Any) -> None:
        saving.check_finite(store)
        super().load_own_variables(store)

    def export(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        verbose: bool = False,
        input_signature: Any = None,
        num_samples: int = 100,
    ) -> None:
        """Writes what serves predictions without this library; see `tfp_fnspace.export`.

        Args:
            filepath: Folder of a SavedModel; or a file, whose name ends in `.onnx` or `.tflite`.
                What is there is replaced in one step.
            format: `"tf_saved_model"`, which plain TensorFlow serves; `"onnx"` or `"litert"`, which
                have the endpoint `serve` only.
            verbose: Whether Keras prints the endpoints of a SavedModel.
            input_signature: Shape and dtype of the input as in Keras, a `tf.TensorSpec` say, or a
                list of them for several inputs. By default the number of rows is free, and the
                dtypes are `served_dtypes`. Inputs in float64 keep what `predict` would use of them;
                programs of ONNX and LiteRT round them to float32.
            num_samples: Number of functions that the endpoint `sample` of a SavedModel draws.

        Raises:
            ImportError: If the format needs a package that is not installed.
            NotImplementedError: If the model computes something that the format cannot express.
            OSError: If `filepath` cannot be written; its content is then unchanged.
            TypeError: If `filepath` is not a path.
            ValueError: If the format is another one, the model is not fitted, the folder holds
                other things, the file has another ending, the signature does not suit the inputs,
                or the targets are too large or too small for the served dtype, usually float32.
        """
        arguments.checked_choice("format", format, ("tf_saved_model", *ENDINGS))
        self.check_ready()
        check_served_range(self)
        if format in ENDINGS:
            export_program(self, filepath, format, input_signature)
        else:
            export_saved_model(self, filepath, num_samples, verbose, input_signature)

    def report(
        self, x: ArrayLike, y: ArrayLike, path: str | os.PathLike[str], **options: Any
    ) -> Path:
        """Writes scores, calibration and pictures to one HTML file that reads offline.

        Args:
            x: Rows that the model has not seen, as for `predict`.
            y: Targets `[N, D]` or `[N]`, as for `fit`.
            path: Path of the file; an existing one is replaced in one step.
            **options: `groups`, `columns` and `title`, as for `plotting.write_report`.

        Returns:
            The path.

        Raises:
            ImportError: If matplotlib is not installed.
            OSError: If the file cannot be written; an existing one is then unchanged.
            TypeError: If the data or the path are of a wrong type.
            ValueError: If the model is not fitted, x and y do not fit it, or a column or a label is
                missing.
        """
        from tfp_fnspace import plotting  # it imports this module

        return plotting.write_report(self, x, y, path, **options)

    # Keras ------------------------------------------------------------------------------------

    def _make_function(self, step_function: Callable[..., Any]) -> Callable[..., Any]:
        step = collectable(step_function)
        if replicas.has_several_hosts(self.distribute_strategy):
            step = _in_rows(step)
        return count_apart(super()._make_function(step))

    def make_predict_function(self, force: bool = False) -> None:
        super().make_predict_function(force)
        count_apart(self.predict_function)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Does nothing, since all is built.

        Under a strategy, Keras would add up the shares of a batch.
        """


def _in_rows(step: Callable[..., dict[str, Tensor]]) -> Callable[..., dict[str, Tensor]]:
    """Returns a step whose results, scalars that are equal on all replicas, have one row each.

    Over several hosts, Keras takes the mean of rows, and cannot take that of scalars.
    """
    return lambda data: {name: value[tf.newaxis] for name, value in step(data).items()}
