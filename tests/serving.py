"""A saved model in a process that has neither Keras nor this library."""

import subprocess
import sys

import numpy as np

_SERVER = """
import sys
for name in ("keras", "tf_keras", "tfp_fnspace", "tensorflow_probability"):
    sys.modules[name] = None
import numpy as np
import tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1])
x = np.load(sys.argv[2])
np.savez(sys.argv[3], sample=loaded.sample(x, tf.constant([1, 2])), **loaded.serve(x))
"""


def serve_elsewhere(saved, x, folder):
    """What a saved model answers in a new process, isolated from the environment of this one.

    Args:
        saved: Path of the saved model.
        x: float32 array of inputs.
        folder: Empty folder for the files between the processes.

    Returns:
        Mapping of the outputs of `serve`, and `"sample"`, drawn with the seed (1, 2).
    """
    np.save(folder / "x.npy", x)
    files = [str(saved), str(folder / "x.npy"), str(folder / "out.npz")]
    command = [sys.executable, "-I", "-c", _SERVER, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.load(files[-1])
