"""What cannot fit into memory is refused, in words; nothing is refused where no one tells."""

import batteries
import numpy as np
import psutil
import pytest

from tfp_fnspace.boundary import memory


def test_free_memory_is_that_of_the_system():
    free = memory.free_bytes()
    if free is None:
        pytest.skip("this system has no /proc/meminfo")
    assert free == pytest.approx(psutil.virtual_memory().available, rel=0.2)


@pytest.mark.parametrize("free", [2.0**30, None])
def test_check_room(monkeypatch, free):
    monkeypatch.setattr(memory, "free_bytes", lambda: free)
    memory.check_room("A matrix", 2.0**30, "take fewer rows")
    if free is None:
        memory.check_room("A matrix", 1e30, "take fewer rows")
        return
    rule = "A matrix must fit into memory: take fewer rows. Received: 2 GiB, where 1 GiB are free"
    with pytest.raises(MemoryError, match=rule):
        memory.check_room("A matrix", 2.0**31, "take fewer rows")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (batteries.tagi_model, r"100 functions at 24 rows must fit .* Received: 3\.58e-05 GiB"),
        (batteries.diwp_model, r"100 joint draws at 24 rows must fit .* Received: 3\.58e-05 GiB"),
    ],
)
def test_functions_that_do_not_fit_are_refused(monkeypatch, make, message):
    """Two outputs at 24 rows take 384 bytes a function, and a matrix over the rows 2,304."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 4)), rng.normal(size=(24, 2))
    model = make()
    model.fit(x, y, batch_size=24, verbose=0)
    monkeypatch.setattr(memory, "free_bytes", lambda: 1e4)
    assert model.sample_functions(x, 3).shape == (3, 24, 2)
    with pytest.raises(MemoryError, match=message):
        model.sample_functions(x, 100)
    monkeypatch.setattr(memory, "free_bytes", lambda: 9e3)
    if model.draws_jointly:
        with pytest.raises(MemoryError, match="3 joint draws at 24 rows must"):
            model.sample_functions(x, 3)
