"""Splits and data sets that are selected by words."""

import os
import pathlib

from tfp_fnspace import datasets


def parse_splits(text: str, num_splits: int) -> list[int]:
    """Returns split numbers from `"0-4"`, `"0,2,5-7"` or `"all"`.

    Args:
        text: The words.
        num_splits: Number of splits.

    Returns:
        Sorted list of integers.

    Raises:
        ValueError: If the words are malformed, or a split does not exist.
    """
    if text == "all":
        return list(range(num_splits))
    try:
        parts = [[int(end) for end in part.split("-", 1)] for part in text.split(",")]
        chosen = sorted({k for part in parts for k in range(part[0], part[-1] + 1)})
    except ValueError:
        chosen = []
    if not chosen or chosen[0] < 0 or chosen[-1] >= num_splits:
        raise ValueError(
            f"Splits must be 'all' or numbers and ranges from 0 to {num_splits - 1}, such as "
            f"0-4 or 0,2. Received: splits={text!r}"
        )
    return chosen


def load(name: str, data_dir: str | os.PathLike[str] | None) -> datasets.Benchmark:
    """Returns a data set from the folder itself or from its `uci` folder."""
    inside, folder = f"uci/{name}", data_dir or os.environ.get(datasets.DATA_DIR_VARIABLE)
    nested = bool(folder) and (pathlib.Path(folder) / f"{inside}.npz").exists()
    return datasets.load(inside if nested else name, data_dir)
