"""A fitted model in a folder, as the command line writes and reads it."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from tfp_fnspace import files
from tfp_fnspace.commands import reading
from tfp_fnspace.commands.schema import Schema

#: Names in the folder: the fitted estimator, what it is, and rows that were kept for scores.
ESTIMATOR, CARD, TEST = "estimator.skops", "card.json", "test.csv"

#: Versions of the layout that this library reads.
_LAYOUT = 1


class Saved(NamedTuple):
    """What a folder holds.

    Attributes:
        estimator: Fitted estimator of `tfp_fnspace.sklearn`.
        schema: `Schema` of the tables that it takes.
        card: Dict of what is known about the fit.
    """

    estimator: Any
    schema: Schema
    card: dict[str, Any]


def check(path: str | os.PathLike[str]) -> Path:
    """Refuses a path that holds something else than a saved model, before hours are spent.

    Raises:
        ValueError: If the path is a file, or a folder with other things.
    """
    path = files.checked_path("out", path)
    files.check_folder(path, (ESTIMATOR, CARD, TEST))
    return path


def save(path: str | os.PathLike[str], saved: Saved, test: Any = None) -> None:
    """Writes the folder; an existing one of its kind is replaced in one step.

    Args:
        path: Folder.
        saved: `Saved`.
        test: `pandas.DataFrame` of rows that were kept for scores, or `None`.

    Raises:
        OSError: If the folder cannot be written; its content is then unchanged.
        ValueError: As for `check`.
    """
    from tfp_fnspace.sklearn import saving

    path = check(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as partial:
        partial.mkdir()
        saving.save(saved.estimator, partial / ESTIMATOR)
        card = {"layout": _LAYOUT, "schema": saved.schema.as_dict(), **saved.card}
        (partial / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
        if test is not None:
            reading.write(test, partial / TEST)


def load(path: str | os.PathLike[str]) -> Saved:
    """Reads a folder that `save` has written.

    Args:
        path: Folder.

    Returns:
        `Saved`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it is not one of a saved model, or not whole.
    """
    path = files.checked_path("model", path)
    if not (path / CARD).is_file():
        raise FileNotFoundError(
            f"`model` must be a folder that `fit` has written. Received: model={str(path)!r}"
        )
    from tfp_fnspace.sklearn import saving

    try:
        card = json.loads((path / CARD).read_text(encoding="utf-8"))
        layout, schema = card.pop("layout"), Schema.from_dict(card.pop("schema"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"`model` must hold a whole {CARD}. "
            f"Received: model={str(path)!r}: {type(error).__name__}: {error}"
        ) from error
    if layout != _LAYOUT:
        raise ValueError(
            f"`model` must have the layout {_LAYOUT}: another version of this library wrote it. "
            f"Received: layout={layout!r} in {str(path)!r}"
        )
    return Saved(saving.load(path / ESTIMATOR), schema, card)


def test_rows(path: str | os.PathLike[str]) -> Path:
    """Returns the path of the rows that were kept for scores.

    Raises:
        FileNotFoundError: If `fit` kept none.
    """
    test = Path(path) / TEST
    if not test.is_file():
        raise FileNotFoundError(
            "`data` must be given, since `fit` kept no rows for scores (its option is --test). "
            f"Received: model={str(path)!r} without {TEST}"
        )
    return test


class Current:
    """The model of a folder, until another one takes its place.

    Args:
        path: Folder.

    Attributes:
        saved: `Saved`.

    Raises:
        FileNotFoundError: As for `load`.
        ValueError: As for `load`.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._path = files.checked_path("model", path)
        self._mark, self.saved = self._look(), load(self._path)

    def _look(self):
        card = self._path / CARD
        return (card.stat().st_ino, card.stat().st_mtime_ns) if card.is_file() else None

    def load_if_new(self) -> None:
        """Loads the model of the folder if it is another; keeps this one if that fails."""
        mark = self._look()
        if mark != self._mark:
            saved = load(self._path)
            if self._look() == mark:  # else another one came while this one was read
                self.saved, self._mark = saved, mark
