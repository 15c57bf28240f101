"""A table as people have them: gaps, words and a column without use."""

import numpy as np
import pandas as pd


def flats(rows=120, seed=0):
    """Returns rents of flats: a number with gaps, a category, a boolean and words without use."""
    rng = np.random.default_rng(seed)
    size = rng.uniform(30, 150, rows)
    city = rng.choice(["Bern", "Lyon", "Turin"], rows)
    rent = 200 + 9 * size + 300 * (city == "Bern") + rng.normal(0, 60, rows)
    return pd.DataFrame(
        {
            "size": np.where(np.arange(rows) % 10 == 0, np.nan, size),
            "city": city,
            "new": rng.random(rows) < 0.2,
            "note": [f"flat {i}" for i in range(rows)],
            "rent": rent,
        }
    )
