"""Training of models that keep the contract: data checks, standardisation, order of rows."""

import functools
import itertools
import zlib

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import arguments, data, interrupts, notices, streams
from tfp_fnspace.callbacks import (
    EpochCounter,
    EpochStart,
    checked_callbacks,
    resolve_modes,
    with_safe_backups,
)
from tfp_fnspace.layers.scaler import RunningMoments
from tfp_fnspace.math.random import permutation
from tfp_fnspace.model.checks import Checks
from tfp_fnspace.model.turns import one_thread_at_a_time
from tfp_fnspace.tracing import collectable, count_apart

#: Number of rows by which data are told apart from other data.
_ROWS_TO_COMPARE = 256


def _keeping_whole(fit):
    """Wraps `fit` so that the weights are those of a whole step, however it ends."""

    @functools.wraps(fit)
    def whole_fit(self, *args, **kwargs):
        with interrupts.deferred():
            is_first = not self.steps_seen.numpy()
            before = [(weight, weight.numpy()) for weight in self.weights] if is_first else []
            try:
                history = fit(self, *args, **kwargs)
                self._forget_epoch()
            except BaseException:
                with interrupts.held():
                    self._settle(before)
                raise
            return history

    return whole_fit


class Training(Checks):
    """`adapt`, `fit` and `train_on_batch`."""

    #: The metrics that training steps update; `evaluate` updates others.
    _training_metrics = ()

    #: The batch at which the current epoch begins: not 0 if the epoch was interrupted before.
    _first_batch = 0

    @one_thread_at_a_time
    def adapt(self, x, y=None):
        """Sets the standardisation from data; `fit` does so by itself the first time.

        Args:
            x: Arrays, as for `fit`, or a finite dataset of `(x, y)` batches.
            y: Targets, for arrays.

        Raises:
            ValueError: If a dataset's length is infinite or unknown, the data are bad, or the
                model has learnt already.
        """
        is_stream = streams.is_stream(x)
        if is_stream:
            self._check_stream_arguments(y)
        if not self.standardize:
            if is_stream:
                self._checked_stream(x)
            elif not self.steps_seen.numpy():
                self._check_data(x, y, first=True)
            return
        if self.steps_seen.numpy():
            raise ValueError(
                "`adapt` would change the units of what the model has learnt: call it before "
                f"the first `fit`. Received: a model after {self.steps_seen.numpy()} batches"
            )
        if is_stream:
            stream = self._checked_stream(x, first=True)
            with streams.own_errors(stream):
                self._adapt_to_stream(stream)
        else:
            self._adapt_scalers([self._check_data(x, y, first=True)])

    def _adapt_to_stream(self, stream):
        if stream.count_batches() is None:
            raise ValueError(
                "Standardisation needs data of known finite length: call `model.adapt(x, y)` "
                "with arrays first, or build the model with `standardize=False`. "
                f"Received: x={stream.given!r}"
            )
        self._adapt_scalers(stream.batches())

    def _adapt_scalers(self, batches):
        """Adapts the scalers in one pass over `(inputs, targets)`, which need not fit in memory."""
        scalers = [*self.input_scalers, self.target_scaler]
        moments = [RunningMoments(scaler.mean.shape[0]) for scaler in scalers]
        names = ["x"] * len(self.input_scalers) + ["y"]
        enabled = [scaler.enabled for scaler in scalers]
        for inputs, targets in batches:
            pairs = zip(moments, [*inputs, targets], strict=True)
            for running, values in itertools.compress(pairs, enabled):
                running.update(values)
        triples = zip(scalers, moments, names, strict=True)
        for scaler, running, name in itertools.compress(triples, enabled):
            scaler.adapt(running, name)
        if self.target_scaler.enabled:
            self._adapt_noise(self.target_scaler.stddev.numpy())
        self._warn_of_large_noise()

    def _adapt_noise(self, unit):
        """Converts a noise scale that the user gave in their units to model units."""
        if hasattr(self.likelihood, "adapt"):
            self.likelihood.adapt(unit)

    @one_thread_at_a_time
    @_keeping_whole
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
        **unknown,
    ):
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
                of `(x, y)` batches.
            y: Targets `[N, D]`, or `[N]` when D is 1; `[N]` integer labels for a categorical
                likelihood.
            batch_size: Rows in a batch, 32 by default (arrays only).
            epochs: Number of epochs.
            verbose: As in Keras.
            callbacks: List of callbacks. A callback that acts at every batch is honoured, but it
                slows down a method that compiles whole epochs. Without callbacks and validation,
                several short epochs may be computed at once; the run is the same.
            validation_split: Fraction of the last rows to validate on (arrays only).
            validation_data: `(x, y)` or a dataset. Use `val_nll` for early stopping.
            shuffle: Whether to permute the rows of arrays.
            class_weight: Not supported.
            sample_weight: Not supported.
            initial_epoch: Number of the first epoch.
            steps_per_epoch: Number of batches in an epoch (datasets only).
            validation_steps: Number of validation batches (datasets only).
            validation_batch_size: Rows in a validation batch.
            validation_freq: Epochs between validations.
            **unknown: Refused.

        Returns:
            `keras.callbacks.History` with means over the rows of an epoch, in the user's units.
            `loss` is what the method minimises: the negative of the lower bound, or of the
            objective that replaces it. For methods that minimise nothing (TAGI, the stable process)
            it is the negative of `log_likelihood`. `val_loss` equals `val_nll`, so it is not
            comparable with `loss`.

        Raises:
            TypeError: If the data are not numbers, a callback is not one, or an argument is
                unknown.
            ValueError: If the data are bad, or an argument cannot be honoured.
        """
        arguments.refuse_unknown("fit", unknown)
        self._refuse_weights(class_weight=class_weight, sample_weight=sample_weight)
        arguments.check_verbose(verbose)
        epochs = arguments.checked_count("epochs", epochs)
        initial_epoch = arguments.checked_count("initial_epoch", initial_epoch, 0)
        if not isinstance(validation_freq, list | tuple | set):
            arguments.check_count("validation_freq", validation_freq)
        for name, value in {
            "batch_size": batch_size,
            "steps_per_epoch": steps_per_epoch,
            "validation_steps": validation_steps,
            "validation_batch_size": validation_batch_size,
        }.items():
            if value is not None:
                arguments.check_count(name, value)
        given_callbacks = self._epoch_callbacks(callbacks, initial_epoch)
        self._ensure_compiled()
        is_stream = streams.is_stream(x)
        if is_stream:
            self._check_fit_of_stream(x)
            self._check_stream_arguments(y, validation_split)
            self._check_passes(x, "steps_per_epoch", steps_per_epoch, epochs - initial_epoch)
            x = self._checked_stream(x, first=not self._has_units, learnt=True)
            with streams.own_errors(x):
                if not self.scalers_ready:
                    self._adapt_to_stream(x)
        else:
            self._refuse_steps(steps_per_epoch)
            inputs, targets = self._check_data(x, y, first=not self._has_units, learnt=True)
            if validation_split and validation_data is None:
                parts = data.split_rows([*inputs, targets], validation_split)
                (*inputs, targets), (*held_out, held_out_targets) = parts
                validation_data = (self._pack(held_out), held_out_targets)
            if not self.scalers_ready:
                self._adapt_scalers([(inputs, targets)])
        held_out = validation_data
        if streams.is_stream(validation_data):
            self._check_passes(
                validation_data, "validation_steps", validation_steps, epochs - initial_epoch
            )
            held_out = self._checked_stream(validation_data)
            validation_data = held_out.for_keras()
        elif validation_data is not None:
            validation_data = self._feed(
                *self._check_validation_data(validation_data),
                validation_batch_size or self.predict_batch_size,
            )
            validation_batch_size = None
        if self._user_metrics and validation_data is None:
            names = [metric.name for metric in self._user_metrics]
            notices.warn(
                f"The metrics of `compile`, {names}, are for `evaluate` and for validation: "
                "`History` has them with `validation_data` or `validation_split`."
            )
        options = {
            "epochs": epochs,
            "verbose": verbose,
            "callbacks": given_callbacks,
            "validation_data": validation_data,
            "initial_epoch": initial_epoch,
            "validation_steps": validation_steps,
            "validation_batch_size": validation_batch_size,
            "validation_freq": validation_freq,
        }
        try:
            with streams.own_errors(x, held_out):
                if is_stream:
                    self._epoch_of = steps_per_epoch or x.count_batches() or 0, 0
                    return self._fit_stream(x, steps_per_epoch, options)
                rows = self._batch_rows(batch_size, len(targets), self.fit_batch_size)
                described = _describe([*inputs, targets], rows, shuffle)
                self._epoch_of = self._steps_in_epoch(len(targets), rows), described
                return self._fit_arrays(inputs, targets, rows, shuffle, options)
        finally:
            # Keras keeps the epoch of a restored run; a later `fit` must start at its own.
            self._initial_epoch = None

    def _epoch_callbacks(self, callbacks, initial_epoch):
        given = checked_callbacks(callbacks)
        self._check_callbacks(given)
        with_safe_backups(given)
        resolve_modes(given, self._scores)
        return [EpochCounter(), *given, EpochStart()]

    def _check_callbacks(self, callbacks):
        """Refuses callbacks that the method cannot honour."""

    # What an epoch is, and where it was stopped ------------------------------------------------

    #: The number of steps of an epoch of this `fit` (0 if unknown), and a number that identifies
    #: its data (0 for none).
    _epoch_of = (0, 0)

    def _steps_in_epoch(self, num_rows, batch_size):
        """Returns by how much an epoch of arrays advances the count of steps."""
        return -(-num_rows // batch_size)

    def _begin_epochs(self):
        """Continues an epoch that was stopped midway, or records that a new one begins here."""
        steps, epochs, *epoch_of = self.epoch_start.numpy().tolist()
        num_batches, described = self._epoch_of
        done = int(self.steps_seen.numpy()) - steps
        done -= num_batches * (int(self.epochs_seen.numpy()) - epochs)
        is_midway = described and epoch_of == [num_batches, described] and 0 < done < num_batches
        self._first_batch = done if is_midway else 0
        if not is_midway:
            counters = [int(self.steps_seen.numpy()), int(self.epochs_seen.numpy())]
            self.epoch_start.assign([*counters, *self._epoch_of])

    def _forget_epoch(self):
        """Records that no epoch was stopped midway, so that the next `fit` begins a new one."""
        self.epoch_start.assign([0, 0, 0, 0])

    def count_whole_epochs(self):
        """Counts the epochs whose steps are done but that were not reported to callbacks.

        Returns:
            Their number.
        """
        steps, epochs, num_batches, _ = self.epoch_start.numpy().tolist()
        if not num_batches:
            return 0
        whole = epochs + (int(self.steps_seen.numpy()) - steps) // num_batches
        missing = max(whole - int(self.epochs_seen.numpy()), 0)
        self.epochs_seen.assign_add(missing)
        return missing

    def _settle(self, before):
        """Corrects the counters after a `fit` that was stopped.

        Args:
            before: Pairs of weights and their values before the first `fit`. The values are
                restored if no step was done.
        """
        self._first_batch = 0
        if not self.steps_seen.numpy():
            for weight, value in before:
                weight.assign(value)
            return
        self.count_whole_epochs()
        steps, _, num_batches, described = self.epoch_start.numpy().tolist()
        is_stream = not described  # a stream cannot continue midway
        if is_stream or (int(self.steps_seen.numpy()) - steps) % num_batches == 0:
            self._forget_epoch()

    def _fit_arrays(self, inputs, targets, batch_size, shuffle, options):
        """Runs Keras's loop over batches of arrays, in the model's own order of rows."""
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
        self.make_train_function()
        train = self.train_function

        def train_rest(iterator):
            if self._first_batch <= 0:
                return train(iterator)
            self._first_batch -= self.steps_per_execution
            for _ in range(self.steps_per_execution):
                next(iterator, None)  # the epoch was stopped after this batch
            return {}

        self.train_function = train_rest
        try:
            return super().fit(dataset, shuffle=False, **options)
        finally:
            self.train_function = train

    def _fit_stream(self, stream, steps_per_epoch, options):
        """Runs Keras's loop over the batches of a `CheckedStream`."""
        x = stream.for_keras()
        return super().fit(x, steps_per_epoch=steps_per_epoch, shuffle=False, **options)

    def _fit_epochs(self, train_epoch, inputs, targets, options, num_batches=1):
        """Runs Keras's loop, callbacks and validation, with one "batch" that is the whole epoch.

        Args:
            train_epoch: Function that runs an epoch and returns its logs.
            inputs: List of arrays.
            targets: Array.
            options: Dict of options of `keras.Model.fit`.
            num_batches: The number that the progress bar counts to.
        """
        callbacks = keras.callbacks.CallbackList(
            options["callbacks"],
            add_history=True,
            add_progbar=options["verbose"] != 0,
            verbose=options["verbose"],
            epochs=options["epochs"],
            steps=num_batches,
            model=self,
        )
        # Keras may call the model on a row to check whether it is built.
        row = (self._pack([a[:1] for a in inputs], tuple), targets[:1])
        previous = self.train_function

        self.train_function = lambda _: train_epoch()
        try:
            # The dataset is endless: Keras would make two iterators of a finite one in each epoch.
            only = tf.data.Dataset.from_tensors(row).repeat()
            options = {**options, "callbacks": callbacks, "steps_per_epoch": 1}
            return super().fit(only, shuffle=False, **options)
        finally:
            self.train_function = previous

    def _make_function(self, step_function):
        return count_apart(super()._make_function(collectable(step_function)))

    def make_predict_function(self, force=False):
        super().make_predict_function(force)
        count_apart(self.predict_function)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Does nothing, since all is built.

        Under a strategy, Keras would add up the shares of a batch.
        """

    def reset_metrics(self):
        metrics = self._scores if self._turns.is_scoring else self._training_metrics
        for metric in metrics:
            metric.reset_state()

    def fold_seed(self):
        """Returns a seed for NumPy that follows from the model's seed, a non-negative integer."""
        return int(np.abs(self.seed_state.numpy().astype(np.int64)).sum())

    def epoch_order(self, num_rows, shuffle=True, ahead=0):
        """Returns the order of in-memory rows in the epoch `ahead` epochs from now, `[N]`."""
        if not shuffle:
            return np.arange(num_rows, dtype=np.int32)
        return permutation(self.seed_state.numpy(), self.epochs_seen.numpy() + ahead, num_rows)

    def on_epoch_start(self):
        """Runs before each epoch."""

    @one_thread_at_a_time
    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        """Runs one update on one batch; continues a fitted model (`fit` adapts, this does not)."""
        self._refuse_weights(class_weight=class_weight, sample_weight=sample_weight)
        self._ensure_compiled()
        first = self.scalers_ready and not self._has_units
        inputs, targets = self._check_data(x, y, first=first, learnt=True)
        self._check_ready()
        inputs, targets = self._shared_out(inputs, targets)
        with interrupts.held():
            logs = super().train_on_batch(self._pack(inputs), targets, return_dict=return_dict)
            self._forget_epoch()
        return logs

    def _shared_out(self, inputs, targets):
        """Splits the rows of one batch among the replicas of a strategy."""
        strategy = self.distribute_strategy
        count = strategy.num_replicas_in_sync
        if count == 1:
            return inputs, targets

        def shared(array):
            shares = [tf.constant(part) for part in np.array_split(array, count)]
            return strategy.experimental_distribute_values_from_function(
                lambda context: shares[context.replica_id_in_sync_group]
            )

        return [shared(x) for x in inputs], shared(targets)


def _describe(arrays, batch_size, shuffle):
    """Returns a positive number that identifies arrays and their batches, from some of the rows."""
    number = zlib.crc32(f"{batch_size} {bool(shuffle)}".encode())
    for array in arrays:
        rows = np.ascontiguousarray(array[:: -(-len(array) // _ROWS_TO_COMPARE)])
        number = zlib.crc32(rows.tobytes(), zlib.crc32(f"{array.shape}".encode(), number))
    return number + 1
