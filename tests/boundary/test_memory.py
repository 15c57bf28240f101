"""What cannot fit into memory is refused, in words; nothing is refused where no one tells."""

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
