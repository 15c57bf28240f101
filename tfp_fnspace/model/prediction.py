"""Evaluation, prediction and export of models that keep the contract."""

import math

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import arguments, files, notices, streams
from tfp_fnspace.callbacks import check_room, checked_callbacks, save_weights
from tfp_fnspace.distributions.quantile import quantile
from tfp_fnspace.export import QUANTILE_LEVELS, export_saved_model
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.metrics.of_classes import check_class_metric, for_class_metric
from tfp_fnspace.model import saving
from tfp_fnspace.model.checks import Checks
from tfp_fnspace.tracing import collectable
from tfp_fnspace.typing import GaussianMoments

#: How many numbers the widest tensor of one chunk of `sample_functions` may hold.
SAMPLE_CHUNK = 2**22


class Prediction(Checks):
    """`evaluate`, `predict`, `predict_distribution`, `sample_functions` and `export`."""

    def evaluate(
        self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, **kwargs
    ):
        """Scores the predictive distribution, as `keras.Model.evaluate` does.

        Args:
            x: As for `fit`.
            y: Targets, for arrays; NaN entries are left out where a method allows them.
            batch_size: Rows in a batch; the result does not depend on it.
            verbose: As in Keras.
            sample_weight: Not supported.
            **kwargs: Arguments of `keras.Model.evaluate`; `return_dict=True` gives names.

        Returns:
            `loss` (equal to `nll`), `rmse`, `nll`, `crps`, `coverage_90` and the metrics of
            `compile`, in the user's units. A classifier has `accuracy`, `nll` and `ece` instead.
        """
        self._refuse_weights(sample_weight=sample_weight)
        cached = kwargs.get("_use_cached_eval_dataset")  # a validation of `fit`
        known = ("return_dict", "steps", "callbacks", "_use_cached_eval_dataset")
        arguments.check_verbose(verbose)
        arguments.refuse_unknown("evaluate", {k: v for k, v in kwargs.items() if k not in known})
        if not cached:
            checked_callbacks(kwargs.get("callbacks"))
            self._check_steps(kwargs.get("steps"))
        self._ensure_compiled()
        self._check_ready()
        self._check_metrics()
        stream = None
        if cached:
            pass  # `fit` has checked its validation data
        elif streams.is_stream(x):
            self._check_stream_arguments(y)
            self._check_passes(x, "steps", kwargs.get("steps"))
            stream = self._checked_stream(x)
            x = stream.for_keras()
        else:
            inputs, targets = self._check_data(x, y)
            rows = self._batch_rows(batch_size, len(targets), self.predict_batch_size)
            x = self._feed(inputs, targets, rows)
            y, batch_size = None, None
        with streams.own_errors(stream), self._turns.scoring():
            scores = super().evaluate(x, y, batch_size=batch_size, verbose=verbose, **kwargs)
        return tf.nest.map_structure(float, scores)  # tensors in older versions of Keras

    def test_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        y = self._as_columns(y)
        distribution = self.predictive(x)
        for metric in self._scores:
            whole = getattr(metric, "takes_distribution", False)
            metric.update_state(y, distribution if whole else self._point(distribution, metric))
        return self._results()

    @property
    def _scores(self):
        """The metrics that evaluation reports, a list."""
        return [*self._default_metrics, *self._user_metrics]

    def _results(self):
        results = {metric.name: metric.result() for metric in self._scores}
        return {"loss": results["nll"], **results}

    def _point(self, distribution, metric):
        """Returns the prediction for a metric that does not take a distribution."""
        if not self.likelihood.is_classifier:
            return distribution.mean()
        probabilities = self.likelihood.probabilities(distribution)
        return for_class_metric(metric, probabilities, self.num_target_columns)

    def _check_metrics(self):
        """Refuses metrics that compare nothing, or that are meaningless for this classifier."""
        for metric in self._user_metrics:
            if type(metric) in (keras.metrics.Mean, keras.metrics.Sum):
                raise ValueError(
                    "`metrics` must compare targets with predictions. "
                    f"Received: metric {type(metric).__name__}"
                )
        if self.num_outputs is None or not self.likelihood.is_classifier:
            return
        num_classes = self.likelihood.num_labels(self.num_outputs)
        for metric in self._user_metrics:
            check_class_metric(metric, num_classes, self.num_target_columns)

    def get_metrics_result(self):
        # Training reports its own results. With several replicas, these are the results of all.
        return self._results() if self._turns.is_scoring else {}

    def predict(self, x, batch_size=None, verbose=0, steps=None, callbacks=None):
        """Predicts moments, or probabilities of classes.

        Args:
            x: Array `[N, ...]`, a list for several inputs, or a dataset of inputs.
            batch_size: Rows in a batch; the result does not depend on it.
            verbose: As in Keras.
            steps: As in Keras.
            callbacks: As in Keras.

        Returns:
            Dict of NumPy arrays `[N, D]`: `mean`, `stddev` (of an observation), `epistemic_stddev`
            (of f) and `aleatoric_stddev` (of the noise); the variances add up. For a classifier,
            the dict has `probabilities` `[N, D]`, the `entropy` `[N]` of the label in nats, and the
            `mutual_information` `[N]` between the label and f, which is the part of the entropy
            that knowing f would remove.
        """
        arguments.check_verbose(verbose)
        checked_callbacks(callbacks)
        self._check_steps(steps)
        self._check_ready()
        stream = None
        if streams.is_stream(x):
            self._check_passes(x, "steps", steps)
            stream = self._checked_stream(x, with_targets=False)
            x = stream.for_keras()
        else:
            inputs = self._check_inputs(x)
            rows = self._batch_rows(batch_size, len(inputs[0]), self.predict_batch_size)
            x, batch_size = self._feed(inputs, None, rows), None
        with streams.own_errors(stream):
            outputs = super().predict(
                x, batch_size=batch_size, verbose=verbose, steps=steps, callbacks=callbacks
            )
        _warn_of_nan("predictions", outputs.values())
        return outputs

    def _check_steps(self, steps):
        if steps is not None:
            arguments.check_count("steps", steps)

    def predict_on_batch(self, x):
        """Predicts for one batch, as `predict` does."""
        self._check_ready()
        if self.distribute_strategy.num_replicas_in_sync > 1:  # Keras gives each the whole batch
            return self.predict(x, batch_size=len(tf.nest.flatten(x)[0]))
        inputs = self._check_inputs(x)
        return super().predict_on_batch(self._pack(inputs))

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict=False):
        """Scores one batch, as `evaluate` does."""
        self._refuse_weights(sample_weight=sample_weight)
        self._ensure_compiled()
        inputs, targets = self._check_data(x, y)
        self._check_ready()
        if self.distribute_strategy.num_replicas_in_sync > 1:  # Keras gives each the whole batch
            return self.evaluate(x, y, len(targets), verbose=0, return_dict=return_dict)
        with self._turns.scoring():
            return super().test_on_batch(self._pack(inputs), targets, return_dict=return_dict)

    @collectable
    def predict_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.predictive_moments(x)

    def predictive_moments(self, x):
        """Returns the tensors of `predict`, in the graph; x is in the user's units."""
        noise = self.likelihood.noise_variance(self.target_unit)
        return self._summary_of_moments(self.function_moments(x), noise)

    def _summary_of_moments(self, moments, noise):
        mean, variance = moments
        noise = tf.cast(noise, mean.dtype)
        noise = tf.broadcast_to(noise, tf.shape(mean))
        return {
            "mean": mean,
            "stddev": tf.sqrt(variance + noise),
            "epistemic_stddev": tf.sqrt(variance),
            "aleatoric_stddev": tf.sqrt(noise),
        }

    def served_outputs(self, x):
        """Returns the tensors of the endpoint `serve`, in the graph; x is in the user's units."""
        outputs = self.predictive_moments(x)
        if not self.likelihood.is_classifier:
            outputs["quantiles"] = quantile(self.predictive(x), list(QUANTILE_LEVELS))
        return outputs

    def predict_distribution(self, x, batch_size=None, joint=False):
        """Returns the predictive distribution of the observations at each point.

        Args:
            x: As for `predict`.
            batch_size: As for `predict`.
            joint: Whether to return the joint distribution of all points, for models that have it.

        Returns:
            `tfd.Distribution` in the user's units, batch `[N]`, event `[D]`.

        Raises:
            ValueError: If `joint` is true, or the data are bad.
        """
        if joint:
            raise ValueError(
                f"`joint` must be False for {type(self).__name__} with this likelihood, which "
                "knows the distribution of each point only (`sample_functions` draws functions). "
                f"Received: joint={joint!r}"
            )
        outputs = self.predict(x, batch_size=batch_size)
        if self.likelihood.is_classifier:
            return self.likelihood.from_probabilities(outputs["probabilities"])
        mean, stddev, of_functions = (
            tf.convert_to_tensor(outputs[key]) for key in ("mean", "stddev", "epistemic_stddev")
        )
        if self.likelihood.has_noise_outputs:
            return self.likelihood.predictive_from(mean, stddev)
        moments = GaussianMoments(mean, tf.square(of_functions))
        return self.likelihood.predictive(moments, self.target_unit)

    def sample_functions(self, x, num_samples, seed=(0, 0)):
        """Draws functions from the posterior.

        Args:
            x: As for `predict`, arrays only.
            num_samples: S, a positive integer.
            seed: Integer or two integers. The same seed gives the same functions at any x, unless
                the model documents otherwise.

        Returns:
            NumPy array `[S, N, D]` in the user's units.

        Raises:
            ValueError: If `num_samples` is not a positive integer, or the data are bad.
        """
        arguments.check_count("num_samples", num_samples)
        self._check_ready()
        inputs = self._check_inputs(x)
        seed = as_seed(seed)
        rows = max(1, SAMPLE_CHUNK // self.numbers_per_row(int(num_samples)))
        chunks = [
            self._sample_function(
                self._pack([tf.constant(a[i : i + rows]) for a in inputs]), int(num_samples), seed
            ).numpy()
            for i in range(0, len(inputs[0]), rows)
        ]
        functions = np.concatenate(chunks, axis=1)
        _warn_of_nan("function samples", [np.swapaxes(functions, 0, 1)])
        return functions

    def numbers_per_row(self, num_samples):
        """Returns how many numbers `num_samples` function samples take at one point."""
        return num_samples * self.numbers_per_sample()

    def numbers_per_sample(self):
        """Returns how many numbers a function sample takes at one point, in the widest tensor."""
        return max(self.num_outputs, *(math.prod(t.shape[1:]) for t in self.input_tensors))

    def save(self, filepath, overwrite=True, zipped=None, **kwargs):
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
        if saving.is_remote(filepath):
            return super().save(filepath, overwrite=overwrite, zipped=zipped, **kwargs)
        path = saving.checked_model_path(filepath, zipped)
        if saving.may_write(path, overwrite):
            with files.replacing(path) as partial, notices.without_copy_keyword():
                check_room(self, partial)
                super().save(partial, zipped=zipped, **kwargs)

    def save_weights(self, filepath, overwrite=True, max_shard_size=None):
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
        if saving.is_remote(filepath):
            return super().save_weights(filepath, overwrite, max_shard_size)
        if max_shard_size is not None:
            return self._save_shards(filepath, overwrite, max_shard_size)
        path = saving.checked_weights_path(filepath)
        if saving.may_write(path, overwrite):
            with files.replacing(path) as partial:
                save_weights(self, partial)

    def _save_shards(self, filepath, overwrite, max_shard_size):
        arguments.checked_positive("max_shard_size", max_shard_size)
        path = saving.checked_weights_path(filepath, ".weights.json")
        if saving.may_write(path, overwrite):
            with files.replacing_several(path) as partial, notices.without_copy_keyword():
                check_room(self, partial, max_shard_size)
                super().save_weights(partial, max_shard_size=max_shard_size)

    def load_weights(self, filepath, skip_mismatch=False, **kwargs):
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
        before = [(weight, weight.numpy()) for weight in self.weights]
        options = {"skip_mismatch": skip_mismatch, **kwargs}
        try:
            saving.in_words(super().load_weights, filepath, **options)
        except ValueError:
            for weight, value in before:  # Keras has loaded some of them
                weight.assign(value)
            raise

    def load_own_variables(self, store):
        saving.check_finite(store)
        super().load_own_variables(store)

    def export(self, filepath, format="tf_saved_model", verbose=False, num_samples=100):
        """Writes a SavedModel that plain TensorFlow serves; see `tfp_fnspace.export`.

        Args:
            filepath: Folder to write. An existing SavedModel is replaced in one step.
            format: `"tf_saved_model"`.
            verbose: Whether Keras prints the endpoints.
            num_samples: Number of functions that the endpoint `sample` draws.

        Raises:
            OSError: If the folder cannot be written; its content is then unchanged.
            TypeError: If `filepath` is not a path.
            ValueError: If the format is another one, the model is not fitted, the folder holds
                other things, or the targets are too large or too small for the served dtype,
                usually float32.
        """
        arguments.checked_choice("format", format, ("tf_saved_model",))
        self._check_ready()
        self._check_served_range()
        export_saved_model(self, filepath, num_samples=num_samples, verbose=verbose)

    def _check_served_range(self):
        unit, mean = self.target_scaler.stddev.numpy(), self.target_scaler.mean.numpy()
        held = np.finfo(self.variable_dtype)
        # This leaves room for values thousands of units away, and for small parts of a unit.
        largest = np.maximum(unit, np.abs(mean)) > 1e-4 * held.max
        bad = np.flatnonzero(largest | (unit < 1e4 * held.tiny))
        if len(bad):
            raise ValueError(
                f"`export` serves {self.variable_dtype}, which cannot hold these targets: multiply "
                f"them by a number. Received: means={mean[bad].tolist()} and standard "
                f"deviations={unit[bad].tolist()} in columns {bad.tolist()}"
            )


def _warn_of_nan(what, arrays):
    """Warns of rows of arrays `[N, ...]` with NaN, which checks of the data cannot foresee."""
    bad = np.any([np.isnan(a).reshape(len(a), -1).any(axis=1) for a in arrays], axis=0)
    rows = np.flatnonzero(bad)
    if rows.size:
        notices.warn(
            f"The {what} are NaN at {rows.size} of {len(bad)} rows, the first is {rows[0]}: the "
            "inputs there may be too large for the model's dtype, or its weights are NaN.",
            RuntimeWarning,
        )
