"""Units, and checks of what users pass."""

import numpy as np
import tensorflow as tf

from tfp_fnspace import arguments, columns, data, notices, streams
from tfp_fnspace.typing import GaussianMoments

#: Rows in a batch of `predict` and `evaluate`; the results do not depend on this number.
PREDICT_BATCH_SIZE = 1024

#: Rows in a batch of `fit`, the same as in Keras.
FIT_BATCH_SIZE = 32

#: A noise scale above this many standard deviations of the targets is a mistake in the units.
_LARGEST_NOISE = 2.0


class Checks:
    """Checks of data and arguments, each with one clear error."""

    #: Whether NaN in the targets stands for a missing value.
    missing_targets_allowed = False

    #: Whether outputs may describe the noise, as in `HeteroscedasticGaussian`.
    noise_outputs_allowed = False

    @property
    def predict_batch_size(self):
        """Rows in a batch of `predict` and `evaluate` if the user does not say."""
        return PREDICT_BATCH_SIZE

    @property
    def fit_batch_size(self):
        """Rows in a batch of `fit` if the user does not say."""
        return FIT_BATCH_SIZE

    #: For each input that holds indices, the number of rows of the table that it indexes. Indices
    #: are not standardised. `None` if no input holds indices.
    index_inputs = None

    #: For each input that holds variances, the number of the input whose variances they are. `None`
    #: if no input holds variances.
    input_roles = None

    @property
    def served_dtypes(self):
        """Dtypes of the inputs of an exported model."""
        return [tensor.dtype for tensor in self.input_tensors]

    @property
    def num_target_columns(self):
        """Columns of the targets: D, or one of class labels."""
        return self.likelihood.num_target_columns(self.num_outputs)

    @property
    def num_function_outputs(self):
        """Outputs that are functions; those after them describe the noise."""
        outputs = self.num_outputs
        return self.num_target_columns if self.likelihood.has_noise_outputs else outputs

    def about_targets(self, values):
        """Returns those outputs that are functions, `[..., D]` of `[..., D + E]`."""
        return values[..., : self.num_function_outputs]

    def functions_in_user_units(self, values):
        """Returns functions in the user's units, `[..., D]` in float64, for outputs in model units.

        The logits of a classifier have no units and stay as they are.
        """
        values = self.about_targets(values)
        return values if self.likelihood.is_classifier else self.target_scaler.inverse(values)

    def in_user_units(self, moments):
        """Returns the moments of f in the user's units, float64, given those in model units."""
        mean, variance = moments
        if self.likelihood.is_classifier:
            return GaussianMoments(mean, variance)
        if variance is not None:
            functions = tf.cast(self.about_targets(variance), tf.float64)
            scaled = functions * tf.square(self.target_unit)
            variance = self._with_noise_outputs(scaled, variance)
        return GaussianMoments(
            self._with_noise_outputs(self.functions_in_user_units(mean), mean), variance
        )

    def _with_noise_outputs(self, functions, values):
        """Returns functions, followed by the outputs that describe the noise in model units."""
        if not self.likelihood.has_noise_outputs:
            return functions
        others = tf.cast(values[..., self.num_function_outputs :], functions.dtype)
        return tf.concat([functions, others], axis=-1)

    @property
    def scalers_ready(self):
        """Whether inputs and targets have a standardisation, or need none."""
        if self.input_tensors is None:
            return False
        return all(scaler.ready for scaler in [*self.input_scalers, self.target_scaler])

    @property
    def target_unit(self):
        """One model unit of the targets in the user's units, float64 tensor `[D]`."""
        return self.target_scaler.stddev.value

    #: Entries of `History` that are log densities of a row. `loss` is a negative log density.
    log_densities = ("log_likelihood", "elbo")

    @property
    def log_target_units(self):
        """What to subtract from a log density of each target to go from model units to the user's.

        A float64 tensor `[D]`, 0 for classes.
        """
        if self.likelihood.is_classifier:
            return tf.zeros([1], tf.float64)
        return tf.math.log(self.target_unit)

    @property
    def log_target_unit(self):
        """The sum of `log_target_units` over a row of targets, a float64 scalar."""
        return tf.reduce_sum(self.log_target_units)

    def logs_in_user_units(self, logs):
        """Returns the logs of a step or an epoch in the user's units; no other place converts them.

        The sum over the targets of the logarithms of their units is subtracted from each log
        density of a row (`log_densities`). It is added to `loss`, which is a negative log density
        with or without further terms. Other entries, such as divergences, have no units.

        Args:
            logs: Dict of tensors or numbers, in model units.

        Returns:
            Dict of tensors of the same names.
        """
        shift = self.log_target_unit
        signs = {**dict.fromkeys(self.log_densities, -1.0), "loss": 1.0}
        values = {name: tf.convert_to_tensor(value) for name, value in logs.items()}
        return {
            name: v + signs[name] * tf.cast(shift, v.dtype) if name in signs else v
            for name, v in values.items()
        }

    def scaled(self, inputs):
        """Returns the inputs in model units, a list of tensors."""
        tensors = data.check_structure(inputs, self.input_tensors)
        return [scaler(x) for x, scaler in zip(tensors, self.input_scalers, strict=True)]

    def _as_columns(self, y):
        """Returns the targets of a batch as `[N, D]`, or as `[N, 1]` for labels."""
        return tf.cast(data.check_columns(y, self.num_target_columns), self._target_dtype)

    @property
    def _target_dtype(self):
        """Dtype of targets in the user's units."""
        return self.variable_dtype if self.likelihood.is_classifier else "float64"

    @property
    def _standardized_inputs(self):
        """Whether each input is in the user's units: standardised, or a variance of one that is."""
        return [
            self.input_scalers[i if role is None else role].enabled
            for i, role in enumerate(self.input_roles or [None] * len(self.input_tensors))
        ]

    def _checked_stream(self, stream, with_targets=True, first=False, learnt=False):
        """Returns the batches of a stream, which are checked as arrays are.

        Args:
            stream: An object for which `streams.is_stream` is true.
            with_targets: Whether the targets are wanted.
            first: Whether the first batch defines the columns of the model, see `_check_data`.
            learnt: Whether the batches are learnt from, see `_check_data`.
        """

        def check(x, *targets):
            nonlocal first
            if not targets:
                inputs = self._check_inputs(x, "batch x")
                self._check_batch_size(len(inputs[0]))
                return (self._pack(inputs, tuple),)
            inputs, y = self._check_data(x, *targets, prefix="batch ", first=first, learnt=learnt)
            self._check_batch_size(len(y))
            first = False
            return self._pack(inputs, tuple), y

        def check_shapes(x, *targets):
            data.check_structure(x, self.input_tensors)
            for y in targets:
                data.check_columns(y, self.num_target_columns, num_labels)

        if hasattr(stream, "__next__") and self.distribute_strategy is not (
            tf.distribute.get_strategy()
        ):
            raise ValueError(
                "A generator cannot be shared among the devices of a strategy: "
                "`tf.data.Dataset.from_generator` makes a dataset of its function. "
                f"Received: a generator and {type(self.distribute_strategy).__name__}"
            )
        num_labels = self.likelihood.num_labels(self.num_outputs)
        inputs = [
            tf.TensorSpec((None, *tensor.shape[1:]), "float64" if in_units else tensor.dtype)
            for tensor, in_units in zip(self.input_tensors, self._standardized_inputs, strict=True)
        ]
        targets = tf.TensorSpec((None, self.num_target_columns), self._target_dtype)
        signature = (self._pack(inputs, tuple), targets)[: 1 + with_targets]
        return streams.CheckedStream(stream, check, check_shapes, signature)

    def _pack(self, inputs, container=list):
        """Returns the inputs as the model takes them: one array, or a list of several."""
        return inputs[0] if len(inputs) == 1 else container(inputs)

    def _feed(self, inputs, targets, batch_size):
        """Returns checked arrays as Keras takes them: a dataset of batches.

        Keras would convert arrays to float32 before they are standardised.
        """
        parts = [self._pack(inputs, tuple), *([] if targets is None else [targets])]
        return streams.batches_of(*parts, size=batch_size)

    @property
    def column_names(self):
        """The column names of the data frame that the model was first fitted to, or `None`.

        This is a list for the model's first input. A frame whose columns differ, or have another
        order, is then refused; this holds for each input.
        """
        names = self.input_scalers[0].column_names if self.input_tensors is not None else None
        return names if names is None else list(names)

    @property
    def target_names(self):
        """The column names of the targets, as `column_names` for the inputs."""
        names = self.target_scaler.column_names if self.input_tensors is not None else None
        return names if names is None else list(names)

    @property
    def _has_units(self):
        """Whether the model has seen data: later data must then have the same columns."""
        scalers = [*self.input_scalers, self.target_scaler]
        return bool(self.steps_seen.numpy()) or any(scaler.adapted.numpy() for scaler in scalers)

    def _check_inputs(self, x, name="x", first=False):
        """Checks inputs and returns them as a list of arrays; `first` is as in `_check_data`."""
        if not first:
            items = data.input_items(x, self.input_tensors, name)
            for item, scaler in zip(items, self.input_scalers, strict=True):
                columns.check_column_names(item, scaler.column_names, name)
        inputs = data.check_inputs(x, self.input_tensors, name, self._standardized_inputs)
        self._check_values(inputs)
        if not first:
            for array, scaler in zip(inputs, self.input_scalers, strict=True):
                scaler.check_near(array, name)
        return inputs

    def _check_data(self, x, y, prefix="", first=False, learnt=False):
        """Checks inputs and targets and returns them.

        Args:
            x: Inputs.
            y: Targets.
            prefix: Prefix of the names in messages.
            first: Whether these are the model's first data. Their columns are remembered, and those
                of all later data are compared with them.
            learnt: Whether the model learns from these data. If no earlier data had column names,
                theirs are remembered.
        """
        inputs = self._check_inputs(x, f"{prefix}x", first)
        scaler, name = self.target_scaler, f"{prefix}y"
        if not first:
            columns.check_column_names(y, scaler.column_names, name, "target_names")
        targets = data.check_targets(
            y,
            len(inputs[0]),
            self.num_target_columns,
            self.missing_targets_allowed,
            self._target_dtype,
            name=name,
            num_labels=self.likelihood.num_labels(self.num_outputs),
            largest=data.LARGEST_VALUE if self.standardize else data.LARGEST_SCALED,
        )
        if not first:
            scaler.check_near(targets, name)
        if first or learnt:
            items = [*data.input_items(x, self.input_tensors), y]
            for each, item in zip([*self.input_scalers, scaler], items, strict=True):
                if first or each.column_names is None:
                    each.column_names = columns.names_to_keep(item)
        return inputs, targets

    def _check_batch_size(self, batch_size):
        """Refuses a number of rows that a method cannot process at once."""

    def _check_values(self, inputs):
        """Checks what a method requires of its inputs, beyond that they are finite."""

    def _check_validation_data(self, validation_data):
        pair = isinstance(validation_data, tuple | list)
        if not pair or len(validation_data) != 2:
            number = f"{len(validation_data)} items" if pair else type(validation_data).__name__
            raise ValueError(
                "`validation_data` must be a pair (x, y) or a dataset; weights are not supported. "
                f"Received: {number}"
            )
        inputs, targets = self._check_data(*validation_data, prefix="validation ")
        return inputs, targets

    def _warn_of_large_noise(self):
        """Warns of a noise scale that was probably meant in the user's units."""
        scale = getattr(self.likelihood, "scale", None)
        if scale is None or not self.target_scaler.enabled:
            return
        scale, unit = float(np.max(scale)), float(np.max(self.target_scaler.stddev))
        if scale > _LARGEST_NOISE:
            notices.warn(
                f"The noise of the likelihood, scale={scale:g}, is in standard deviations of the "
                f"targets, {unit:g} here: if it was meant in units of the targets, pass "
                f"scale={scale / unit:.3g} or units='user'.",
            )

    def _check_ready(self):
        if not self.scalers_ready:
            raise ValueError(
                "The model is not fitted: call `fit`, or `adapt(x, y)` to predict from the "
                "prior. Received: a model whose standardisation has seen no data"
            )

    def _check_fit_of_stream(self, x):
        """Refuses a stream if the method cannot learn from one."""

    def _check_stream_arguments(self, y, validation_split=0.0):
        if y is not None or validation_split:
            raise ValueError(
                "A dataset yields (x, y) batches itself; `y` and `validation_split` are for "
                f"arrays. Received: y={type(y).__name__}, validation_split={validation_split!r}"
            )

    def _check_passes(self, stream, name, steps, num_passes=1):
        """Refuses passes over a stream that would not end, or that would find no data left."""
        if steps is not None:
            return
        if streams.is_endless(stream):
            raise ValueError(f"A dataset without an end needs `{name}`. Received: {name}=None")
        if num_passes > 1 and hasattr(stream, "__next__"):
            raise ValueError(
                f"A generator has one pass, so `{name}` must say how many of its batches are an "
                f"epoch's. Received: {name}=None with {num_passes} epochs"
            )

    def _batch_rows(self, batch_size, num_rows, default):
        """Returns the rows in a batch of arrays: `default` for `None`, never more than all rows."""
        if batch_size is None:
            return default
        return min(arguments.checked_count("batch_size", batch_size), num_rows)

    def _refuse_steps(self, steps_per_epoch):
        if steps_per_epoch is not None:
            raise ValueError(
                "`steps_per_epoch` is for datasets; an epoch of arrays is all rows. Received: "
                f"steps_per_epoch={steps_per_epoch!r}"
            )

    def _refuse_weights(self, **weights):
        for name, value in weights.items():
            if value is not None:
                raise ValueError(
                    f"`{name}` is not supported by {type(self).__name__}. "
                    f"Received: {name} of type {type(value).__name__}"
                )
