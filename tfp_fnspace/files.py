"""Files and folders that are written whole or not at all.

What is written goes to a hidden folder beside its place, reaches the disk, and takes its place in
one step of the file system: whoever reads, or is killed, at any moment finds the old or the new.
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
from pathlib import Path

try:
    import fcntl
    import resource
except ImportError:  # Windows: nothing is locked, and what killed processes left stays
    fcntl = resource = None

_SUFFIX = ".partial"

#: The disk, or what the user may have of it, is full; a file would be larger than it may be.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_OLD = "old"  # in the hidden folder: what was at the place, while two renames take turns

# Of Linux's `renameat2`.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def checked_path(name, value):
    """A path as a `Path`.

    Raises:
        TypeError: If it is none.
        ValueError: If it is empty.
    """
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"`{name}` must be a path. Received: {name}={value!r}")
    if not os.fspath(value):
        raise ValueError(f"`{name}` must be a path that is not empty. Received: {name}={value!r}")
    return Path(value)


def check_folder(path, entries):
    """Checks that a folder, if there is one, holds nothing that writing it anew would remove.

    Args:
        path: Where the folder is to be.
        entries: Names that a folder of its kind may have.

    Raises:
        ValueError: If there is a file, or a folder with something else.
    """
    rule = "`filepath` must be a new or empty folder, or one of the same kind to be replaced"
    if os.path.isdir(path):
        others = sorted(set(os.listdir(path)) - set(entries))
        if others:
            raise ValueError(f"{rule}. Received: filepath={str(path)!r}, which holds {others[:5]}")
    elif os.path.exists(path):
        raise ValueError(f"{rule}. Received: filepath={str(path)!r}, which is a file")


@contextlib.contextmanager
def replacing(path, beside=None):
    """Gives a path to write at, a file or a folder; at the end that takes the place of `path`.

    If the block raises, whatever it raises, `path` is as it was and nothing else is left. What a
    killed process left behind goes with the next call for the same path.

    Args:
        path: Where the file or the folder is to be. A link is followed.
        beside: Beside which path the hidden folder is, `path` by default: a folder that others
            copy is not the place for it.

    Yields:
        A `Path` with the name of `path`, in a folder of its own.

    Raises:
        OSError: If the place cannot be written to, or the disk is full, with the path.
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
def replacing_several(path):
    """Gives a path to write at, a file with others beside it, which all then go beside `path`.

    Each takes its place in one step, the file itself last. If the block raises, nothing is left.

    Args:
        path: Where the file is to be.

    Yields:
        A `Path` with the name of `path`, in a folder of its own.

    Raises:
        OSError: As of `replacing`.
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
def locked(path):
    """Lets one process at a time into the block, of those that name the same path.

    Where the file system has no locks, nothing is locked.
    """
    path = Path(os.path.realpath(path))
    lock = _lock(path.parent, wait=True)
    try:
        yield
    finally:
        _unlock(lock)


def check_room(path, num_bytes, largest_file=None):
    """Checks that so many bytes fit on the disk of a path.

    Args:
        path: Where they are to be.
        num_bytes: How many there are.
        largest_file: Those of the largest file, by default all.

    Raises:
        OSError: If they do not fit, or this process may write no such file.
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
    rule = f"{os.strerror(number)}: nothing was written, and what was there is as it was"
    return OSError(number, rule, str(path))


@contextlib.contextmanager
def _about(path):
    """Errors of the system in words, and about the path that the user gave."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # HDF5 raises both, with the system's number in words
        in_words = re.search(r"errno = (\d+)", str(error))
        number = getattr(error, "errno", None) or (int(in_words[1]) if in_words else None)
        name = getattr(error, "filename", None)
        if number in _NO_ROOM and name != str(path):
            raise _full(path, number) from error
        if _SUFFIX in str(name or "") or (in_words and name is None):
            raise OSError(number, os.strerror(number), str(path)) from error
        raise


def _hidden_folder(path):
    """A new folder beside a path, and the lock that says that its process lives."""
    while True:
        folder = Path(tempfile.mkdtemp(_SUFFIX, f".{path.name}.", path.parent))
        lock = _lock(folder)
        if folder.exists():  # else another process took it for a dead one's before it was locked
            return folder, lock
        _unlock(lock)


def _clear(path):
    """Removes what killed processes left beside a path; what they had put aside goes back."""
    for folder in path.parent.glob(f".{glob.escape(path.name)}.*{_SUFFIX}"):
        lock = _lock(folder)
        if lock is None:  # its process lives, or there are no locks
            continue
        with contextlib.suppress(OSError):
            if (folder / _OLD).exists() and not path.exists():
                os.rename(folder / _OLD, path)
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


def _lock(folder, wait=False):
    """The descriptor of a locked folder, or `None`."""
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
    """Whether files made in one folder can be renamed into another."""
    same_disk = os.stat(source).st_dev == os.stat(target).st_dev
    return same_disk and os.access(source, os.W_OK | os.X_OK) and not os.path.ismount(target)


def _to_disk(path):
    """Waits until all that is in a file or a folder is on the disk."""
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
    """The names in a folder, not what is in it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _exchange(first, second):
    """Exchanges two folders in one step, where the system can; whether it did."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    paths = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second))
    return rename(*paths, _RENAME_EXCHANGE) == 0
