import batteries
import keras
import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf

import tfp_fnspace as fns
from tfp_fnspace.plotting import PredictivePictures, pictures

X = np.linspace(-1.0, 1.0, 20)[:, np.newaxis]
Y = np.sin(3.0 * X)


def make():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((1,))
    outputs = fns.layers.VariationalDense(1)(inputs)
    return fns.fbnn.VariationalModel((inputs, outputs), num_eval_samples=5, seed=0)


@pytest.mark.slow
def test_pictures_are_those_of_their_epochs(tmp_path, monkeypatch):
    drawn = []

    def plot(along, grid, data, ax):
        drawn.append((along.predict(grid)["mean"], grid, data))
        return ax

    monkeypatch.setattr(pictures, "plot_predictive_band", plot)
    callback = PredictivePictures(tmp_path / "pictures", X, Y, epochs_between=4)
    make().fit(X, Y, epochs=9, verbose=0, callbacks=[callback])
    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert names == ["epoch_0004.png", "epoch_0008.png"]
    for epochs, (mean, grid, data) in zip([4, 8], drawn, strict=True):
        other = make()
        other.fit(X, Y, epochs=9, verbose=0, callbacks=[_Stop(epochs)])
        np.testing.assert_allclose(mean, other.predict(grid)["mean"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose([grid.min(), grid.max()], [-1.0, 1.0])
        np.testing.assert_array_equal(data[1], Y)


class _Stop(keras.callbacks.Callback):
    """Ends a run after some epochs; the schedules are those of all."""

    def __init__(self, epochs):
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = epoch + 1 == self.epochs


@pytest.mark.slow
def test_a_picture_shows_something(tmp_path):
    callback = PredictivePictures(tmp_path, X, Y, epochs_between=1)
    make().fit(X, Y, epochs=1, verbose=0, callbacks=[callback])
    image = matplotlib.image.imread(tmp_path / "epoch_0001.png")
    assert image.shape[0] > 300 and len(np.unique(image.reshape(-1, image.shape[-1]), axis=0)) > 50


@pytest.mark.slow
def test_pictures_go_to_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing import event_accumulator

    callback = PredictivePictures(tmp_path, X, Y, epochs_between=2, to_tensorboard=True)
    make().fit(X, Y, epochs=4, verbose=0, callbacks=[callback])
    events = event_accumulator.EventAccumulator(
        str(tmp_path), size_guidance={event_accumulator.TENSORS: 0}
    )
    events.Reload()
    found = events.Tensors("prediction")
    assert [event.step for event in found] == [1, 3]
    width, height, image = tf.make_ndarray(found[0].tensor_proto)[:3]
    assert tf.io.decode_png(image).shape[:2] == (int(height), int(width))


def test_several_inputs_need_one_output():
    x = np.random.default_rng(0).normal(size=(12, 4))
    callback = PredictivePictures("nowhere", x, x[:, 0], column=2)
    with pytest.raises(ValueError, match="one output. Received: a model with num_outputs=2"):
        batteries.fit(batteries.variational_model(), x, x[:, :2], callbacks=[callback])
    with pytest.raises(ValueError, match="`epochs_between` must be"):
        PredictivePictures("nowhere", x, x[:, 0], epochs_between=0)
