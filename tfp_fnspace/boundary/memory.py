"""What cannot fit into memory is refused before the system ends the process."""


def free_bytes() -> float | None:
    """Returns the memory that programs can still get, in bytes; `None` where no one tells."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":") for line in file)
        return 1024.0 * float(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):  # not Linux
        return None


def check_room(needed: str, num_bytes: float, instead: str) -> None:
    """Refuses what takes more memory than is free.

    Args:
        needed: What takes the memory, a noun phrase.
        num_bytes: How much, in bytes.
        instead: What can be done, a clause.

    Raises:
        MemoryError: If it does not fit.
    """
    free = free_bytes()
    if free is not None and num_bytes > free:
        raise MemoryError(
            f"{needed} must fit into memory: {instead}. Received: {num_bytes / 2**30:,.3g} GiB, "
            f"where {free / 2**30:,.3g} GiB are free"
        )
