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
x = np.load(sys.argv[1])
for name in sys.argv[2:]:
    loaded = tf.saved_model.load(name)
    np.savez(name + ".npz", sample=loaded.sample(x, tf.constant([1, 2])), **loaded.serve(x))
"""


def serve_elsewhere(saved, x, folder):
    """Runs saved models in a new process, isolated from the environment of this one.

    Args:
        saved: Path of a saved model, or a mapping of names to paths: one process serves them all.
        x: float32 array of inputs.
        folder: Folder for the inputs.

    Returns:
        Mapping of the outputs of `serve`, and `"sample"`, drawn with the seed (1, 2); for a mapping
        of paths, one such mapping for each name.
    """
    np.save(folder / "x.npy", x)
    paths = {name: str(path) for name, path in saved.items()} if isinstance(saved, dict) else {}
    files = [str(folder / "x.npy"), *(paths.values() if paths else [str(saved)])]
    command = [sys.executable, "-I", "-c", _SERVER, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = {path: np.load(path + ".npz") for path in files[1:]}
    return {name: answers[path] for name, path in paths.items()} or answers[str(saved)]
