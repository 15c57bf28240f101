"""Many numbers in few lines of a results file."""

import numpy as np


def packed(values, digits=4):
    """Writes numbers as short text with some significant digits, and a table as a list of texts."""
    values = np.asarray(values)
    if values.ndim > 1:
        return [packed(row, digits) for row in values]
    return " ".join(f"{v:.{digits}g}" for v in values)


def numbers(text):
    """Returns as an array what `packed` wrote."""
    return np.array(
        [row.split() for row in text] if isinstance(text, list) else text.split(), float
    )
