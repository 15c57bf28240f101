"""Size, load time and latency of what a fitted model is exported to, beside Keras's `predict`.

A model of each method is fitted for an epoch to 500 rows of ten columns and exported in all formats
that take it. Each format answers one row and 1,000 rows, by its own runtime with one thread, after
calls that warm it up. `p50_ms` and `p99_ms` are quantiles over calls, `load_ms` is the time from
the file to the first answer.

    python benchmarks/export_latency.py [--only tagi diwp]

A format that cannot express a model has its reason instead. Run it with nothing else running, after
`pip install "tfp_fnspace[export]"`.
"""

import argparse
import pathlib
import tempfile
import time

import keras
import numpy as np
import onnxruntime
import tensorflow as tf

import tfp_fnspace as fns
from tfp_fnspace.benchmark import add_records, machine, versions

RESULTS = "benchmarks/results/export_latency.json"
INPUTS, ROWS = 10, 500
#: Rows of a call -> number of timed calls.
CALLS = {1: 500, 1000: 50}
WARM = 5
FILES = {"tf_saved_model": "served", "onnx": "m.onnx", "litert": "m.tflite"}


def data():
    """Returns inputs and targets."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, INPUTS)).astype("float32")
    return x, np.sin(x[:, :1]) + 0.1 * random.normal(size=(ROWS, 1)).astype("float32")


def tagi():
    """Makes a network of one layer of 50 units."""
    inputs = keras.Input((INPUTS,))
    hidden = fns.tagi.Dense(50, activation="relu")(inputs)
    noise = fns.likelihoods.Gaussian(0.3)
    return fns.tagi.TAGIModel(inputs, fns.tagi.Dense(1)(hidden), likelihood=noise, seed=0)


def bayes_by_backprop():
    """Makes a network of one layer of 50 units."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((INPUTS,))
    hidden = fns.layers.VariationalDense(50, activation="tanh")(inputs)
    return fns.fbnn.VariationalModel((inputs, fns.layers.VariationalDense(1)(hidden)), seed=0)


MODELS = {
    "tagi": tagi,
    "variational": bayes_by_backprop,
    "sip": lambda: fns.sip.SIPModel("bnn", seed=0),
    "diwp": lambda: fns.diwp.DIWPModel(seed=0),
}


def saved_model(path):
    """Returns the function that a SavedModel serves."""
    loaded = tf.saved_model.load(path)
    serve = loaded.signatures["serving_default"]
    return lambda x: serve(x=tf.constant(x))["mean"].numpy()


def onnx(path):
    """Returns the function that onnxruntime computes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    return lambda x: session.run(["mean"], {"x": x})[0]


def litert(path):
    """Returns the function that LiteRT's interpreter computes."""
    runner = tf.lite.Interpreter(path, num_threads=1).get_signature_runner()
    return lambda x: runner(x=x)["mean"]


LOADERS = {"tf_saved_model": saved_model, "onnx": onnx, "litert": litert}


def quantiles_ms(function, x, calls):
    """Returns the median and the 99 % quantile of the milliseconds of a call."""
    for _ in range(WARM):
        function(x)
    seconds = []
    for _ in range(calls):
        begin = time.perf_counter()
        function(x)
        seconds.append(time.perf_counter() - begin)
    return [round(1e3 * float(q), 4) for q in np.quantile(seconds, [0.5, 0.99])]


def measured(function, x):
    """Returns the latencies of a function, a dict."""
    found = {}
    for rows, calls in CALLS.items():
        part = np.resize(x, (rows, INPUTS))
        found[f"p50_ms_{rows}"], found[f"p99_ms_{rows}"] = quantiles_ms(function, part, calls)
    return found


def size_of(path):
    """Returns the kB of a file or a folder."""
    parts = [p for p in [path, *path.rglob("*")] if p.is_file()]
    return round(sum(p.stat().st_size for p in parts) / 1e3, 1)


def exported(model, kind, folder, x):
    """Returns the size, the load time and the latencies of one format, a dict."""
    path = folder / FILES[kind]
    try:
        model.export(path, format=kind)
    except NotImplementedError as error:
        return {"reason": str(error)}
    begin = time.perf_counter()
    function = LOADERS[kind](str(path))
    answer = function(x)
    load = round(1e3 * (time.perf_counter() - begin), 1)
    error = np.max(np.abs(answer - model.predict(x)["mean"]))
    return {"kb": size_of(path), "load_ms": load, "error": float(error), **measured(function, x)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    for name in parser.parse_args().only:
        x, y = data()
        model = MODELS[name]()
        model.fit(x, y, verbose=0)
        rows = {"predict": measured(lambda x, model=model: model.predict(x)["mean"], x)}
        with tempfile.TemporaryDirectory() as folder:
            for kind in FILES:
                rows[kind] = exported(model, kind, pathlib.Path(folder), x)
        shared = {"versions": versions(), "machine": machine()}
        records = [{"model": name, "format": kind, **row, **shared} for kind, row in rows.items()]
        for kind, row in rows.items():
            print(name, kind, row)
        add_records(RESULTS, records, lambda record, name=name: record["model"] == name)


if __name__ == "__main__":
    main()
