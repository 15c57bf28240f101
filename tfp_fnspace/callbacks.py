"""Callbacks with which `fit` keeps its promises about epochs."""

import math

import keras

from tfp_fnspace import arguments, notices


class EpochCounter(keras.callbacks.Callback):
    """Counts finished epochs in the model's own weight, before any other callback saves it."""

    #: That it does not look at the weights: epochs may be computed ahead of their callbacks.
    allows_ahead = True

    def on_epoch_begin(self, epoch, logs=None):
        self.model.on_epoch_start()

    def on_epoch_end(self, epoch, logs=None):
        self.model.epochs_seen.value.assign_add(1)  # a quarter of the time of Keras's own


class ResumeAtCounter(keras.callbacks.Callback):
    """Lets a restored run go on where its weights are.

    `keras.callbacks.BackupAndRestore` writes the weights and the number of the epoch in two
    steps; a process killed between them would train one epoch twice. The count inside the
    weights cannot disagree with the weights.

    Args:
        initial_epoch: Epoch at which an undisturbed `fit` starts.
    """

    allows_ahead = True

    def __init__(self, initial_epoch):
        super().__init__()
        self.initial_epoch = initial_epoch
        self.epochs_before = None

    def set_model(self, model):
        super().set_model(model)
        self.epochs_before = int(model.epochs_seen.numpy())

    def on_train_begin(self, logs=None):
        done = int(self.model.epochs_seen.numpy()) - self.epochs_before
        if done > 0:
            self.model._initial_epoch = self.initial_epoch + done


class FiniteLoss(keras.callbacks.Callback):
    """Ends a run whose loss is NaN or infinite, unless `TerminateOnNaN` has ended it already.

    It comes before the callbacks that save: a backup is of the last epoch with a finite loss.

    Raises:
        FloatingPointError: At the end of such an epoch; the weights stay as they are.
    """

    allows_ahead = True

    def on_epoch_end(self, epoch, logs=None):
        loss = (logs or {}).get("loss", 0.0)
        if not math.isfinite(loss) and not self.model.stop_training:
            raise FloatingPointError(
                f"The loss must be finite. Received: loss={loss} in epoch {epoch + 1}. Build the "
                "model anew with a smaller learning rate in `compile(optimizer=...)`, or in "
                "dtype='float64'"
            )


class JitterReport(keras.callbacks.Callback):
    """Warns, once a run, of covariances that were not positive definite and got jitter.

    In every step by `jittered` of the epoch's logs; at the end of a run in what predictions will
    use, by `jittered_when_predicting()` of the model.
    """

    allows_ahead = True

    def on_train_begin(self, logs=None):
        self.said = set()

    def on_epoch_end(self, epoch, logs=None):
        jittered = (logs or {}).get("jittered", 0.0)
        if jittered > 0.0:
            self.say(
                "jitter",
                f"{self.model.jittered_matrix} was not positive definite and got more on its "
                f"diagonal, {jittered:.3g} times a step in epoch {epoch + 1}.",
            )

    def on_train_end(self, logs=None):
        if self.model.jittered_when_predicting():
            self.say(
                "prediction",
                f"{self.model.jittered_matrix}, of the draws that predictions use, was not "
                "positive definite and gets more on its diagonal.",
            )

    def say(self, what, message):
        """Warns unless it has in this run."""
        if what not in self.said:
            self.said.add(what)
            notices.warn(message, RuntimeWarning)


def checked_callbacks(callbacks):
    """A list of callbacks.

    Args:
        callbacks: A callback, a list of them, or `None`.

    Raises:
        TypeError: If one is no callback of Keras.
    """
    given = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
    given = [callback for callback in given if callback is not None]
    for callback in given:
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(
                "`callbacks` must be a callback of Keras or a list of them"
                f"{arguments.what_it_is(callback)}. Received: callbacks={callbacks!r}"
            )
    return given


def resolve_modes(callbacks, metrics):
    """Tells callbacks with `mode="auto"` which way their metric is better.

    Keras knows only the metrics that its own `compile` holds, and refuses `val_nll` otherwise.

    Args:
        callbacks: List of callbacks.
        metrics: The metrics that evaluation reports.
    """
    directions = {metric.name: getattr(metric, "_direction", None) for metric in metrics}
    directions.update(loss="down", log_likelihood="up", elbo="up")
    modes = {"down": "min", "up": "max"}
    for callback in callbacks:
        direction = directions.get(str(getattr(callback, "monitor", "")).removeprefix("val_"))
        if getattr(callback, "mode", None) == "auto" and direction in modes:
            callback.mode = modes[direction]


def refuse_learning_rates(callbacks, rule):
    """Refuses callbacks that change a learning rate, for models without one.

    Raises:
        ValueError: With the rule and the callback.
    """
    rates = (keras.callbacks.ReduceLROnPlateau, keras.callbacks.LearningRateScheduler)
    for callback in callbacks:
        if isinstance(callback, rates):
            raise ValueError(f"{rule} Received: callback={callback!r}")


#: Callbacks of Keras that look at batches only when told to.
_BATCH_OPTIONS = {
    keras.callbacks.BackupAndRestore: lambda c: c.save_freq != "epoch",
    keras.callbacks.ModelCheckpoint: lambda c: c.save_freq != "epoch",
    keras.callbacks.TensorBoard: lambda c: c.update_freq != "epoch" or c._should_trace,
    keras.callbacks.TerminateOnNaN: lambda c: False,
    keras.callbacks.ProgbarLogger: lambda c: False,
}

_BATCH_METHODS = (
    "on_batch_begin",
    "on_batch_end",
    "on_train_batch_begin",
    "on_train_batch_end",
)


def wants_batches(callback):
    """Whether a callback does something at every batch."""
    for cls, option in _BATCH_OPTIONS.items():
        if type(callback) is cls:
            return option(callback)
    base = keras.callbacks.Callback
    return any(
        getattr(getattr(callback, method), "__func__", None) is not getattr(base, method)
        for method in _BATCH_METHODS
    )
