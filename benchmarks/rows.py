"""Rows a second, and memory, of one pass over a Parquet file.

`python benchmarks/rows.py [--rows 10000000] [--only tagi,...]` writes a file of ten inputs and a
target, float32, in a temporary folder, and fits each model to it in a process of its own: one pass
for the standardisation, and one epoch in batches of 1,000 rows. `memory` is the resident memory of
that process after a tenth of the rows of the epoch and after all of them, in MiB; `rows_per_second`
is that of the epoch between these two.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_fnspace as fns

RESULTS = Path(__file__).parent / "results" / "rows.json"

_COLUMNS, _BATCH, _WRITTEN_AT_ONCE = 10, 1000, 200_000
_NAMES = [f"x{i}" for i in range(_COLUMNS)] + ["y"]


def write(path, rows):
    """Writes a smooth function of two of the inputs, with noise."""
    rng = np.random.default_rng(0)
    schema = pa.schema([(name, pa.float32()) for name in _NAMES])
    with pq.ParquetWriter(path, schema) as file:
        for start in range(0, rows, _WRITTEN_AT_ONCE):
            x = rng.normal(size=(min(_WRITTEN_AT_ONCE, rows - start), _COLUMNS))
            y = np.sin(x[:, 0]) * x[:, 1] + 0.1 * rng.normal(size=len(x))
            columns = [*x.T.astype("float32"), y.astype("float32")]
            file.write_table(pa.Table.from_arrays(columns, schema=schema))


def stream_of(path):
    """Returns a `tf.data.Dataset` of the batches of a file."""
    file = pq.ParquetFile(path, pre_buffer=False)  # otherwise it keeps what was read

    def batches():
        for part in file.iter_batches(_BATCH):
            table = np.stack([column.to_numpy() for column in part.columns], axis=1)
            yield table[:, :_COLUMNS], table[:, _COLUMNS:]

    shapes = [(None, _COLUMNS), (None, 1)]
    specs = tuple(tf.TensorSpec(shape, "float32") for shape in shapes)
    stream = tf.data.Dataset.from_generator(batches, output_signature=specs)
    number = -(-file.metadata.num_rows // _BATCH)
    return stream.apply(tf.data.experimental.assert_cardinality(number))


def tagi():
    inputs = keras.Input((_COLUMNS,))
    hidden = fns.tagi.Dense(50, activation="relu")(inputs)
    noise = fns.likelihoods.Gaussian(0.2)
    return fns.tagi.TAGIModel(inputs, fns.tagi.Dense(1)(hidden), likelihood=noise, seed=0)


def network():
    inputs = keras.Input((_COLUMNS,))
    hidden = fns.layers.VariationalDense(50, activation="relu")(inputs)
    return inputs, fns.layers.VariationalDense(1)(hidden)


def bayes_by_backprop():
    return fns.fbnn.VariationalModel(network(), seed=0)


def fbnn():
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(1.0, 2.0)
    prior = fns.processes.GaussianProcess(kernel)
    return fns.fbnn.FBNNModel(network(), prior, num_samples=10, seed=0)


def sip():
    return fns.sip.SIPModel("neural_sampler", inducing_points=50, num_samples=20, seed=0)


def diwp():
    kernel = fns.diwp.DeepKernel(inducing_points=50, depth=1)
    return fns.diwp.DIWPModel(kernel, num_samples=2, num_outputs=1, seed=0)


MODELS = {f.__name__: f for f in (tagi, bayes_by_backprop, fbnn, sip, diwp)}


def resident():
    """Returns the resident memory of this process in MiB."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return float(text.split("VmRSS:")[1].split()[0]) / 1024.0


class Watch(keras.callbacks.Callback):
    """Reads time and memory after a tenth of the batches and after all of them."""

    def __init__(self, batches):
        super().__init__()
        self.looks, self.read = {batches // 10, batches}, []

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 in self.looks:
            self.read.append((batch + 1, time.perf_counter(), resident()))


def measure(name, path):
    """Fits a model to a file and prints what it took, as JSON."""
    stream = stream_of(path)
    watch = Watch(int(stream.cardinality()))
    model, begin = MODELS[name](), time.perf_counter()
    model.fit(stream, verbose=0, callbacks=[watch])
    (first, start, early), (last, end, late) = watch.read
    found = {
        "rows": last * _BATCH,
        "memory": [round(early), round(late)],
        "rows_per_second": round((last - first) * _BATCH / (end - start)),
        "seconds": round(time.perf_counter() - begin, 1),
    }
    print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(*options.measure)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path, options.rows)
        for name in options.only.split(","):
            command = [sys.executable, __file__, "--measure", name, str(path)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            results[name] = json.loads(done.stdout.splitlines()[-1])
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(name, results[name], flush=True)


if __name__ == "__main__":
    main()
