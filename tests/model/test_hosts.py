"""A model that two processes train together, as two hosts do, equals that of one process."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from elsewhere import ENVIRONMENT
from exhaustive import sample_of

HOST = """
import sys

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

import replicated

replicated.compare(sys.argv[1:], strategy)
print("done")
"""

#: Trains with a backup; arguments: the folder, and seconds to wait after each epoch.
BACKED_UP = """
import sys
import time

import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

import replicated

folder, pause = sys.argv[1], float(sys.argv[2])
with strategy.scope():
    model = replicated.MODELS["function"]()
slow = keras.callbacks.LambdaCallback(
    on_epoch_end=lambda epoch, logs: (print("epoch", epoch, flush=True), time.sleep(pause))
)
callbacks = [keras.callbacks.BackupAndRestore(f"{folder}/backup"), slow]
x, y = replicated.x, replicated.y
try:
    model.fit(x, y, batch_size=16, epochs=8, verbose=0, callbacks=callbacks)
except RuntimeError as error:
    print(error)
    sys.exit(3)
np.savez(f"{folder}/{strategy.cluster_resolver.task_id}.npz", *model.get_weights())
print("done")
"""

#: The second host has one row less than the first.
OTHER_ROWS = """
import json
import os

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

import replicated

with strategy.scope():
    model = replicated.MODELS["function"]()
host = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
try:
    model.fit(replicated.x[host:], replicated.y[host:], verbose=0)
except ValueError as error:
    assert "same rows" in str(error), error
    print("done")
"""


def free_ports(count):
    """Returns numbers of ports that nothing uses now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start(code, *arguments):
    """Starts two processes that are the hosts of one strategy."""
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    started = []
    for index in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {**ENVIRONMENT, "TF_CONFIG": json.dumps(task)}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=environment, **options))
    return started


def end(process):
    """Waits for a process; returns its last word, or all that it said."""
    out, err = process.communicate(timeout=500)
    return "done" if out.split()[-1:] == ["done"] else out + err[-2000:]


#: One model for each way to learn; others are like these.
IN_ALL = ("function", "TAGI")
OTHERS = [("SIP", "stable"), ("fBNN", "closed_form", "noise"), ("DIWP", "AADM")]


@pytest.mark.slow
@pytest.mark.parametrize("names", sample_of([IN_ALL, *OTHERS], [IN_ALL, OTHERS[1]]), ids="-".join)
def test_two_hosts_equal_one_process(names):
    assert [end(process) for process in start(HOST, *names)] == ["done", "done"]


@pytest.mark.slow
def test_hosts_go_on_after_one_was_killed(tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for folder in (whole, stopped):
        folder.mkdir()
    assert [end(process) for process in start(BACKED_UP, whole, 0)] == ["done", "done"]
    chief, other = start(BACKED_UP, stopped, 1)
    while "epoch 2" not in chief.stdout.readline():
        assert chief.poll() is None, chief.stderr.read()
    other.send_signal(signal.SIGKILL)
    began = time.monotonic()
    assert "start all of them again" in end(chief)
    assert chief.returncode == 3
    assert time.monotonic() - began < 120.0  # it does not wait for ever
    other.communicate()
    assert not list(stopped.glob("*.npz"))
    assert [end(process) for process in start(BACKED_UP, stopped, 0)] == ["done", "done"]
    expected = np.load(whole / "0.npz")
    for folder, host in ((whole, 1), (stopped, 0), (stopped, 1)):
        found = np.load(folder / f"{host}.npz")
        for name in expected.files:
            np.testing.assert_array_equal(found[name], expected[name])
    assert not os.path.exists(stopped / "backup")  # as after a run on one host


@pytest.mark.slow
def test_hosts_must_have_the_same_rows():
    assert [end(process) for process in start(OTHER_ROWS)] == ["done", "done"]
