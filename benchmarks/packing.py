"""Many numbers in few lines of a results file."""

import numpy as np


def packed(values, digits=4):
    """Numbers as short text with so many significant digits; a list of such for a table."""
    values = np.asarray(values)
    if values.ndim > 1:
        return [packed(row, digits) for row in values]
    return " ".join(f"{v:.{digits}g}" for v in values)


def numbers(text):
    """What `packed` wrote, as an array."""
    return np.array(
        [row.split() for row in text] if isinstance(text, list) else text.split(), float
    )
