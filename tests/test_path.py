"""How many files hand x on, from `fit` to a weight: counted while a model learns.

A file hands x on if one of its functions is given x, and returns it, or calls a function of another
file with it. x is also what became of it: scaled, cut into batches. Functions that only look at x
(is it a stream? has it columns?) are not on the way, and the file in which x meets the weight is
its end.
"""

import os
import sys

import batteries
import numpy as np
import pytest
import tensorflow as tf

import tfp_fnspace as fns

_PACKAGE = os.path.dirname(fns.__file__) + os.sep

#: Rows, of which no other axis has as many, and the inputs and outputs of the models of batteries.
_ROWS, _INPUTS, _OUTPUTS = 29, 4, 2


def is_x(value, depth=2):
    """Returns whether a value is x, or has it in it."""
    if isinstance(value, np.ndarray | tf.Tensor):
        shape = tf.TensorShape(value.shape)
        return (shape.rank or 0) > 1 and shape[-1] == _INPUTS and shape[0] in (_ROWS, None)
    if depth and isinstance(value, list | tuple):
        return any(is_x(part, depth - 1) for part in value)
    return False


class Walk:
    """Records the files that hand x on, as a profiler of Python's calls."""

    def __init__(self):
        self.files = {}  # file -> the first of its functions that hands x on

    def __call__(self, frame, event, value):
        if event == "return" and is_x(value):
            self.note(frame)
        elif event == "call":
            code = frame.f_code
            arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 2]
            given = (frame.f_locals.get(name) for name in arguments)
            caller = frame.f_back
            while caller is not None and not self.is_ours(caller):
                caller = caller.f_back  # TensorFlow and Keras call us back
            other = caller is None or caller.f_code.co_filename != code.co_filename
            if self.is_ours(frame) and caller and other and any(map(is_x, given)):
                self.note(caller)

    def is_ours(self, frame):
        return frame.f_code.co_filename.startswith(_PACKAGE)

    def note(self, frame):
        if self.is_ours(frame):
            name = os.path.relpath(frame.f_code.co_filename, _PACKAGE)
            self.files.setdefault(name, frame.f_code.co_name)


@pytest.mark.parametrize(
    ("make", "most"),
    [(batteries.tagi_model, 14), (batteries.fbnn_model, 20), (batteries.diwp_model, 20)],
)
@pytest.mark.slow
def test_x_passes_few_files(make, most):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(_ROWS, _INPUTS)), rng.normal(size=(_ROWS, _OUTPUTS))
    model, walk = make(), Walk()
    sys.setprofile(walk)
    try:
        model.fit(x, y, batch_size=_ROWS, verbose=0)
    finally:
        sys.setprofile(None)
    assert "model/base.py" in walk.files
    assert len(walk.files) <= most, walk.files
