"""Size, load time and latency of what a fitted model is exported to, beside `predict` and a server.

A model of each method is fitted to 500 rows of ten columns and exported in all formats that take
it. Each format answers one row and 1,000 rows, by its own runtime with one thread, after calls that
warm it up. `p50_ms` and `p99_ms` are quantiles over 500 calls of one row and 100 of 1,000 rows, or
over those of a minute if they take longer. `predict` has no quantiles, all others do. `load_ms` is
the time from the file to the first answer, for `predict` that of the `.keras` file, for the server
that from its start.

The server is `tfp-fnspace serve` in its own process, with the same model in an estimator whose
encoder changes nothing. One client sends rows as JSON over a connection that stays open. An answer
has moments and quantiles, as those of the exports have.

    python benchmarks/export_latency.py [--only tagi diwp]
    python benchmarks/export_latency.py --page

The second command only writes the table into `docs/howto/export.md`, which the first one also does.
A format that cannot express a model has its reason instead. Run it with nothing else running, after
`pip install "tfp_fnspace[export,serve]"`.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import httpx
import keras
import numpy as np
import onnxruntime
import pandas as pd
import tables
import tensorflow as tf
from serving import free_port, wait_for

import tfp_fnspace as fns
from tfp_fnspace.benchmark import add_records, machine, versions
from tfp_fnspace.commands import folder
from tfp_fnspace.commands.schema import Schema
from tfp_fnspace.sklearn import TAGIRegressor

RESULTS, PAGE = "benchmarks/results/export_latency.json", pathlib.Path("docs/howto/export.md")
INPUTS, ROWS = 10, 500
#: Rows of a call -> number of timed calls.
CALLS = {1: 500, 1000: 100}
#: Seconds after which no further call is timed.
SECONDS = 60.0
WARM = 3
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


def stable_process():
    """Makes a process with the partition and the 400 draws of its recipe; the chains are short."""
    lengths = {"sweeps_per_epoch": 20, "burn_in": 1, "thin": 1}
    chains = fns.stable_process.Chains(num_chains=2, max_draws=400, **lengths)
    partition = fns.stable_process.Sampled(1000)
    return fns.stable_process.StableProcessModel(partition=partition, chains=chains, seed=0)


MODELS = {
    "tagi": tagi,
    "stable_process": stable_process,
    "variational": bayes_by_backprop,
    "sip": lambda: fns.sip.SIPModel("bnn", seed=0),
    "diwp": lambda: fns.diwp.DIWPModel(seed=0),
}
#: Epochs of the fits, where one does not give what is served.
EPOCHS = {"stable_process": 11}


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
    seconds, end = [], time.perf_counter() + SECONDS
    while len(seconds) < calls and time.perf_counter() < end:
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


def predicted(model, place, x):
    """Returns the size, the load time and the latencies of `predict`, a dict."""
    path = place / "m.keras"
    model.save(path)
    begin = time.perf_counter()
    loaded = fns.load_model(path)
    loaded.predict(x)
    load = round(1e3 * (time.perf_counter() - begin), 1)
    latencies = measured(lambda x: loaded.predict(x)["mean"], x)
    return {"kb": size_of(path), "load_ms": load, **latencies}


def saved(model, x, y):
    """Returns what a server takes: the model in an estimator whose encoder changes nothing."""
    table = pd.DataFrame(x.astype("float64"), columns=[f"x_{i}" for i in range(INPUTS)])
    estimator = TAGIRegressor(time_limit=1.0, random_state=0).fit(table, y[:, 0])
    np.testing.assert_array_equal(estimator.encoder_.transform(table.to_numpy()), table)
    schema = Schema.of(table.assign(y=y), "y")
    return folder.Saved(estimator.with_model(model), schema, {"made": "for this comparison"})


def served(model, place, x, y):
    """Returns the size, the load time and the latencies of a server over HTTP, a dict."""
    path, port = place / "model", free_port()
    folder.save(path, saved(model, x, y))
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    words = ["-m", "tfp_fnspace", "serve", "--model", str(path), "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.DEVNULL, env={**os.environ, **threads}
    )

    def ask(x):
        rows = [{f"x_{i}": value for i, value in enumerate(row)} for row in x.tolist()]
        answer = session.post(f"{url}/predict", json={"rows": rows}).raise_for_status()
        return np.array([[each["mean"]] for each in answer.json()["predictions"]])

    try:
        with httpx.Client(timeout=600.0) as session:
            wait_for(url, process)
            answer = ask(x)
            load = round(1e3 * (time.perf_counter() - begin), 1)
            error = np.max(np.abs(answer - model.predict(x)["mean"]))
            latencies = measured(ask, x)
    finally:
        process.terminate()
        process.wait()
    return {"kb": size_of(path), "load_ms": load, "error": float(error), **latencies}


def write_page():
    """Writes the table into the page."""
    records = json.loads(pathlib.Path(RESULTS).read_text())
    PAGE.write_text(tables.with_export_latency(PAGE.read_text(encoding="utf-8"), records))
    print(f"wrote {PAGE}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--page", action="store_true", help="only write the table into the page")
    options = parser.parse_args()
    if not options.page:
        measure(options.only)
    write_page()


def measure(names):
    """Writes the records of models."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for name in names:
        x, y = data()
        model = MODELS[name]()
        model.fit(x, y, epochs=EPOCHS.get(name, 1), verbose=0)
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place)
            rows = {"predict": predicted(model, place, x)}
            rows.update({kind: exported(model, kind, place, x) for kind in FILES})
            rows["server"] = served(model, place, x, y)
        shared = {"versions": versions(), "machine": machine()}
        records = [{"model": name, "format": kind, **row, **shared} for kind, row in rows.items()]
        for kind, row in rows.items():
            print(name, kind, row)
        add_records(RESULTS, records, lambda record, name=name: record["model"] == name)


if __name__ == "__main__":
    main()
