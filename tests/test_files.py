"""Files are written completely or not at all, whoever reads, fails or is killed meanwhile."""

import errno
import functools
import io
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

import batteries
import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from exhaustive import sample_of

import tfp_fnspace as fns
from tfp_fnspace import benchmark, files

X = np.random.default_rng(3).normal(size=(20, 4)).astype("float32")
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)


# ----------------------------------------------------------------------------- in one step


def test_a_file_takes_its_place_at_the_end_of_the_block(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o640)
    with files.replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old" and partial.name == "a.txt"
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_block_that_ends_otherwise_leaves_the_old_file_alone(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), files.replacing(path) as partial:
        partial.write_text("new")
        raise error
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_takes_the_place_of_another(tmp_path, monkeypatch):
    path = tmp_path / "folder"
    for number, atomic in enumerate([True, True, False]):
        if not atomic:
            monkeypatch.setattr(files, "_exchange", lambda first, second: False)
        with files.replacing(path) as partial:
            partial.mkdir()
            (partial / f"file{number}").write_text("x")
        assert os.listdir(path) == [f"file{number}"] and os.listdir(tmp_path) == ["folder"]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "link").symlink_to("a.txt")
    with files.replacing(tmp_path / "link") as partial:
        partial.write_text("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "a.txt").read_text() == "new"


def test_what_killed_processes_left_goes_and_what_they_put_aside_comes_back(tmp_path):
    dead = tmp_path / ".served.12345678.partial"
    (dead / "old").mkdir(parents=True)
    (dead / "old" / "saved_model.pb").write_text("old")
    with pytest.raises(ValueError), files.replacing(tmp_path / "served"):
        assert (tmp_path / "served" / "saved_model.pb").read_text() == "old"
        raise ValueError
    assert os.listdir(tmp_path) == ["served"]


def test_what_a_living_process_writes_stays(tmp_path):
    path = tmp_path / "a.txt"
    with files.replacing(path) as first, files.replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first" and os.listdir(tmp_path) == ["a.txt"]


def test_the_hidden_folder_is_not_where_others_copy(tmp_path):
    folder = tmp_path / "backup"
    folder.mkdir()
    with files.replacing(folder / "a.txt", folder) as partial:
        partial.write_text("new")
        assert os.listdir(folder) == []
    assert os.listdir(folder) == ["a.txt"] and os.listdir(tmp_path) == ["backup"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_errors_of_the_disk_are_about_the_file_of_the_user(tmp_path, monkeypatch, code):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(file):
        raise OSError(code, os.strerror(code), str(file))

    monkeypatch.setattr(files, "_to_disk", fail)
    with pytest.raises(OSError, match=os.strerror(code)) as caught, files.replacing(path) as part:
        part.write_text("new")
    assert caught.value.errno == code and caught.value.filename == str(path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, files.replacing(tmp_path / "no" / "a.txt"):
        pass
    assert caught.value.filename == str(tmp_path / "no" / "a.txt")


def test_a_folder_that_another_writer_takes_for_remains_is_not_used(tmp_path, monkeypatch):
    make, taken = tempfile.mkdtemp, []

    def remove(folder, lock):
        time.sleep(0.3)  # the owner is at its own lock meanwhile
        shutil.rmtree(folder)
        files._unlock(lock)

    def make_and_lose(*arguments):
        folder = make(*arguments)
        if not taken:
            remover = threading.Thread(target=remove, args=(folder, files._lock(folder)))
            taken.append(folder)
            remover.start()
        return folder

    monkeypatch.setattr(files.tempfile, "mkdtemp", make_and_lose)
    with files.replacing(tmp_path / "a.txt") as part:
        assert str(part.parent) != taken[0]
        time.sleep(0.5)
        part.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"


# ------------------------------------------------------------------------------------ models


@pytest.fixture(scope="module")
def model():
    fitted = batteries.tagi_model(seed=1)
    fitted.fit(X, Y, verbose=0)
    return fitted


def whole(path):
    with zipfile.ZipFile(path) as archive:
        return archive.testzip() is None and "model.weights.h5" in archive.namelist()


def test_readers_find_a_whole_model_while_two_threads_write_it(model, tmp_path):
    path, stop, errors = tmp_path / "m.keras", threading.Event(), []
    model.save(path)

    def write():
        try:
            while not stop.is_set():
                model.save(path)
        except Exception as error:
            errors.append(error)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        assert all(whole(path) for _ in range(200))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert not errors and whole(path) and os.listdir(tmp_path) == ["m.keras"]


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5", "served"])
@pytest.mark.slow
def test_a_full_disk_leaves_the_old_one(model, tmp_path, monkeypatch, name):
    write = {".keras": model.save, ".h5": model.save_weights}.get(
        pathlib.Path(name).suffix, model.export
    )
    write(tmp_path / name)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    if name == "m.weights.h5":
        usage = type("Usage", (), {"free": 1000})
        monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage)
    else:
        full = OSError(errno.ENOSPC, "No space left on device")
        monkeypatch.setattr(files, "_to_disk", lambda path: (_ for _ in ()).throw(full))
    with pytest.raises(OSError, match="No space left on device: nothing was written") as caught:
        write(tmp_path / name)
    assert name in caught.value.filename and ".partial" not in caught.value.filename
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


TINY = """
import os, sys
import numpy as np
import keras
import tfp_fnspace as fns

folder = sys.argv[1]
inputs, noise = keras.Input((4,)), fns.likelihoods.Gaussian(0.3)
hidden = fns.tagi.Dense(40_000, activation="relu")(inputs)
large = fns.tagi.TAGIModel(inputs, fns.tagi.Dense(1)(hidden), likelihood=noise)
inputs = keras.Input((4,))
small = fns.tagi.TAGIModel(inputs, fns.tagi.Dense(1)(inputs), likelihood=noise)
x = np.ones((4, 4))
for model in (large, small):
    model.adapt(np.eye(4), np.arange(4.0))
writes = {"m.keras": "save", "m.weights.h5": "save_weights", "served": "export"}
for name, method in writes.items():
    getattr(small, method)(f"{folder}/{name}")
before = sorted(os.listdir(folder))
for name, method in {**writes, "new.keras": "save", "new": "export"}.items():
    try:
        getattr(large, method)(f"{folder}/{name}")
    except OSError as error:
        assert error.filename == f"{folder}/{name}", error
        assert "nothing was written" in str(error), error
    else:
        raise AssertionError(name)
assert sorted(os.listdir(folder)) == before
fns.load_model(f"{folder}/m.keras")
print("done")
"""


@pytest.mark.slow
def test_a_disk_of_a_megabyte(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        command = [sys.executable, "-c", TINY, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.split()[-1:] == ["done"], done.stderr[-3000:]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.slow
def test_two_exports_at_once_do_not_mix(tmp_path):
    path, models = tmp_path / "served", []
    for seed in (1, 2):
        models.append(batteries.tagi_model(seed=seed))
        models[-1].fit(X, Y, verbose=0)
    expected = [each.predict(X)["mean"] for each in models]
    threads = [threading.Thread(target=each.export, args=(path,)) for each in models * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served = tf.saved_model.load(str(path))
    mean = served.serve(X)["mean"]
    assert min(np.abs(mean - each).max() for each in expected) < 1e-5
    assert os.listdir(tmp_path) == ["served"]


def test_export_replaces_nothing_but_a_saved_model(model, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"Received: filepath=.*which holds \['mine.txt'\]"):
        model.export(tmp_path)
    with pytest.raises(ValueError, match="Received: filepath=.*which is a file"):
        model.export(tmp_path / "mine.txt")
    with pytest.raises(ValueError, match="Received: filepath=.*which holds"):
        model.save(tmp_path, zipped=False)
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["save", "save_weights", "export"])
@pytest.mark.parametrize("value", [None, 3, ""])
def test_paths_that_are_none(model, name, value):
    with pytest.raises((TypeError, ValueError), match=f"Received: filepath={value!r}"):
        getattr(model, name)(value)
    with pytest.raises((TypeError, ValueError), match=f"Received: filepath={value!r}"):
        fns.load_model(value)


# ----------------------------------------------------------------------------- broken files


@pytest.fixture(scope="module")
def archive(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "m.keras"
    model.save(path)
    return path.read_bytes()


def changed(archive, name, data):
    """Returns the archive with one of its files changed, or without it."""
    new = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(new, "w") as made:
        for each in old.namelist():
            if each != name or data is not None:
                made.writestr(each, data if each == name else old.read(each))
    return new.getvalue()


def poisoned(archive):
    """Returns the archive with one weight that is NaN."""
    with zipfile.ZipFile(io.BytesIO(archive)) as old:
        weights = io.BytesIO(old.read("model.weights.h5"))
    with h5py.File(weights, "r+") as file:
        kernel = file["layers/functional/layers/dense/vars/0"]
        kernel[0, 0] = np.nan
    return changed(archive, "model.weights.h5", weights.getvalue())


CONFIG = "config.json"
SYSTEM = {"module": "os", "class_name": "system", "config": {"command": "touch ran"}}
LAMBDA = {"class_name": "__lambda__", "config": {"code": "4wEAAAAA"}}
LAMBDA = {"module": "keras.layers", "class_name": "Lambda", "config": {"function": LAMBDA}}
BROKEN = {
    "no configuration": lambda a: changed(a, CONFIG, None),
    "empty configuration": lambda a: changed(a, CONFIG, b""),
    "configuration of nothing": lambda a: changed(a, CONFIG, b"{}"),
    "foreign configuration": lambda a: changed(a, CONFIG, b'{"model_type": "bert"}'),
    "list": lambda a: changed(a, CONFIG, b"[1]"),
    "bytes": lambda a: changed(a, CONFIG, b"\xff\xfe\x00"),
    "code": lambda a: changed(a, CONFIG, json.dumps(SYSTEM)),
    "lambda": lambda a: changed(a, CONFIG, json.dumps(LAMBDA)),
    "no weights": lambda a: changed(a, "model.weights.h5", None),
    "weights of nothing": lambda a: changed(a, "model.weights.h5", b""),
    "truncated": lambda a: a[: len(a) // 2],
    "truncated by one": lambda a: a[:-1],
    "empty": lambda a: b"",
    "text": lambda a: b"hello",
    "NaN": poisoned,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_one_sentence_with_its_name(archive, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "broken.keras"
    path.write_bytes(BROKEN[kind](archive))
    with pytest.raises(ValueError) as caught:
        fns.load_model(path)
    words = str(caught.value)
    assert words.startswith(
        "`filepath` must be a whole .keras file of a model. Received: filepath="
    )
    assert str(path) in words and "\n" not in words
    assert os.listdir(tmp_path) == ["broken.keras"]


def test_a_whole_file_loads_and_a_missing_one_is_named(model, archive, tmp_path):
    path = tmp_path / "m.keras"
    with pytest.raises(ValueError, match="m.keras'; there is no such file"):
        fns.load_model(path)
    path.write_bytes(archive)
    loaded = fns.load_model(str(path))
    np.testing.assert_array_equal(loaded.predict(X)["mean"], model.predict(X)["mean"])
    model.save(tmp_path / "folder", zipped=False)
    loaded = fns.load_model(tmp_path / "folder")
    np.testing.assert_array_equal(loaded.predict(X)["mean"], model.predict(X)["mean"])


def test_flipped_bits_are_found(archive, tmp_path):
    path, rng = tmp_path / "flipped.keras", np.random.default_rng(0)
    found = 0
    for place in rng.integers(len(archive), size=60):
        flipped = bytearray(archive)
        flipped[place] ^= 1 << rng.integers(8)
        path.write_bytes(flipped)
        try:
            fns.load_model(path)
        except ValueError as error:
            assert str(path) in str(error)
            found += 1
    assert found > 50  # the others are in dates and attributes of the archive


def test_weights_that_are_not_finite_are_refused_by_keras_too(archive, tmp_path):
    path = tmp_path / "m.keras"
    path.write_bytes(poisoned(archive))
    with pytest.raises(ValueError, match="Weights must be finite: .*dense/vars/0' with 1 of 24"):
        keras.models.load_model(path)
    model = batteries.tagi_model(seed=2)
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(ValueError, match="Received: filepath=.*m.keras.*finite"):
        model.load_weights(path)
    assert all(map(np.array_equal, before, [weight.numpy() for weight in model.weights]))


@keras.saving.register_keras_serializable("tests")
class MetricDense(fns.tagi.Dense):
    """A layer whose name must not let NaN pass."""


def test_weights_of_any_layer_must_be_finite_and_sums_of_metrics_need_not(tmp_path):
    inputs, layer = keras.Input((1,)), MetricDense(1)
    model = fns.tagi.TAGIModel(inputs, layer(inputs), likelihood=fns.likelihoods.Gaussian(0.3))
    model.compile(metrics=[keras.metrics.MeanSquaredError()])
    model.evaluating = keras.metrics.Mean()
    model.evaluating.total.assign(np.nan)
    path = tmp_path / "m.weights.h5"
    model.save_weights(path)
    model.load_weights(path)
    layer.bias_mean.assign([np.nan])
    model.save_weights(path)
    with pytest.raises(ValueError, match="Weights must be finite: .*metric_dense/vars/.' with 1"):
        model.load_weights(path)


def test_shards_are_all_there_or_none(model, tmp_path):
    path = tmp_path / "m.weights.json"
    for size, said in [(1e-9, "exceeds the maximum shard size"), ("x", "`max_shard_size` must be")]:
        with pytest.raises(ValueError, match=said):
            model.save_weights(path, max_shard_size=size)
        assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match=r"must end in \.weights\.json"):
        model.save_weights(tmp_path / "m.weights.h5", max_shard_size=1.0)
    model.save_weights(path, max_shard_size=1e-6)
    again = batteries.tagi_model(seed=2)
    again.load_weights(path)
    assert all(map(np.array_equal, model.get_weights(), again.get_weights()))


def test_files_that_are_larger_than_they_may_be(model, tmp_path):
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes = {
        "m.keras": model.save,
        "folder": functools.partial(model.save, zipped=False),
        "m.weights.h5": model.save_weights,
        "m.weights.json": functools.partial(model.save_weights, max_shard_size=1e-3),
        "served": model.export,
    }
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        for name, write in writes.items():
            with pytest.raises(OSError, match="File too large: nothing was written") as caught:
                write(tmp_path / name)
            assert caught.value.filename == str(tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []


def test_words_of_hdf5_about_a_full_disk(tmp_path):
    """HDF5 raises such an error as another kind when a file is closed."""
    words = "Can't decrement id ref count (unable to close file, errno = 28, error message = '...')"
    full = pytest.raises(OSError, match="No space left on device: nothing was written")
    with full as caught, files.replacing(tmp_path / "a"):
        raise RuntimeError(words)
    assert caught.value.filename == str(tmp_path / "a") and os.listdir(tmp_path) == []
    with pytest.raises(RuntimeError, match="another"), files.replacing(tmp_path / "a"):
        raise RuntimeError("another")


# ------------------------------------------------------------------------------ results files


def test_threads_on_one_results_file_lose_no_record(tmp_path):
    path = tmp_path / "new" / "r.json"

    def add(worker):
        for i in range(25):
            benchmark.add_records(path, [{"worker": worker, "i": i}])

    threads = [threading.Thread(target=add, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {(record["worker"], record["i"]) for record in benchmark.read_records(path)}
    assert len(found) == 100 and os.listdir(path.parent) == ["r.json"]


ADDING = """
import sys
import tempfile
from tfp_fnspace import benchmark
for i in range(40):
    list(benchmark.run_missing(sys.argv[1], [{"worker": sys.argv[2], "i": i}], lambda **cell: {}))
"""


@pytest.mark.slow
def test_processes_on_one_results_file_lose_no_record(tmp_path):
    path = tmp_path / "r.json"
    command = [sys.executable, "-c", ADDING, str(path)]
    processes = [subprocess.Popen([*command, str(worker)]) for worker in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(benchmark.read_records(path)) == 80


def test_records_that_are_replaced(tmp_path):
    path = tmp_path / "r.json"
    benchmark.write_records(path, [{"a": 1}, {"a": 2}])
    records = benchmark.add_records(path, [{"a": 3}], lambda record: record["a"] == 1)
    assert records == benchmark.read_records(path) == [{"a": 2}, {"a": 3}]


# --------------------------------------------------------------------------------- interrupts


@pytest.fixture(autouse=True)
def interrupts_arrive():
    """Lets Ctrl-C arrive: Python leaves it ignored in processes that a shell runs in background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_interrupt_waits_for_the_check_and_the_second_does_not():
    from tfp_fnspace import interrupts

    handler = signal.getsignal(signal.SIGINT)
    reached = []

    def press():
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), interrupts.deferred():
        press()
        reached.append("after the first")
        interrupts.check(patience=60.0)
        reached.append("patient")
        interrupts.check()
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():
        press()
        with interrupts.held():
            press()
            reached.append("held")
        reached.append("never")
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        press()
        reached.append("alone")
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():
        press()
        press()
        reached.append("never")
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():
        press()
        reached.append("to the end")
    assert reached == ["after the first", "patient", "held", "alone", "to the end"]
    assert signal.getsignal(signal.SIGINT) is handler


class Press(keras.callbacks.Callback):
    """Sends or raises Ctrl-C in the middle of an epoch."""

    def __init__(self, epoch, batch=None, how="signal"):
        super().__init__()
        self.epoch, self.batch, self.how = epoch, batch, how

    def stop(self):
        if self.how == "raise":
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGINT)
        if self.how == "twice":
            os.kill(os.getpid(), signal.SIGINT)

    def on_epoch_begin(self, epoch, logs=None):
        self.now = epoch
        if epoch == self.epoch and self.batch is None:
            self.stop()


class PressAtBatch(Press):
    def on_train_batch_end(self, batch, logs=None):
        if (self.now, batch) == (self.epoch, self.batch):
            self.stop()


def state(model):
    optimizers = [getattr(model, name, None) for name in ("optimizer", "discriminator_optimizer")]
    parts = [part.variables for part in optimizers if part is not None]
    return [variable.numpy() for part in (model.weights, *parts) for variable in part]


def assert_goes_on(make, presses, epochs_done, loop, num_epochs=4):
    """Fits until a callback stops, then to the end: the result is that of one undisturbed fit."""
    undisturbed, model = make(seed=1), make(seed=1)
    batteries.fit(undisturbed, X, Y, 7, epochs=num_epochs, callbacks=[loop(99, 0)])
    with pytest.raises(KeyboardInterrupt):
        batteries.fit(model, X, Y, 7, epochs=num_epochs, callbacks=[presses])
    assert int(model.counters.epochs.numpy()) == epochs_done
    steps = int(undisturbed.counters.steps.numpy()) // num_epochs
    midway = presses.batch + 1 if presses.batch is not None and presses.how != "signal" else 0
    assert int(model.counters.steps.numpy()) == epochs_done * steps + midway
    batteries.fit(model, X, Y, 7, epochs=num_epochs - epochs_done, callbacks=[loop(99, 0)])
    for ours, theirs in zip(state(model), state(undisturbed), strict=True):
        np.testing.assert_array_equal(ours, theirs)


INTERRUPTED = {
    "epoch": (Press(1), 2, Press),
    "raised": (Press(1, how="raise"), 1, Press),
    "batch": (PressAtBatch(1, 0), 2, PressAtBatch),
    "raised at a batch": (PressAtBatch(1, 0, "raise"), 1, PressAtBatch),
    "pressed twice": (PressAtBatch(2, 1, "twice"), 2, PressAtBatch),
}


@pytest.mark.parametrize("kind", ["epoch", "raised at a batch"])
def test_a_stopped_fit_goes_on_as_if_it_had_not_been(kind):
    assert_goes_on(batteries.tagi_model, *INTERRUPTED[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", sample_of(["raised", "batch", "pressed twice"], ["pressed twice"]))
def test_a_fit_stopped_elsewhere_goes_on(kind):
    assert_goes_on(batteries.tagi_model, *INTERRUPTED[kind])


OTHER_METHODS = [name for name in batteries.KINDS if name not in ("TAGI", "variational")]


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(OTHER_METHODS, ["SIP", "stable_process"]))
def test_a_stopped_fit_of_other_methods_goes_on(name):
    kinds = ["epoch", "raised"] if name == "stable_process" else ["epoch", "raised at a batch"]
    for kind in kinds:
        assert_goes_on(batteries.ALL_MODELS[name], *INTERRUPTED[kind])


def test_other_data_begin_an_epoch_of_their_own():
    model, other = batteries.tagi_model(seed=1), X[::-1].copy()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, 7, epochs=2, verbose=0, callbacks=[PressAtBatch(0, 1, "raise")])
    model.fit(other, Y, 7, verbose=0)
    assert (int(model.counters.epochs.numpy()), int(model.counters.steps.numpy())) == (1, 2 + 3)
    model.train_on_batch(X[:7], Y[:7])
    model.fit(other, Y, 7, verbose=0)
    assert (int(model.counters.epochs.numpy()), int(model.counters.steps.numpy())) == (2, 9)


def test_a_first_fit_without_a_step_leaves_the_model_as_it_was():
    model = batteries.tagi_model(seed=1, noise="cross_validate")
    before = state(model)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, 7, epochs=2, verbose=0, callbacks=[Press(0, how="raise")])
    assert all(map(np.array_equal, state(model), before))
    assert not model.is_ready


# ------------------------------------------------------------------------------------ backups


class Copies(keras.callbacks.Callback):
    """Copies a folder at all ends of epochs and batches, and keeps what was written since."""

    def __init__(self, folder, target):
        super().__init__()
        self.folder, self.target, self.count = folder, target, 0

    def copy(self):
        if self.folder.exists():
            copy = self.target / str(self.count)
            copy.mkdir(parents=True)
            for path in self.folder.iterdir():
                (copy / path.name).write_bytes(path.read_bytes())
            self.count += 1

    def on_epoch_begin(self, epoch, logs=None):
        self.copy()


class CopiesOfBatches(Copies):
    def on_train_batch_end(self, batch, logs=None):
        self.copy()


@pytest.mark.parametrize(
    ("owner", "save_freq"), [(keras, "epoch"), (fns, 2)], ids=["keras", "fns_by_batches"]
)
@pytest.mark.slow
def test_every_copy_of_a_backup_resumes_to_the_same_weights(tmp_path, owner, save_freq):
    def fit(folder, *others):
        model = batteries.tagi_model(seed=1)
        backup = owner.callbacks.BackupAndRestore(folder, save_freq=save_freq)
        options = {"epochs": 3, "batch_size": 7, "verbose": 0}
        return model, model.fit(X, Y, callbacks=[backup, *others], **options)

    kind = Copies if save_freq == "epoch" else CopiesOfBatches
    copies = kind(tmp_path / "running", tmp_path / "copies")
    undisturbed, _ = fit(tmp_path / "running", copies)
    assert copies.count >= 2 and not (tmp_path / "running").exists()
    for number in range(copies.count)[:: 1 if save_freq == "epoch" else 4]:
        others = [] if save_freq == "epoch" else [CopiesOfBatches(tmp_path / "none", tmp_path)]
        model, history = fit(tmp_path / "copies" / str(number), *others)
        assert len(history.epoch) < 4
        for ours, theirs in zip(state(model), state(undisturbed), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_backup_that_cannot_be_used_is_one_error(tmp_path):
    folder = tmp_path / "backup"
    folder.mkdir()
    (folder / "latest.weights.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    model = batteries.tagi_model(seed=1)
    with pytest.raises(ValueError, match="remove the folder to begin again. Received: backup_dir="):
        model.fit(X, Y, verbose=0, callbacks=[fns.callbacks.BackupAndRestore(folder)])


def test_the_backup_before_the_last_is_kept_where_that_is_wanted(tmp_path):
    folder = tmp_path / "backup"

    def fit(model, *others):
        backup = keras.callbacks.BackupAndRestore(folder, double_checkpoint=True)
        return model.fit(X, Y, 7, epochs=4, verbose=0, callbacks=[backup, *others])

    with pytest.raises(KeyboardInterrupt):
        fit(batteries.tagi_model(seed=1), Press(2, how="raise"))
    (folder / "latest.weights.h5").write_bytes(b"the disk has lost it")
    assert fit(batteries.tagi_model(seed=1)).epoch == [1, 2, 3]


@pytest.mark.slow
def test_our_backup_serves_other_models_of_keras(tmp_path):
    def fit(*others):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("adam", "mse")
        backup = fns.callbacks.BackupAndRestore(tmp_path / "backup")
        options = {"epochs": 4, "batch_size": 7, "shuffle": False, "verbose": 0}
        return model, model.fit(X, Y, callbacks=[backup, *others], **options)

    undisturbed, _ = fit()
    with pytest.raises(KeyboardInterrupt):
        fit(Press(2, how="raise"))
    model, history = fit()
    assert history.epoch == [2, 3]
    np.testing.assert_array_equal(model.get_weights()[0], undisturbed.get_weights()[0])


@pytest.mark.exhaustive
def test_killed_processes_resume_to_the_same_weights():
    script = pathlib.Path(__file__).parent / "kill_and_resume.py"
    command = [sys.executable, str(script), "--models", "TAGI"]
    command += ["--moments", "1", "--rounds", "1", "--copies", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "2 of 2", done.stdout + done.stderr[-2000:]
