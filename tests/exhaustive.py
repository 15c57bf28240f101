"""Which cases of a test `make test` runs, and which only `make exhaustive` does."""

import pytest


def sample_of(cases, kept, marks=()):
    """Parameters of a test: the cases that are kept, and the others for `make exhaustive`.

    Args:
        cases: Their names.
        kept: The names of those that `make test` runs: of each path through the code, one.
        marks: Other marks of those that are not kept.
    """
    assert set(kept) <= set(cases), "a case that is kept is no case"
    left_out = [pytest.mark.exhaustive, *marks]
    return [case if case in kept else pytest.param(case, marks=left_out) for case in cases]
