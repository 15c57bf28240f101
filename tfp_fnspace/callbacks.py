"""Callbacks with which `fit` keeps its promises about epochs."""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterable
from typing import Any

import h5py
import keras
import tensorflow as tf

from tfp_fnspace import files, interrupts, notices
from tfp_fnspace.boundary import arguments
from tfp_fnspace.math import replicas

__all__ = ["BackupAndRestore"]

#: Seconds for which an epoch may go on after Ctrl-C; then it ends after a batch.
PATIENCE = 5.0

#: Name under which a backup holds the number of the next epoch.
_EPOCH = "next_epoch"

#: Errors from reading a file that is damaged or of another model.
_UNUSABLE = (OSError, ValueError, KeyError, RuntimeError)

#: Bytes that HDF5 takes for names and layout, with room to spare.
_ROOM_FOR_A_VARIABLE, _ROOM_FOR_A_FILE = 4096, 65536


class EpochCounter(keras.callbacks.Callback):
    """Counts finished epochs in the model's own weight, before any other callback saves it."""

    #: The callback does not read the weights, so epochs may be computed ahead of their callbacks.
    allows_ahead = True

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        interrupts.check()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        interrupts.check(PATIENCE)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        counters = self.model.counters
        counters.first_batch = 0
        counters.epochs.value.assign_add(1)  # a quarter of the time of Keras's own


class EpochStart(keras.callbacks.Callback):
    """Finds out where the first epoch starts, after other callbacks may have restored weights."""

    allows_ahead = True

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.model.counters.begin_epochs()
        _check_hosts(self.model)


def _check_hosts(model: Any) -> None:
    """Refuses hosts of one strategy that begin at different steps or have different rows."""
    strategy, counters = model.distribute_strategy, model.counters
    if not replicas.has_several_hosts(strategy):
        return
    counts = [int(counters.steps.numpy()), int(counters.epochs.numpy())]
    found = replicas.from_hosts(strategy, [*counts, *counters.epoch_of])
    if (found != found[0]).any():
        raise ValueError(
            "All hosts of a strategy must be given the same rows, which they share out, and must "
            "begin at the same step: a backup must be in a folder that all of them see. Received: "
            f"(steps, epochs, batches, checksum of the rows) of the replicas={found.tolist()}"
        )


class BackupAndRestore(keras.callbacks.BackupAndRestore):
    """Lets a run that was killed go on where it was, like Keras's callback of this name.

    The weights, the state of the optimizer and the number of the epoch are in one file, which is
    replaced in one step. So whenever the process is killed or the folder is copied, there is a
    complete backup, or none yet. `fit` with the same arguments then goes on after the epoch of the
    backup (after its batch, if data are arrays and `save_freq` is an integer). On arrays it ends at
    the same weights as a run that was not killed. Of several hosts the first writes the file, and
    all must see its folder.

    `fit` of the models of this library makes Keras's own callback behave in the same way. This
    callback also works in `fit` of other Keras models.

    Args:
        backup_dir: Folder for the backup alone.
        save_freq: `"epoch"`, or a number of batches.
        double_checkpoint: Whether to also keep the backup before the last one, for disks that lose
            written data.
        delete_checkpoint: Whether to remove the folder at the end of the run.

    Raises:
        OSError: If the backup cannot be written; the last one is as it was.
        ValueError: If the backup cannot be read, or is of another model.

    Example:
        >>> backup = tfp_fnspace.callbacks.BackupAndRestore("backup")
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(loss="mse")
        >>> history = model.fit(x, y, epochs=2, verbose=0, callbacks=[backup])
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not os.path.isfile(self._weights_path):
            return
        try:
            try:
                self._restore()
            except _UNUSABLE:
                if not os.path.isfile(self._prev_weights_path):
                    raise
                self._copy(self._prev_weights_path, self._weights_path)
                self._restore()
        except _UNUSABLE as error:
            raise ValueError(
                "A backup must be whole and of the same model, data and library: remove the "
                f"folder to begin again. Received: backup_dir={str(self.backup_dir)!r}, which "
                f"cannot be used: {error}"
            ) from error

    def _copy(self, source, target):
        with files.replacing(target, self.backup_dir) as partial:
            shutil.copyfile(source, partial)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._current_epoch = epoch

    def _restore(self):
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)  # so that its state can be loaded
        with h5py.File(self._weights_path, "r") as file:
            epoch = int(file.attrs[_EPOCH])
        self.model.load_weights(self._weights_path)
        if hasattr(self.model, "counters"):
            epoch += self.model.counters.count_whole_epochs()
        self.model._initial_epoch = self._current_epoch = epoch

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if replicas.is_chief(self.model.distribute_strategy):
            super().on_train_end(logs)

    def _save_model(self):
        if not replicas.is_chief(self.model.distribute_strategy):
            return
        os.makedirs(self.backup_dir, exist_ok=True)
        if self.double_checkpoint and os.path.isfile(self._weights_path):
            self._copy(self._weights_path, self._prev_weights_path)
        with files.replacing(self._weights_path, self.backup_dir) as partial:
            save_weights(self.model, partial)
            with h5py.File(partial, "r+") as file:
                file.attrs[_EPOCH] = self._current_epoch
        # Keras's own callback reads this file, and users may; the number in the weights counts.
        with files.replacing(self._training_metadata_path, self.backup_dir) as partial:
            numbers = {"epoch": self._current_epoch, "batch": self._last_batch_seen}
            partial.write_text(json.dumps(numbers))


def check_room(
    model: keras.Model, path: str | os.PathLike[str], shard_size: float | None = None
) -> None:
    """Checks that a model's weights fit on a disk: HDF5 never closes a file that does not fit.

    Args:
        model: The model.
        path: Path of the weights.
        shard_size: Gigabytes of the largest file; by default all weights are in one file.

    Raises:
        OSError: If the weights do not fit.
    """
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer is not None else ())]
    sizes = [math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in variables]
    num_bytes = sum(sizes) + _ROOM_FOR_A_VARIABLE * len(sizes) + _ROOM_FOR_A_FILE
    largest = None if shard_size is None else int(shard_size * 2**30) + _ROOM_FOR_A_FILE
    files.check_room(path, num_bytes, largest)


def save_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Calls `keras.Model.save_weights` after a check that there is room."""
    check_room(model, path)
    with notices.without_copy_keyword():
        keras.Model.save_weights(model, path)


def with_safe_backups(callbacks: Iterable[keras.callbacks.Callback]) -> None:
    """Makes Keras's `BackupAndRestore` write and read like ours; overrides of a user stay.

    Args:
        callbacks: List of callbacks, changed in place.
    """
    theirs = keras.callbacks.BackupAndRestore
    for callback in callbacks:
        if type(callback) is theirs:
            callback.__class__ = BackupAndRestore
        elif isinstance(callback, theirs) and not isinstance(callback, BackupAndRestore):
            own: Any = type(callback)
            callback.__class__ = type(own.__name__, (own, BackupAndRestore), {})


class FiniteLoss(keras.callbacks.Callback):
    """Ends a run whose loss is NaN or infinite, unless `TerminateOnNaN` has ended it already.

    It comes before the callbacks that save, so a backup is that of the last epoch with a finite
    loss.

    Raises:
        FloatingPointError: At the end of an epoch with another loss; the weights stay as they are.
    """

    allows_ahead = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        loss = (logs or {}).get("loss", 0.0)
        if not math.isfinite(loss) and not self.model.stop_training:
            raise FloatingPointError(
                f"The loss must be finite. Received: loss={loss} in epoch {epoch + 1}. Build the "
                "model again with a smaller learning rate in `compile(optimizer=...)`, or in "
                "dtype='float64'"
            )


class JitterReport(keras.callbacks.Callback):
    """Warns, once a run, of covariances that were not positive definite and got jitter.

    It knows of jitter in training steps from `jittered` in the epoch's logs.

    Args:
        matrix: What the matrices are, the beginning of the sentence.
        when_predicting: Function that returns how many matrices of predictions got jitter. It is
            asked at the end of a run. None, the default, is for models without such matrices.
    """

    allows_ahead = True

    def __init__(
        self, matrix: str = "A covariance", when_predicting: Callable[[], int] | None = None
    ):
        super().__init__()
        self.matrix, self.when_predicting = matrix, when_predicting

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.said = set()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        jittered = (logs or {}).get("jittered", 0.0)
        if jittered > 0.0:
            self.say(
                "jitter",
                f"{self.matrix} was not positive definite and got more on its "
                f"diagonal, {jittered:.3g} times a step in epoch {epoch + 1}.",
            )

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self.when_predicting is not None and self.when_predicting():
            self.say(
                "prediction",
                f"{self.matrix}, of the draws that predictions use, was not "
                "positive definite and gets more on its diagonal.",
            )

    def say(self, what: str, message: str) -> None:
        """Warns, unless this run has warned of `what` before."""
        if what not in self.said:
            self.said.add(what)
            notices.warn(message, RuntimeWarning)


def checked_callbacks(callbacks: Any) -> list[keras.callbacks.Callback]:
    """Returns a list of callbacks.

    Args:
        callbacks: A callback, a list of them, or `None`.

    Raises:
        TypeError: If one is not a callback of Keras.
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


def resolve_modes(callbacks: Iterable[Any], metrics: Iterable[keras.metrics.Metric]) -> None:
    """Tells callbacks with `mode="auto"` in which direction their metric is better.

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


def refuse_learning_rates(callbacks: Iterable[keras.callbacks.Callback], rule: str) -> None:
    """Refuses callbacks that change a learning rate, for models without one.

    Raises:
        ValueError: With the rule and the callback.
    """
    rates = (keras.callbacks.ReduceLROnPlateau, keras.callbacks.LearningRateScheduler)
    for callback in callbacks:
        if isinstance(callback, rates):
            raise ValueError(f"{rule} Received: callback={callback!r}")


#: Callbacks by package and class -> whether one acts at every batch, with its options. The packages
#: need not be installed.
_BATCH_OPTIONS = {
    "tfp_fnspace.EpochCounter": lambda c: False,
    "tfp_fnspace.BackupAndRestore": lambda c: c.save_freq != "epoch",
    "keras.ModelCheckpoint": lambda c: c.save_freq != "epoch",
    "keras.TensorBoard": lambda c: c.update_freq != "epoch" or c._should_trace,
    "keras.TerminateOnNaN": lambda c: False,
    "keras.ProgbarLogger": lambda c: False,
    "keras_tuner.TunerCallback": lambda c: _package(type(c.tuner).on_batch_end) != "keras_tuner",
    "mlflow.MlflowCallback": lambda c: not c.log_every_epoch,
    "wandb.WandbMetricsLogger": lambda c: c.logging_batch_wise,
}

#: Callbacks that read logs -> whether one reads weights or steps too, with its options.
_LOGGERS = {
    "keras.CSVLogger": lambda c: False,
    "keras.History": lambda c: False,
    "keras.ProgbarLogger": lambda c: False,
    "keras.TensorBoard": lambda c: (
        c.histogram_freq or c.embeddings_freq or c.write_steps_per_second
    ),
    "mlflow.MlflowCallback": lambda c: False,
    "wandb.WandbMetricsLogger": lambda c: False,
}

#: Those of them that write the learning rate at the end of an epoch.
_READ_LEARNING_RATES = ("keras.TensorBoard", "wandb.WandbMetricsLogger")

_BATCH_METHODS = (
    "on_batch_begin",
    "on_batch_end",
    "on_train_batch_begin",
    "on_train_batch_end",
)


def _package(member: Any) -> str:
    return member.__module__.partition(".")[0]


def _name(callback: keras.callbacks.Callback) -> str:
    return f"{_package(type(callback))}.{type(callback).__name__}"


def wants_batches(callback: keras.callbacks.Callback) -> bool:
    """Returns whether a callback does something at every batch."""
    option = _BATCH_OPTIONS.get(_name(callback))
    if option is not None:
        return option(callback)
    base = keras.callbacks.Callback
    return any(
        getattr(getattr(callback, method), "__func__", None) is not getattr(base, method)
        for method in _BATCH_METHODS
    )


def allows_ahead(callback: keras.callbacks.Callback, optimizer: Any) -> bool:
    """Returns whether weights may be those of a later epoch than the one a callback is told of.

    Args:
        callback: A callback. One with an attribute `allows_ahead` says so itself; loggers of Keras,
            MLflow and W&B are known.
        optimizer: The optimizer of the model. Some loggers write its learning rate, which a
            schedule changes with the steps.
    """
    name = _name(callback)
    if hasattr(callback, "allows_ahead") or name not in _LOGGERS:
        return bool(getattr(callback, "allows_ahead", False))
    if wants_batches(callback) or _LOGGERS[name](callback):
        return False
    return name not in _READ_LEARNING_RATES or not _has_schedule(optimizer)


def _has_schedule(optimizer: Any) -> bool:
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of `LossScaleOptimizer`
    return isinstance(optimizer.get_config().get("learning_rate"), dict)
