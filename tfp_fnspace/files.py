"""Files and folders that are written as a whole or not at all.

The content is first written to a hidden folder beside its destination and flushed to the disk. It
is then moved to its destination in one step of the file system. A reader, or a run after a kill at
any moment, therefore finds either the old or the new content.
"""

import contextlib
import ctypes
import errno
import glob
import math
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
    import resource
except ImportError:  # Windows: nothing is locked, and remains of killed processes stay
    fcntl = resource = None

_SUFFIX = ".partial"

#: The disk or the user's quota is full, or a file would exceed its size limit.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_OLD = "old"  # in the hidden folder: the old content, between two renames

# Arguments of Linux's `renameat2`.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def checked_path(name: str, value: Any) -> Path:
    """Checks a path and returns it as a `Path`.

    Raises:
        TypeError: If it is not a path.
        ValueError: If it is empty.
    """
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"`{name}` must be a path. Received: {name}={value!r}")
    if not os.fspath(value):
        raise ValueError(f"`{name}` must be a path that is not empty. Received: {name}={value!r}")
    return Path(value)


def check_folder(path: str | os.PathLike[str], entries: Collection[str]) -> None:
    """Checks that replacing a folder, if it exists, would remove nothing else.

    Args:
        path: Path of the folder.
        entries: Names that a folder of its kind may have.

    Raises:
        ValueError: If the path is a file, or a folder with something else.
    """
    rule = "`filepath` must be a new or empty folder, or one of the same kind to be replaced"
    if os.path.isdir(path):
        others = sorted(set(os.listdir(path)) - set(entries))
        if others:
            raise ValueError(f"{rule}. Received: filepath={str(path)!r}, which holds {others[:5]}")
    elif os.path.exists(path):
        raise ValueError(f"{rule}. Received: filepath={str(path)!r}, which is a file")


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], beside: str | os.PathLike[str] | None = None
) -> Iterator[Path]:
    """Yields a path to write to, a file or a folder, which replaces `path` at the end.

    If the block raises any error, `path` is unchanged and nothing else is left. The next call for
    the same path removes the remains of killed processes.

    Args:
        path: Destination of the file or the folder. Links are followed.
        beside: Path beside which the hidden folder is created, `path` by default. Use another one
            if others copy the folder of `path`.

    Yields:
        A `Path` with the name of `path`, in a separate folder.

    Raises:
        OSError: If the destination cannot be written, or the disk is full. The error has the path.
    """
    path = Path(os.path.realpath(path))
    place = Path(os.path.realpath(beside or path))
    with _about(path):
        if beside and not _can_move(place.parent, path.parent):
            place = path
        _clear(place)
        folder, lock = _hidden_folder(place)
    try:
        with _about(path):
            partial = folder / path.name
            yield partial
            _to_disk(partial)
            _take_place(partial, path, folder / _OLD)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


@contextlib.contextmanager
def replacing_several(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path for a file and others beside it, which are all moved to the folder of `path`.

    Each is moved in one step, the file itself last. If the block raises, nothing is left.

    Args:
        path: Destination of the file.

    Yields:
        A `Path` with the name of `path`, in a separate folder.

    Raises:
        OSError: As for `replacing`.
    """
    path = Path(os.path.realpath(path))
    with _about(path):
        _clear(path)
        folder, lock = _hidden_folder(path)
    try:
        with _about(path):
            yield folder / path.name
            _to_disk(folder)
            for part in sorted(folder.iterdir(), key=lambda part: part.name == path.name):
                os.replace(part, path.parent / part.name)
            _to_disk_folder(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Lets one process at a time into the block, among those that use the same path.

    If the file system has no locks, nothing is locked.
    """
    path = Path(os.path.realpath(path))
    lock = _lock(path.parent, wait=True)
    try:
        yield
    finally:
        _unlock(lock)


def check_room(
    path: str | os.PathLike[str], num_bytes: int, largest_file: int | None = None
) -> None:
    """Checks that a number of bytes fits on the disk of a path.

    Args:
        path: Destination of the bytes.
        num_bytes: Number of bytes.
        largest_file: Number of bytes of the largest file, by default all of them.

    Raises:
        OSError: If they do not fit, or this process may not write a file of this size.
    """
    limit = math.inf
    if resource is not None:
        soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit = math.inf if soft == resource.RLIM_INFINITY else soft
    if min(num_bytes, largest_file or num_bytes) > limit:
        raise _full(path, errno.EFBIG)
    if num_bytes > shutil.disk_usage(Path(os.path.realpath(path)).parent).free:
        raise _full(path)


def _full(path, number=errno.ENOSPC):
    rule = f"{os.strerror(number)}: nothing was written, and existing files are unchanged"
    return OSError(number, rule, str(path))


@contextlib.contextmanager
def _about(path):
    """Rewords errors of the system, so that they name the path that the user gave."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # HDF5 raises both, with the error number in the text
        in_words = re.search(r"errno = (\d+)", str(error))
        number = getattr(error, "errno", None) or (int(in_words[1]) if in_words else None)
        name = getattr(error, "filename", None)
        if number in _NO_ROOM and name != str(path):
            raise _full(path, number) from error
        if _SUFFIX in str(name or "") or (in_words and name is None):
            raise OSError(number, os.strerror(number), str(path)) from error
        raise


def _hidden_folder(path):
    """Makes a folder beside a path, and a lock which shows that its process is alive."""
    while True:
        folder = Path(tempfile.mkdtemp(_SUFFIX, f".{path.name}.", path.parent))
        # Another writer may have taken the new folder for remains, and be about to remove it.
        lock = _lock(folder, wait=True)
        if folder.exists():  # otherwise it was removed
            return folder, lock
        _unlock(lock)


def _clear(path):
    """Removes the remains of killed processes beside a path, and restores moved content."""
    for folder in path.parent.glob(f".{glob.escape(path.name)}.*{_SUFFIX}"):
        lock = _lock(folder)
        if lock is None:  # its process is alive, or there are no locks
            continue
        with contextlib.suppress(OSError):
            if (folder / _OLD).exists() and not path.exists():
                os.rename(folder / _OLD, path)
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


def _lock(folder, wait=False):
    """Locks a folder and returns its descriptor, or `None`."""
    if fcntl is None:
        return None
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return descriptor
        except OSError:
            os.close(descriptor)
    return None


def _unlock(lock):
    if lock is not None:
        os.close(lock)


def _can_move(source, target):
    """Returns whether files made in one folder can be renamed into another."""
    same_disk = os.stat(source).st_dev == os.stat(target).st_dev
    return same_disk and os.access(source, os.W_OK | os.X_OK) and not os.path.ismount(target)


def _to_disk(path):
    """Waits until the content of a file or a folder is on the disk."""
    for entry in [path, *(path.rglob("*") if path.is_dir() else ())]:
        if os.name == "nt" and entry.is_dir():
            continue
        descriptor = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _take_place(partial, path, old):
    if path.exists() and not path.is_dir():
        shutil.copymode(path, partial)
    if partial.is_dir() and path.exists():
        if not _exchange(partial, path):
            os.rename(path, old)
            os.rename(partial, path)
    else:
        os.replace(partial, path)
    if os.name != "nt":
        _to_disk_folder(path.parent)


def _to_disk_folder(folder):
    """Flushes the names in a folder to the disk, but not their content."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _exchange(first, second):
    """Exchanges two folders in one step if the system can; returns whether it did."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    paths = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second))
    return rename(*paths, _RENAME_EXCHANGE) == 0
