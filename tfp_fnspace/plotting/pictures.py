"""Pictures of the prediction while a model is fitted."""

import io
import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import files
from tfp_fnspace.boundary import arguments, arrays
from tfp_fnspace.plotting import style
from tfp_fnspace.plotting.bands import AlongInput, plot_predictive_band
from tfp_fnspace.typing import ArrayLike

#: Number of points along the input, and the size of a picture in inches.
_NUM_POINTS, _FIGSIZE = 200, (7.0, 4.2)


class PredictivePictures(keras.callbacks.Callback):
    """Draws the predictive band of a regression with one output, after every few epochs of `fit`.

    A picture is that of `plot_predictive_band` over the range of one input, with the data. Epochs
    in which nothing is drawn are computed as if the callback were not there.

    Args:
        folder: Folder of the files, `epoch_0010.png` after ten epochs; or that of TensorBoard's
            logs.
        x: Inputs `[N, D_in]`, array or data frame.
        y: Targets `[N, 1]` or `[N]`.
        epochs_between: Number of epochs between pictures.
        column: Number of the input, from 0, or its name in a data frame. The other inputs stay at
            their means, see `AlongInput`.
        to_tensorboard: Whether to write for TensorBoard, which has to be installed, instead of
            files.

    Raises:
        ImportError: In `fit`, if matplotlib or TensorBoard is needed and not installed.
        TypeError: If `folder` is not a path.
        ValueError: If `epochs_between` is not a positive integer, or the data have other shapes; in
            `fit`, if the model has several outputs or is a classifier.

    Example:
        >>> model = tfp_fnspace.diwp.DIWPModel(tfp_fnspace.diwp.DeepKernel(10, hidden="none"))
        >>> pictures = tfp_fnspace.plotting.PredictivePictures("pictures", x, y, epochs_between=50)
        >>> history = model.fit(x, y, epochs=100, verbose=0, callbacks=[pictures])
    """

    allows_ahead = True  # it uses the weights every `looks_every` epochs

    def __init__(
        self,
        folder: str | os.PathLike[str],
        x: ArrayLike,
        y: ArrayLike,
        epochs_between: int = 10,
        column: int | str = 0,
        to_tensorboard: bool = False,
    ):
        super().__init__()
        self.folder = files.checked_path("folder", folder)
        self.looks_every = arguments.checked_count("epochs_between", epochs_between)
        self.x, self.y = x, arrays.as_array(y, "y").reshape(-1, 1)
        self.column, self.to_tensorboard = column, to_tensorboard
        self.writer = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        likelihood = getattr(self.model, "likelihood", None)
        if getattr(likelihood, "is_classifier", False) or self.model.num_outputs != 1:
            raise ValueError(
                "`PredictivePictures` draws regressions with one output. Received: a model with "
                f"num_outputs={self.model.num_outputs}, likelihood={type(likelihood).__name__}"
            )
        self.along = AlongInput(self.model, self.x, self.column)
        values = arrays.as_array(self.x, "x").astype(np.float64)[:, self.along.column, np.newaxis]
        self.data = values, self.y
        self.grid = np.linspace(values.min(axis=0), values.max(axis=0), _NUM_POINTS)
        if self.to_tensorboard:
            self.writer = tf.summary.create_file_writer(str(self.folder))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if (epoch + 1) % self.looks_every:
            return
        figure = style.figure(_FIGSIZE)
        ax = plot_predictive_band(self.along, self.grid, data=self.data, ax=figure.subplots())
        ax.set_title(f"after {epoch + 1} epochs")
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        if self.writer is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            with files.replacing(self.folder / f"epoch_{epoch + 1:04d}.png") as partial:
                partial.write_bytes(picture.getvalue())
        else:
            with self.writer.as_default():
                image = tf.io.decode_png(picture.getvalue())
                tf.summary.image("prediction", image[tf.newaxis], step=epoch)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self.writer is not None:
            self.writer.close()
