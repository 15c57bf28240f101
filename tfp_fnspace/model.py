"""The contract that the models of all methods keep."""

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import data, metrics
from tfp_fnspace.callbacks import EpochCounter, ResumeAtCounter
from tfp_fnspace.export import export_saved_model
from tfp_fnspace.layers.scaler import Standardizer
from tfp_fnspace.math.random import as_seed, base_seed, permutation
from tfp_fnspace.typing import GaussianMoments

#: Rows in a batch of `predict` and `evaluate`; results do not depend on it.
PREDICT_BATCH_SIZE = 1024

#: Rows times functions that one chunk of `sample_functions` evaluates.
_SAMPLE_CHUNK = 2**18


class FunctionSpaceModel:
    """Mixin of all models: data checks, standardisation, metrics, prediction, export.

    A plain class on purpose: Keras rewrites the bases of every *Keras* class above a functional
    model, so that a common Keras parent would change its other children.

    A model `class M(FunctionSpaceModel, keras.Model)` calls `keras.Model.__init__`, then
    `_setup`, and implements, in the graph and for inputs in the user's units,

    - `function_moments(x)`: `GaussianMoments` of f in the user's units, `[N, D]`;
    - `predictive(x)`: `tfd.Distribution` of the observations, batch `[N]`, event `[D]`;
    - `draw_functions(x, num_samples, seed)`: function samples `[S, N, D]`;
    - `train_step(data)`, as in Keras.

    What a model is constructed with is in *model* units, standardised when it standardises; what
    it predicts and is evaluated on is in the user's.
    """

    #: Whether NaN in the targets stands for a missing value.
    missing_targets_allowed = False

    # Construction -----------------------------------------------------------------------------

    def _setup(self, input_tensors, num_outputs, likelihood, standardize, seed):
        """Creates scalers, counters and metrics.

        Args:
            input_tensors: Symbolic inputs, a list of `keras.KerasTensor`.
            num_outputs: D.
            likelihood: Observation model, a layer of `tfp_fnspace.likelihoods`.
            standardize: `True`, `False`, or `None` for "if the first input has rank 2".
            seed: Non-negative integer, or `None` for one drawn by NumPy's global generator
                (which `keras.utils.set_random_seed` sets).
        """
        self.input_tensors = list(input_tensors)
        self.num_outputs = int(num_outputs)
        self.likelihood = likelihood
        if standardize is None:
            standardize = len(self.input_tensors[0].shape) == 2
        self.standardize = bool(standardize)
        dtype = self.variable_dtype
        self.input_scalers = [
            Standardizer(enabled=self.standardize, dtype=dtype) for _ in self.input_tensors
        ]
        self.target_scaler = Standardizer(enabled=self.standardize, dtype=dtype)
        for scaler, tensor in zip(self.input_scalers, self.input_tensors, strict=True):
            scaler.build(tensor.shape)
        self.target_scaler.build((None, self.num_outputs))
        self._setup_counters(seed)
        self._default_metrics = [
            metrics.RMSE(),
            metrics.NLL(),
            metrics.CRPS(),
            metrics.IntervalCoverage(level=0.9),
        ]
        self._user_metrics = []
        self._compile_arguments = {}
        self._sample_function = tf.function(self.draw_functions, reduce_retracing=True)
        self.built = True

    def _setup_counters(self, seed):
        """The random state is in weights, so that a restored model continues the same run."""
        self.seed = seed
        values = base_seed(np.random.randint(2**31) if seed is None else seed)
        options = {"trainable": False, "initializer": "zeros"}
        self.seed_state = self.add_weight(name="seed", shape=(2,), dtype="int32", **options)
        self.seed_state.assign(values)
        self.epochs_seen = self.add_weight(name="epochs_seen", dtype="int32", **options)
        self.steps_seen = self.add_weight(name="steps_seen", dtype="int64", **options)

    # Compilation ------------------------------------------------------------------------------

    def compile(self, metrics=(), jit_compile="auto", run_eagerly=False, **kwargs):
        """Configures the model.

        Args:
            metrics: Further metrics for `evaluate` and validation: those of
                `tfp_fnspace.metrics`, or Keras's, which then see the predictive mean.
            jit_compile: Whether XLA compiles training and prediction; `"auto"` decides by what
                is faster on the device.
            run_eagerly: Whether to run without graphs, for debugging.
            **kwargs: Of the method.
        """
        self._user_metrics = [keras.metrics.get(metric) for metric in metrics or ()]
        self._compile_arguments = {"jit_compile": jit_compile, "run_eagerly": run_eagerly, **kwargs}
        keras_arguments = {"optimizer": None, **self._compile_arguments}
        super().compile(loss=None, **keras_arguments)

    def get_compile_config(self):
        config = {key: value for key, value in self._compile_arguments.items()}
        config["metrics"] = self._user_metrics
        return keras.saving.serialize_keras_object(config)

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))

    def _ensure_compiled(self):
        if not self.compiled:
            self.compile()

    # Training ---------------------------------------------------------------------------------

    def adapt(self, x, y=None):
        """Sets the standardisation from data; `fit` does so by itself the first time.

        Args:
            x: Arrays, as for `fit`, or a finite dataset of `(x, y)` batches.
            y: Targets, for arrays.

        Raises:
            ValueError: If a dataset's length is infinite or unknown, or the data are bad.
        """
        if not self.standardize:
            return
        if data.is_stream(x):
            self._adapt_to_stream(x)
        else:
            inputs, targets = self._check_data(x, y)
            self._adapt_scalers([(inputs, targets)])

    def _adapt_to_stream(self, dataset):
        finite = (isinstance(dataset, tf.data.Dataset) and dataset.cardinality() >= 0) or (
            isinstance(dataset, keras.utils.PyDataset) and dataset.num_batches is not None
        )
        if not finite:
            raise ValueError(
                "Standardisation needs data of known finite length: call `model.adapt(x, y)` "
                "with arrays first, or build the model with `standardize=False`. "
                f"Received: x={dataset!r}"
            )
        if isinstance(dataset, keras.utils.PyDataset):
            dataset = (dataset[i] for i in range(dataset.num_batches))
        self._adapt_scalers([self._check_data(*batch[:2]) for batch in dataset])

    def _adapt_scalers(self, batches):
        for i, scaler in enumerate(self.input_scalers):
            self._adapt_input_scaler(i, scaler, (inputs[i] for inputs, _ in batches))
        self.target_scaler.adapt(targets for _, targets in batches)

    def _adapt_input_scaler(self, index, scaler, batches):
        scaler.adapt(batches)

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        shuffle=True,
        class_weight=None,
        sample_weight=None,
        initial_epoch=0,
        steps_per_epoch=None,
        validation_steps=None,
        validation_batch_size=None,
        validation_freq=1,
    ):
        """Fits the model; arguments and result as in `keras.Model.fit`.

        In-memory data is permuted anew in each epoch by the model's seed and its count of
        epochs, so that the same seed gives the same run and a restored run continues it.

        Args:
            x: Array `[N, ...]`, a list of arrays for several inputs, or a dataset or generator
                of `(x, y)` batches.
            y: Targets `[N, D]`, or `[N]` when D is 1.
            batch_size: Rows in a batch, 32 by default (arrays only).
            epochs: Number of epochs.
            verbose: As in Keras.
            callbacks: List of callbacks. One that acts at every batch is honoured, at the price
                of a slower loop where a method compiles whole epochs.
            validation_split: Fraction of the last rows to validate on (arrays only).
            validation_data: `(x, y)` or a dataset. `val_nll` is what to stop early on.
            shuffle: Whether to permute the rows of arrays.
            class_weight, sample_weight: Not supported.
            initial_epoch: Number of the first epoch.
            steps_per_epoch: Number of batches in an epoch (datasets only).
            validation_steps: Number of validation batches (datasets only).
            validation_batch_size: Rows in a validation batch.
            validation_freq: Epochs between validations.

        Returns:
            `keras.callbacks.History`.

        Raises:
            TypeError: If the data are not numbers.
            ValueError: If the data are bad, or an argument cannot be honoured.
        """
        self._refuse_weights(class_weight=class_weight, sample_weight=sample_weight)
        self._ensure_compiled()
        stream = data.is_stream(x)
        if stream:
            self._check_stream_arguments(y, validation_split)
            if not self.target_scaler.ready:
                self.adapt(x)
        else:
            self._check_array_arguments(batch_size, epochs, steps_per_epoch)
            inputs, targets = self._check_data(x, y)
            if validation_split and validation_data is None:
                parts = data.split_rows([*inputs, targets], validation_split)
                (*inputs, targets), (*held_out, held_out_targets) = parts
                validation_data = (self._pack(held_out), held_out_targets)
            if not self.target_scaler.ready:
                self._adapt_scalers([(inputs, targets)])
        if isinstance(validation_data, tuple | list):
            validation_data = self._check_validation_data(validation_data)
            validation_batch_size = validation_batch_size or PREDICT_BATCH_SIZE
        options = {
            "epochs": epochs,
            "verbose": verbose,
            "callbacks": self._epoch_callbacks(callbacks, initial_epoch),
            "validation_data": validation_data,
            "initial_epoch": initial_epoch,
            "validation_steps": validation_steps,
            "validation_batch_size": validation_batch_size,
            "validation_freq": validation_freq,
        }
        try:
            if stream:
                return super().fit(x, steps_per_epoch=steps_per_epoch, shuffle=False, **options)
            return self._fit_arrays(inputs, targets, batch_size or 32, shuffle, options)
        finally:
            # Keras keeps the epoch of a restored run for ever; a later `fit` starts at its own.
            self._initial_epoch = None

    def _epoch_callbacks(self, callbacks, initial_epoch):
        if isinstance(callbacks, keras.callbacks.CallbackList):
            raise TypeError(
                "`callbacks` must be a callback or a list of callbacks. "
                f"Received: callbacks={callbacks!r}"
            )
        given = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
        given = [callback for callback in given if callback is not None]
        return [EpochCounter(), *given, ResumeAtCounter(initial_epoch)]

    def _fit_arrays(self, inputs, targets, batch_size, shuffle, options):
        """Keras's loop over batches of arrays, in the model's own order of rows."""
        num_rows, num_batches = len(targets), -(-len(targets) // batch_size)

        def batches():
            order = self.epoch_order(num_rows, shuffle)
            for start in range(0, num_rows, batch_size):
                rows = order[start : start + batch_size]
                yield self._pack([x[rows] for x in inputs], tuple), targets[rows]

        specs = [tf.TensorSpec((None, *a.shape[1:]), a.dtype) for a in [*inputs, targets]]
        signature = (self._pack(specs[:-1], tuple), specs[-1])
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_batches))
        return super().fit(dataset, shuffle=False, **options)

    def epoch_order(self, num_rows, shuffle=True):
        """The order in which the current epoch visits in-memory rows, `[num_rows]`."""
        if not shuffle:
            return np.arange(num_rows, dtype=np.int32)
        return permutation(self.seed_state.numpy(), self.epochs_seen.numpy(), num_rows)

    def on_epoch_start(self):
        """What a method does before each epoch."""

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        """One update from one batch; continues a fitted model (`fit` adapts, this does not)."""
        self._refuse_weights(class_weight=class_weight, sample_weight=sample_weight)
        self._ensure_compiled()
        inputs, targets = self._check_data(x, y)
        self._check_ready()
        return super().train_on_batch(self._pack(inputs), targets, return_dict=return_dict)

    # Evaluation and prediction ----------------------------------------------------------------

    def evaluate(
        self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, **kwargs
    ):
        """Scores the predictive distribution; as `keras.Model.evaluate`.

        Args:
            x: As for `fit`.
            y: Targets, for arrays; NaN entries are left out where a method allows them.
            batch_size: Rows in a batch; the result does not depend on it.
            verbose: As in Keras.
            sample_weight: Not supported.
            **kwargs: Of `keras.Model.evaluate`; `return_dict=True` gives names.

        Returns:
            `loss` (equal to `nll`), `rmse`, `nll`, `crps`, `coverage_90` and the metrics of
            `compile`, in the user's units.
        """
        self._refuse_weights(sample_weight=sample_weight)
        self._ensure_compiled()
        self._check_ready()
        if not kwargs.get("_use_cached_eval_dataset") and not data.is_stream(x):
            inputs, targets = self._check_data(x, y)
            x, y, batch_size = self._pack(inputs), targets, batch_size or PREDICT_BATCH_SIZE
        return super().evaluate(x, y, batch_size=batch_size, verbose=verbose, **kwargs)

    def test_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        y = self._as_columns(y)
        distribution = self.predictive(x)
        for metric in [*self._default_metrics, *self._user_metrics]:
            own = type(metric).__module__.startswith(metrics.__name__)
            metric.update_state(y, distribution if own else distribution.mean())
        results = {m.name: m.result() for m in [*self._default_metrics, *self._user_metrics]}
        return {"loss": results["nll"], **results}

    def predict(self, x, batch_size=None, verbose=0, steps=None, callbacks=None):
        """Predictive moments.

        Args:
            x: Array `[N, ...]`, a list for several inputs, or a dataset of inputs.
            batch_size: Rows in a batch; the result does not depend on it.
            verbose, steps, callbacks: As in Keras.

        Returns:
            Dict of NumPy arrays `[N, D]`: `mean`, `stddev` (of an observation),
            `epistemic_stddev` (of f) and `aleatoric_stddev` (of the noise); variances add up.
        """
        self._check_ready()
        if not data.is_stream(x):
            x = self._pack(data.check_inputs(x, self.input_tensors))
            self._check_values(tf.nest.flatten(x))
            batch_size = batch_size or PREDICT_BATCH_SIZE
        return super().predict(
            x, batch_size=batch_size, verbose=verbose, steps=steps, callbacks=callbacks
        )

    def predict_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.predictive_moments(x)

    def predictive_moments(self, x):
        """The tensors of `predict`, in the graph; x in the user's units."""
        mean, variance = self.function_moments(x)
        noise = tf.broadcast_to(self.likelihood.noise_variance(self.target_unit), tf.shape(mean))
        return {
            "mean": mean,
            "stddev": tf.sqrt(variance + noise),
            "epistemic_stddev": tf.sqrt(variance),
            "aleatoric_stddev": tf.sqrt(noise),
        }

    def predict_distribution(self, x, batch_size=None):
        """The predictive distribution of the observations at each point.

        Args:
            x: As for `predict`.
            batch_size: As for `predict`.

        Returns:
            `tfd.Distribution` in the user's units, batch `[N]`, event `[D]`.
        """
        outputs = self.predict(x, batch_size=batch_size)
        variance = tf.square(tf.convert_to_tensor(outputs["epistemic_stddev"]))
        moments = GaussianMoments(tf.convert_to_tensor(outputs["mean"]), variance)
        return self.likelihood.predictive(moments, self.target_unit)

    def sample_functions(self, x, num_samples, seed=(0, 0)):
        """Draws functions from the posterior.

        Args:
            x: As for `predict`, arrays only.
            num_samples: S, a positive integer.
            seed: Integer or two integers. The same seed gives the same functions, at any x.

        Returns:
            NumPy array `[S, N, D]` in the user's units.

        Raises:
            ValueError: If `num_samples` is not a positive integer, or the data are bad.
        """
        if isinstance(num_samples, bool) or int(num_samples) != num_samples or num_samples < 1:
            raise ValueError(
                f"`num_samples` must be a positive integer. Received: num_samples={num_samples!r}"
            )
        self._check_ready()
        inputs = data.check_inputs(x, self.input_tensors)
        self._check_values(inputs)
        seed, rows = as_seed(seed), max(1, _SAMPLE_CHUNK // int(num_samples))
        chunks = [
            self._sample_function(
                self._pack([tf.constant(a[i : i + rows]) for a in inputs]), int(num_samples), seed
            ).numpy()
            for i in range(0, len(inputs[0]), rows)
        ]
        return np.concatenate(chunks, axis=1)

    def export(self, filepath, format="tf_saved_model", verbose=False, num_samples=100):
        """Writes a SavedModel that plain TensorFlow serves; see `tfp_fnspace.export`.

        Args:
            filepath: Folder to write.
            format: `"tf_saved_model"`.
            verbose: Whether Keras prints the endpoints.
            num_samples: Number of functions that the endpoint `sample` draws.

        Raises:
            ValueError: If the format is another one, or the model is not fitted.
        """
        if format != "tf_saved_model":
            raise ValueError(f"`format` must be 'tf_saved_model'. Received: format={format!r}")
        self._check_ready()
        export_saved_model(self, filepath, num_samples=num_samples, verbose=verbose)

    # Units and checks -------------------------------------------------------------------------

    @property
    def target_unit(self):
        """One model unit of the targets in the user's units, tensor `[D]`."""
        return self.target_scaler.stddev.value

    def _as_columns(self, y):
        """Targets of a stream as `[N, D]`."""
        y = tf.cast(y, self.variable_dtype)
        return y[:, tf.newaxis] if y.shape.rank == 1 else y

    def _pack(self, inputs, container=list):
        """The inputs as the model takes them: one array, or a list of several."""
        return inputs[0] if len(inputs) == 1 else container(inputs)

    def _check_data(self, x, y, prefix=""):
        inputs = data.check_inputs(x, self.input_tensors, name=f"{prefix}x")
        self._check_values(inputs)
        targets = data.check_targets(
            y,
            len(inputs[0]),
            self.num_outputs,
            self.missing_targets_allowed,
            self.input_tensors[0].dtype,
            name=f"{prefix}y",
        )
        return inputs, targets

    def _check_values(self, inputs):
        """What a method demands of its inputs beyond being finite."""

    def _check_validation_data(self, validation_data):
        if len(validation_data) != 2:
            raise ValueError(
                "`validation_data` must be a pair (x, y) or a dataset; weights are not supported. "
                f"Received: {len(validation_data)} items"
            )
        inputs, targets = self._check_data(*validation_data, prefix="validation ")
        return self._pack(inputs), targets

    def _check_ready(self):
        if not self.target_scaler.ready:
            raise ValueError(
                "The model is not fitted: call `fit`, or `adapt(x, y)` to predict from the "
                "prior. Received: a model whose standardisation has seen no data"
            )

    def _check_stream_arguments(self, y, validation_split):
        if y is not None or validation_split:
            raise ValueError(
                "A dataset yields (x, y) batches itself; `y` and `validation_split` go with "
                f"arrays. Received: y={type(y).__name__}, validation_split={validation_split!r}"
            )

    def _check_array_arguments(self, batch_size, epochs, steps_per_epoch):
        for name, value in {"batch_size": batch_size, "epochs": epochs}.items():
            if value is not None and (int(value) != value or value < 1):
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
        if steps_per_epoch is not None:
            raise ValueError(
                "`steps_per_epoch` goes with datasets; an epoch of arrays is all rows. "
                f"Received: steps_per_epoch={steps_per_epoch!r}"
            )

    def _refuse_weights(self, **weights):
        for name, value in weights.items():
            if value is not None:
                raise ValueError(
                    f"`{name}` is not supported by {type(self).__name__}. "
                    f"Received: {name} of type {type(value).__name__}"
                )
