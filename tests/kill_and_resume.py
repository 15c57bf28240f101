"""Kills `fit` of every model with `kill -9` at random moments, and checks where the next fit ends.

    make kill                                           ten moments for each of five models, twice
    python tests/kill_and_resume.py --models TAGI --moments 2 --rounds 1 --copies 3

In a round a process fits with a backup and is killed at a random moment. This is repeated for each
moment, each time from the beginning, and another process resumes what the killed one left. With
`--copies` the folder of the backup is copied, file by file, while a process fits undisturbed, and
each copy is resumed. All weights, including those of the optimizers, must equal those of an
undisturbed run to the bit.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import batteries
import keras
import numpy as np

import tfp_fnspace as fns

#: Seconds that a process may take, on a machine that is busy with other work.
_PATIENCE = 600.0

#: Number of epochs of those for which 40 do not take a few seconds.
EPOCHS = {"TAGI": 100, "fBNN": 60}

#: Name in `batteries.ALL_MODELS` -> number of epochs.
MODELS = {name: EPOCHS.get(name, 40) for name in batteries.KINDS if name != "variational"}


def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 4)).astype("float32")
    y = np.stack([np.sin(x[:, 0]), x[:, 1] * x[:, 2]], axis=1)
    return x, y.astype("float32")


def state(model):
    """Returns all weights, including those of the optimizers."""
    optimizers = [getattr(model, name, None) for name in ("optimizer", "discriminator_optimizer")]
    parts = [part.variables for part in optimizers if part is not None]
    return [variable.numpy() for part in (model.weights, *parts) for variable in part]


def fit(name, backup, result, owner, save_freq):
    """Fits in a process: says when it begins, and writes the weights."""
    model = batteries.ALL_MODELS[name](seed=1)
    x, y = data()
    callback = {"keras": keras.callbacks, "fns": fns.callbacks}[owner].BackupAndRestore
    save_freq = save_freq if save_freq == "epoch" else int(save_freq)
    pathlib.Path(f"{result}.begun").touch()
    callbacks = [callback(backup, save_freq=save_freq)]
    batteries.fit(model, x, y, epochs=MODELS[name], batch_size=7, callbacks=callbacks)
    np.savez(f"{result}.part.npz", *state(model))
    os.replace(f"{result}.part.npz", result)


def start(*arguments):
    """Starts a process that runs `fit`."""
    return subprocess.Popen([sys.executable, __file__, "--fit", *arguments])


def finish(process):
    """Waits for a process to end."""
    try:
        process.wait(_PATIENCE)
    finally:
        process.kill()


def begun(process, result):
    """Waits until a process begins its fit, and returns that time."""
    until = time.monotonic() + _PATIENCE
    while not os.path.exists(f"{result}.begun"):
        if time.monotonic() > until or process.poll() is not None:
            process.kill()
            raise ChildProcessError(f"A process did not begin: {process.args}")
        time.sleep(0.002)
    return time.monotonic()


def read(result):
    with np.load(result) as arrays:
        return [arrays[name] for name in arrays.files]


def same(ours, theirs):
    return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))


def has_backup(folder):
    return os.path.isdir(folder) and bool(os.listdir(folder))


def copy(source, target):
    """Copies as `cp -r` does: file by file, whatever happens meanwhile."""
    os.makedirs(target)
    for entry in os.listdir(source) if os.path.isdir(source) else ():
        with contextlib.suppress(OSError):
            shutil.copyfile(os.path.join(source, entry), os.path.join(target, entry))


def run(name, folder, args, rng):
    """Returns the results of one model: the number of cases, and how many of them were right."""
    how = args.callback, args.save_freq
    right = cases = started = 0
    first, one = None, f"{folder}/undisturbed.npz"
    process = start(name, f"{folder}/whole", one, *how)
    since, copies = begun(process, one), []
    while process.poll() is None and time.monotonic() < since + _PATIENCE:
        if first is None and has_backup(f"{folder}/whole"):
            first = time.monotonic() - since
        if args.copies:
            target = f"{folder}/copy{len(copies)}"
            copy(f"{folder}/whole", target)
            copies.append(target)
        time.sleep(0.01)
    process.kill()
    seconds = time.monotonic() - since
    after_first = seconds - first
    print(
        f"{name}: a fit of {seconds:.1f} s, {after_first:.1f} s after its first backup", flush=True
    )
    expected = read(one)
    backed_up = [c for c in copies if os.listdir(c)]
    for target in rng.sample(backed_up, min(args.copies, len(backed_up))):
        result = f"{target}.npz"
        finish(start(name, target, result, *how))
        cases += 1
        right += os.path.exists(result) and same(read(result), expected)
    number = 0
    while number < args.rounds * args.moments:
        backup, result = f"{folder}/backup{number}", f"{folder}/result{number}.npz"
        process = start(name, backup, result, *how)
        since = begun(process, result)
        # Most of a short fit is tracing, which comes before the first backup. Every fourth moment
        # is anywhere; the others come after this process has written a backup.
        if number % 4:
            while not has_backup(backup) and process.poll() is None:
                time.sleep(0.002)
            time.sleep(rng.uniform(0.0, after_first))
        else:
            time.sleep(rng.uniform(0.0, seconds))
        process.kill()  # SIGKILL
        process.wait()
        if os.path.exists(result):  # the fit had ended: try an earlier moment
            seconds, after_first = 0.9 * seconds, 0.9 * after_first
            os.remove(result), os.remove(f"{result}.begun")
            continue
        number += 1
        started += has_backup(backup)
        finish(start(name, backup, result, *how))
        cases += 1
        right += os.path.exists(result) and same(read(result), expected)
        shutil.rmtree(backup, ignore_errors=True)
    print(
        f"{name}: {right} of {cases} right, {started} of {number} killed with a backup",
        flush=True,
    )
    return right, cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--copies", type=int, default=0)
    parser.add_argument("--callback", choices=("keras", "fns"), default="keras")
    parser.add_argument("--save-freq", default="epoch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fit", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fit:
        return fit(*args.fit)
    rng = random.Random(args.seed)
    results = []
    for name in args.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            results.append(run(name, folder, args, rng))
    right, cases = map(sum, zip(*results, strict=True))
    print(f"{right} of {cases}")
    return 0 if right == cases else 1


if __name__ == "__main__":
    sys.exit(main())
