"""The columns of a table: which are numbers, which are categories, and which are left out."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

#: The kinds of columns. The rows of all kinds are reported, and `IGNORED` columns are not used.
NUMBER, CATEGORY, IGNORED = "number", "category", "ignored"

#: A column of text is a category if it has at most this many different words,
_MOST_WORDS = 50

#: and at most this share of its rows differ.
_MOST_DIFFERENT = 0.5

#: Words that a report shows of a column.
_SHOWN = 4


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: Its name.
        kind: `NUMBER`, `CATEGORY` or `IGNORED`.
        about: What its rows hold, in words.
    """

    name: str
    kind: str
    about: str


class Schema(NamedTuple):
    """The columns of a table.

    Attributes:
        target: Name of the target.
        task: `"regression"` or `"classification"`.
        columns: Tuple of `Column` for all others, in their order.
    """

    target: str
    task: str
    columns: tuple[Column, ...]

    @classmethod
    def of(
        cls,
        table: Any,
        target: str,
        task: str | None = None,
        categories: Collection[str] = (),
        drop: Collection[str] = (),
    ) -> Self:
        """Finds the kinds of the columns of a table.

        Numbers and booleans are numbers. Text is a category if it has at most 50 different words
        and at most half of the rows differ. Other columns are ignored: text that differs from row
        to row, dates, and columns without a value.

        Args:
            table: `pandas.DataFrame`.
            target: Name of the target.
            task: `"regression"`, `"classification"`, or `None`: classification if the target is
                text, a category or a boolean.
            categories: Names of columns that are categories, whatever they hold.
            drop: Names of columns to leave out.

        Returns:
            `Schema`.

        Raises:
            ValueError: If a name is unknown, or no column is left.
        """
        _check_names(table, [target, *categories, *drop])
        columns = []
        for name in table.columns:
            if name != target:
                dropped = Column(name, IGNORED, "as asked") if name in drop else None
                columns.append(dropped or _described(table[name], name in categories))
        if all(column.kind == IGNORED for column in columns):
            raise ValueError(
                "The table must have a column of numbers or categories beside the target. "
                f"Received: {[tuple(column) for column in columns]}"
            )
        return cls(target, task or _task(table[target]), tuple(columns))

    @property
    def used(self) -> list[Column]:
        """The columns that are not ignored, a list."""
        return [column for column in self.columns if column.kind != IGNORED]

    def inputs(self, table: Any) -> Any:
        """Returns the used columns of a table, with dtypes that estimators take.

        Args:
            table: `pandas.DataFrame`; further columns are left out.

        Returns:
            `pandas.DataFrame` of float64 and of categories.

        Raises:
            ValueError: If a column is missing, or a number is not one or is infinite.
        """
        import pandas

        _check_names(table, [column.name for column in self.used])
        return pandas.DataFrame(
            {
                name: _as_words(table[name]) if kind == CATEGORY else _as_numbers(table[name], name)
                for name, kind, _ in self.used
            }
        )

    def targets(self, table: Any) -> tuple[Any, Any]:
        """Returns which rows of a table have a target, and the targets of these.

        Args:
            table: `pandas.DataFrame`.

        Returns:
            Boolean array `[N]`; and float64 targets, or words for classification.

        Raises:
            ValueError: If the target is missing, or one is not a number or is infinite.
        """
        _check_names(table, [self.target])
        column = table[self.target]
        known = column.notna().to_numpy()
        if not known.any():
            raise ValueError(f"The target must have values. Received: {self.target!r} without one")
        if self.task == "classification":
            return known, np.array(_as_words(column[known]).astype(str), dtype=object)
        return known, _as_numbers(column[known], self.target)

    def lines(self, table: Any) -> list[str]:
        """Returns a report of the table, a line for each column."""
        known, y = self.targets(table)
        if self.task == "classification":
            words, counts = np.unique(y, return_counts=True)
            shown = [f"{word} ({n})" for word, n in zip(words, counts, strict=True)]
            about = f"{len(words)} classes: {_shortened(shown)}"
        else:
            about = f"{np.min(y):.6g} to {np.max(y):.6g}"
        if not known.all():
            about += f"; {(~known).sum()} rows without it are left out"
        rows = [(self.target, f"target of {self.task}", about), *self.columns]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        return [f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows]

    def as_dict(self) -> dict[str, Any]:
        """Returns a dict that JSON can hold, for `from_dict`."""
        return {**self._asdict(), "columns": [column._asdict() for column in self.columns]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Returns the schema of a dict from `as_dict`."""
        columns = tuple(Column(**column) for column in values["columns"])
        return cls(values["target"], values["task"], columns)


def _check_names(table, names):
    unknown = [name for name in names if name not in table.columns]
    if unknown:
        raise ValueError(
            f"The table must have the columns {unknown}. Received: columns={list(table.columns)}"
        )


def _is_text(column):
    import pandas

    types = pandas.api.types
    return (
        types.is_object_dtype(column)
        or types.is_string_dtype(column)
        or isinstance(column.dtype, pandas.CategoricalDtype)
    )


def _task(column):
    import pandas

    of_words = _is_text(column) or pandas.api.types.is_bool_dtype(column)
    return "classification" if of_words else "regression"


def _described(column, is_category):
    """Returns the `Column` of a column of a table."""
    import pandas

    values, missing = column.dropna(), int(column.isna().sum())
    rows = f"; {missing} missing" if missing else ""
    if values.empty:
        return Column(column.name, IGNORED, "no value")
    if is_category or _is_text(column):
        _refuse_infinite(column, _are_infinite(column))
        words = sorted(set(map(_word, values)))
        is_declared = is_category or isinstance(column.dtype, pandas.CategoricalDtype)
        most = min(_MOST_WORDS, _MOST_DIFFERENT * len(values))
        if not is_declared and len(words) > most:
            about = f"text: {len(words)} different words in {len(values)} rows"
            return Column(column.name, IGNORED, about)
        return Column(column.name, CATEGORY, f"{len(words)} words: {_shortened(words)}{rows}")
    if pandas.api.types.is_bool_dtype(column):
        return Column(column.name, NUMBER, f"true in {100 * values.mean():.0f} % of the rows{rows}")
    if pandas.api.types.is_numeric_dtype(column):
        return Column(column.name, NUMBER, f"{values.min():.6g} to {values.max():.6g}{rows}")
    return Column(column.name, IGNORED, f"{column.dtype}: make numbers of it")


def _shortened(words):
    return ", ".join(words[:_SHOWN]) + (" ..." if len(words) > _SHOWN else "")


def _word(value):
    """Returns a category as text; whole numbers are the same with and without a point."""
    is_whole = isinstance(value, float | np.floating) and value == np.floor(value)
    return str(int(value)) if is_whole else str(value).strip()


def _refuse_infinite(column, is_infinite):
    """Refuses infinite numbers, which are neither categories nor missing."""
    bad = np.flatnonzero(is_infinite)
    if len(bad):
        raise ValueError(
            f"The numbers of the column {column.name!r} must be finite. "
            f"Received: {column.tolist()[bad[0]]!r} in row {bad[0]} (of {len(bad)} such rows)"
        )


def _are_infinite(words):
    return [isinstance(v, float | np.floating) and np.isinf(v) for v in words]


def _as_words(column):
    import pandas

    _refuse_infinite(column, _are_infinite(column))
    words = [
        None if missing else _word(v) for v, missing in zip(column, column.isna(), strict=True)
    ]
    return pandas.Series(pandas.Categorical(words), index=column.index)


def _as_numbers(column, name):
    import pandas

    numbers: Any = pandas.to_numeric(column, errors="coerce")
    numbers = numbers.astype(np.float64)
    bad = np.flatnonzero(numbers.isna() & column.notna())
    if len(bad):
        raise ValueError(
            f"The column {name!r} must have numbers. "
            f"Received: {column.iloc[bad[0]]!r} in row {bad[0]} (of {len(bad)} such rows)"
        )
    _refuse_infinite(column, np.isinf(numbers))
    return numbers.to_numpy()
