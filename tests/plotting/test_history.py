import builtins

import keras
import numpy as np
import pytest
from figures import labelled
from matplotlib.colors import same_color

from tfp_fnspace import plotting

CURVES = {
    "nll": [3.0, 2.0, 1.0],
    "rmse": [1.5, 1.2, 1.1],
    "val_nll": [3.0, 1.5, 2.5],
    "learning_rate": [1e-3, 1e-3, 1e-4],
}


def test_history_draws_twins_in_one_colour():
    lines = labelled(plotting.plot_history(CURVES))
    assert list(lines) == ["nll", "val_nll", "rmse", "best val_nll: 1.5 at epoch 2"]
    assert same_color(lines["nll"].get_color(), lines["val_nll"].get_color())
    assert not same_color(lines["nll"].get_color(), lines["rmse"].get_color())
    assert lines["nll"].get_linestyle() == "-"
    assert lines["val_nll"].get_linestyle() == "--"
    np.testing.assert_array_equal(lines["val_nll"].get_xydata(), [[1, 3], [2, 1.5], [3, 2.5]])


def test_history_marks_the_best_epoch():
    ax = plotting.plot_history(CURVES, metrics=["nll"])
    marker = labelled(ax)["best val_nll: 1.5 at epoch 2"]
    np.testing.assert_array_equal(marker.get_xydata(), [[2, 1.5]])
    assert ax.get_ylabel() == "nll"


def test_history_without_val_nll_marks_nothing():
    ax = plotting.plot_history(CURVES, metrics=["rmse"])
    assert [line.get_label() for line in ax.lines] == ["rmse"]


def test_history_ignores_epochs_without_a_value():
    ax = plotting.plot_history({"nll": [3.0, 2.0, 1.0], "val_nll": [np.nan, 2.5, np.nan]})
    np.testing.assert_array_equal(labelled(ax)["val_nll"].get_xydata(), [[2, 2.5]])
    assert "best val_nll: 2.5 at epoch 2" in labelled(ax)


def test_history_of_nan_only_marks_nothing():
    ax = plotting.plot_history({"val_nll": [np.nan, np.nan]})
    assert list(labelled(ax)) == ["val_nll"]


def test_history_of_a_continued_keras_fit_counts_on():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    x = np.zeros((4, 1))
    history = model.fit(x, x, epochs=5, initial_epoch=2, validation_data=(x, x), verbose=0)
    lines = labelled(plotting.plot_history(history))
    assert list(lines) == ["loss", "val_loss"]
    np.testing.assert_array_equal(lines["loss"].get_xdata(), [3, 4, 5])


def test_history_refuses_unknown_metric():
    with pytest.raises(ValueError, match=r"has \['nll', 'rmse', 'learning_rate'\]. Received: .*f1"):
        plotting.plot_history(CURVES, metrics=["f1"])


def test_history_refuses_an_empty_record():
    with pytest.raises(ValueError, match=r"`metrics` must name curves .* has \[\]"):
        plotting.plot_history({})


def test_history_refuses_curves_of_different_length():
    with pytest.raises(ValueError, match=r"fill the others with NaN. Received: .*'val_nll': 1"):
        plotting.plot_history({"nll": [2.0, 1.0], "val_nll": [1.0]})


def test_missing_matplotlib_is_named(monkeypatch):
    real_import = builtins.__import__

    def without_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(f"No module named '{name}'")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        plotting.plot_history(CURVES)
