"""Chooses which cases of a test `make test` runs and which only `make exhaustive` runs."""

import pytest


def sample_of(cases, kept, marks=()):
    """Returns the parameters of a test: the kept cases, and the others for `make exhaustive`.

    Args:
        cases: The names of all cases.
        kept: The names of the cases that `make test` runs: one for each path through the code.
        marks: Further marks of the cases that are not kept.
    """
    assert set(kept) <= set(cases), "a case that is kept is no case"
    left_out = [pytest.mark.exhaustive, *marks]
    return [case if case in kept else pytest.param(case, marks=left_out) for case in cases]
