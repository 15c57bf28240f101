"""The server under load: errors, latency, memory, and answers beside those of the model itself.

A server of a model of the example table runs in its own process. Eight clients send a thousand
requests each, of one row or of a hundred. A new model takes the place of the old one in the middle,
and bad requests are sent beside the good ones.

    python benchmarks/serving.py --out benchmarks/results/serving.json
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

import httpx
import numpy as np
import pandas as pd
import psutil

from tfp_fnspace import cli, datasets
from tfp_fnspace.benchmark import add_records, machine, versions
from tfp_fnspace.commands import folder, work

CLIENTS, REQUESTS = 8, 1000

#: Bodies that are not answered with 200, and the status that they should get.
BAD = [
    (b"{", 400),
    (b'{"rows": []}', 422),
    (b'{"rows": [{"carat": "heavy", "cut": 1, "colour": 1, "clarity": 1}]}', 422),
    (b" " * 11_000_000, 413),
]


def table():
    """Returns the rows of the example table, a data frame."""
    found = datasets.example_table()
    columns = list(found.columns)
    return pd.DataFrame(np.hstack([found.x_train, found.y_train]), columns=columns)


def fit(data, out, seed):
    words = ["fit", "--data", str(data), "--target", "price", "--method", "tagi"]
    if cli.main([*words, "--time-limit", "5", "--seed", str(seed), "--out", str(out)]):
        raise RuntimeError("fit failed")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(url, process):
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError("the server ended")
        try:
            return httpx.get(f"{url}/health").raise_for_status()
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError("the server does not answer")


def client(url, rows, expected, seed, found):
    """Sends requests; `found` gets seconds, whether each was right, and what failed."""
    random = np.random.default_rng(seed)
    with httpx.Client(timeout=60.0) as session:
        for _ in range(REQUESTS):
            start = int(random.integers(len(rows) - 1))
            count = 100 if random.random() < 0.02 else 1
            part = rows[start : start + count]
            begin = time.perf_counter()
            answer = session.post(f"{url}/predict", json={"rows": part})
            seconds = time.perf_counter() - begin
            if answer.status_code != 200:
                found.append((seconds, False, answer.text))
                continue
            means = [each["mean"] for each in answer.json()["predictions"]]
            right = any(np.allclose(means, e[start : start + count], rtol=1e-5) for e in expected)
            found.append((seconds, right, None))


def bad_requests(url, stop, statuses):
    with httpx.Client(timeout=60.0) as session:
        while not stop.is_set():
            for body, status in BAD:
                statuses.append((session.post(f"{url}/predict", content=body).status_code, status))
            stop.wait(0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="benchmarks/results/serving.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        record = run(pathlib.Path(place))
    print(json.dumps(record, indent=1))
    add_records(options.out, [{**record, "versions": versions(), "machine": machine()}])


def run(place):
    """Returns a record of the whole run."""
    rows = table()
    rows.to_csv(place / "train.csv", index=False)
    for seed in (0, 1):
        fit(place / "train.csv", place / f"model{seed}", seed)
    saved = [folder.load(place / f"model{seed}") for seed in (0, 1)]
    expected = [work.predictions(each, rows, 0.9)["mean"].to_numpy() for each in saved]
    served, port = place / "served", free_port()
    folder.save(served, saved[0])
    words = ["-m", "tfp_fnspace", "serve", "--model", str(served), "--port", str(port)]
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url, process)
        inputs = json.loads(rows.drop(columns="price").to_json(orient="records"))
        httpx.post(f"{url}/predict", json={"rows": inputs}, timeout=60.0)  # traces
        found, statuses, stop = [], [], threading.Event()
        memory = [psutil.Process(process.pid).memory_info().rss // 2**20]
        arguments = [(url, inputs, expected, seed, found) for seed in range(CLIENTS)]
        threads = [threading.Thread(target=client, args=each) for each in arguments]
        threads.append(threading.Thread(target=bad_requests, args=(url, stop, statuses)))
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        while len(found) < CLIENTS * REQUESTS // 2:
            time.sleep(0.1)
        memory.append(psutil.Process(process.pid).memory_info().rss // 2**20)
        folder.save(served, saved[1])  # in the middle
        for thread in threads[:-1]:
            thread.join()
        seconds = time.perf_counter() - begin
        stop.set()
        threads[-1].join()
        memory.append(psutil.Process(process.pid).memory_info().rss // 2**20)
        answer = httpx.post(f"{url}/predict", json={"rows": inputs[:5]}, timeout=60.0)
        means = [each["mean"] for each in answer.json()["predictions"]]
    finally:
        process.terminate()
        process.wait()
    times = 1e3 * np.array([each[0] for each in found])
    return {
        "requests": len(found),
        "failed": sum(each[2] is not None for each in found),
        "wrong": sum(not each[1] and each[2] is None for each in found),
        "bad_requests": len(statuses),
        "bad_requests_with_another_status": sum(a != b for a, b in statuses),
        "new_model_answers": bool(np.allclose(means, expected[1][:5], rtol=1e-5)),
        "seconds": round(seconds, 1),
        "milliseconds_p50": round(float(np.percentile(times, 50)), 1),
        "milliseconds_p99": round(float(np.percentile(times, 99)), 1),
        "memory_mb_begin_middle_end": memory,
    }


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
