"""Estimators with shipped defaults on data sets with fixed splits; a process and file a cell.

A run that is killed loses the cells that were being fitted, one for each job. Any number of runs
may write to one folder: each takes the cells that no run has done and no other run is working on.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tfp_fnspace import datasets
from tfp_fnspace.benchmark import cell, estimators
from tfp_fnspace.benchmark.selection import load, parse_splits
from tfp_fnspace.boundary.arguments import check_count
from tfp_fnspace.cores import num_cores

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, so a folder is for one run at a time
    fcntl = None

_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
_THREADS += ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

#: Seconds after which cells that other runs work on are checked again.
_WAIT = 1.0


class Cell(NamedTuple):
    """An estimator, a data set and a split, which one process fits and scores."""

    estimator: str
    dataset: str
    split: int

    def path(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Returns the path of its record."""
        return pathlib.Path(folder) / self.estimator / f"{self.dataset}-{self.split}.json"


def run(
    names: Sequence[str],
    dataset_names: Sequence[str],
    splits: str,
    data_dir: str | os.PathLike[str] | None,
    out: str | os.PathLike[str],
    jobs: int = 1,
    shard: str = "1/1",
    echo: Callable[[str], None] = print,
) -> None:
    """Fits and scores all estimators on all splits of all data sets that the folder does not have.

    Args:
        names: Names from `estimators.ESTIMATORS`.
        dataset_names: Names of data sets, or `["all"]` for all of the folder.
        splits: See `parse_splits`.
        data_dir: Folder of `<name>.npz`, or the parent of the folder `uci` of these; by default
            the environment variable `TFP_FNSPACE_DATA`.
        out: Folder of the results, `<estimator>/<dataset>-<split>.json`, see `cell.run`. A failed
            cell stays failed until its file is removed.
        jobs: Number of cells at a time; each has its part of the cores.
        shard: `"2/5"` takes every fifth cell from the second on, one part for each of five machines
            that do not see the same folder. Those that see it share the cells without this.
        echo: Function that prints a line.

    Raises:
        ValueError: If a name is unknown, the shard is not such a text, or a data set has several
            targets.
        ImportError: If a package is missing.
    """
    check_count("jobs", jobs)
    part, num_parts = parse_shard(shard)
    if dataset_names == ["all"]:
        dataset_names = datasets.available(data_dir)
    loaded = {name: _load(name, data_dir) for name in dataset_names}
    cells = [
        Cell(name, dataset, split)
        for dataset, benchmark in loaded.items()
        for split in parse_splits(splits, benchmark.num_splits)
        for name in names
    ][part - 1 :: num_parts]
    for name in names:  # so that a missing package is reported once
        estimators.make(name, random_state=0)
    sizes = {name: len(benchmark.x) for name, benchmark in loaded.items()}
    Run(cells, out, jobs, lambda c, path: _command(c, data_dir, path), sizes, echo).all()


def parse_shard(text: str) -> tuple[int, int]:
    """Returns the numbers of a shard such as `"2/5"`.

    Raises:
        ValueError: If it is not two integers i/n with 1 <= i <= n.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    part, num_parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= num_parts:
        raise ValueError(
            f"`shard` must be i/n with 1 <= i <= n, such as 2/5. Received: shard={text!r}"
        )
    return part, num_parts


def _load(name, data_dir):
    found = load(name, data_dir)
    if found.y.shape[1] != 1:
        raise ValueError(
            f"The benchmark needs data sets of one target. Received: {name!r} with y of shape "
            f"{found.y.shape}"
        )
    return found


def _command(c, data_dir, path):
    words = (c.estimator, c.dataset, c.split, data_dir or "", path)
    return [sys.executable, "-m", cell.__name__, *map(str, words)]


class Run:
    """A run over cells.

    Args:
        cells: List of `Cell`.
        out: Folder of the results.
        jobs: Number of processes at a time.
        command: Function from a cell and the path of its file to the words that run it.
        sizes: Dict from names of data sets to their numbers of rows.
        echo: Function that prints a line.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        out: str | os.PathLike[str],
        jobs: int,
        command: Callable[[Cell, pathlib.Path], Sequence[str]],
        sizes: Mapping[str, int],
        echo: Callable[[str], None],
    ):
        self._out, self._jobs, self._command, self._echo = out, jobs, command, echo
        self._sizes = sizes
        self._left = [c for c in cells if not c.path(out).exists()]
        self._num_cells, self._num_done = len(cells), len(cells) - len(self._left)
        self._lock, self._stopped, self._processes = threading.Lock(), False, set()
        self._rates = defaultdict(list)  # estimator -> seconds a row of the cells done

    def all(self) -> None:
        """Runs until all cells have files, from this run or another."""
        self._echo(f"{self._num_cells} cells, {self._num_done} of them done before")
        workers = [threading.Thread(target=self._work, daemon=True) for _ in range(self._jobs)]
        for worker in workers:
            worker.start()
        try:
            for worker in workers:
                while worker.is_alive():  # Ctrl-C may reach another thread, which ends no `join`
                    worker.join(0.1)
        except BaseException:
            with self._lock:
                self._stopped = True
                for process in self._processes:
                    process.kill()
            raise

    def _work(self):
        while not self._stopped:
            with self._lock:
                todo = list(self._left)
            if not todo:
                return
            if not any(self._try(c) for c in todo):  # other runs work on all of them
                time.sleep(_WAIT)

    def _try(self, c):
        """Runs a cell that no run has done or works on; returns whether it is done."""
        path = c.path(self._out)
        with claimed(path) as is_mine:
            if not is_mine or self._stopped:
                return self._stopped
            with self._lock:
                if c not in self._left:
                    return True
            if not path.exists():
                self._fit(c, path)
            with self._lock:
                if not self._stopped:
                    self._left.remove(c)
                    self._num_done += 1
                    self._report(c, path)
        return True

    def _fit(self, c, path):
        begin = time.monotonic()
        with self._lock:
            if self._stopped:
                return
            process = subprocess.Popen(
                self._command(c, path),
                stdin=subprocess.PIPE,  # its end tells the process that this one has ended
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_environment(self._jobs),
                start_new_session=True,  # Ctrl-C is for this process alone
            )
            self._processes.add(process)
        with process:
            said = process.stderr.read()
            status = process.wait()
        with self._lock:
            self._processes.discard(process)
        seconds = time.monotonic() - begin
        self._rates[c.estimator].append(seconds / self._work_of(c))
        if not path.exists() and not self._stopped:
            error = (
                f"The process ended with status {status}. {said.decode(errors='replace')[-2000:]}"
            )
            record = {"status": "failed", "error": error, "fit_seconds": round(seconds, 3)}
            cell.write(path, {**c._asdict(), **record})

    def _work_of(self, c):
        """Returns the cost of a cell in rows; imports and tracing cost the same for every cell."""
        return 3000 + self._sizes[c.dataset]

    def _report(self, c, path):
        record = json.loads(path.read_text())
        if record["status"] == "done":
            seconds = record["fit_seconds"] + record["predict_seconds"]
            text = f"crps {record['crps']:.4g}, nll {record['nll']:.4g}, {seconds:.1f} s"
        else:
            text = f"{record['status']}: {record['error'].strip().splitlines()[-1]:.100}"
        self._echo(
            f"[{self._num_done}/{self._num_cells}] {c.estimator} {c.dataset} split {c.split}: "
            f"{text}; about {self._minutes_left():.1f} min left"
        )

    def _minutes_left(self):
        """Estimates minutes from seconds a row of the same estimator, or of all if it has none."""
        means = {name: sum(rates) / len(rates) for name, rates in self._rates.items()}
        others = sum(means.values()) / max(1, len(means))
        seconds = sum(means.get(c.estimator, others) * self._work_of(c) for c in self._left)
        return seconds / self._jobs / 60


@contextlib.contextmanager
def claimed(path: pathlib.Path) -> Iterator[bool]:
    """Tells a block whether it alone may write a file.

    A file beside `path` is locked. The lock ends with its process, however that ends. The locked
    file is removed when `path` exists.

    Args:
        path: Path of the result.

    Yields:
        `True` or `False`.
    """
    lock = path.with_suffix(".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            if path.exists():  # whoever opened the lock before sees that it exists
                lock.unlink(missing_ok=True)


def _environment(jobs):
    """Returns an environment with a part of the cores for each job, and with this package."""
    threads = str(max(1, num_cores() // jobs))
    package = str(pathlib.Path(__file__).resolve().parents[2])
    search = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        **dict.fromkeys(_THREADS, threads),
        "PYTHONPATH": search,
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
