"""Progress of a fit in the terminal."""

import time

#: Number of characters of the bar, and of the text beside it.
_BAR, _TEXT = 30, 56


class ProgressBar:
    """Draws a progress bar with the time that is left of a limit.

    Args:
        time_limit: Seconds.
    """

    def __init__(self, time_limit: float):
        self._ends = time.monotonic() + time_limit

    def __call__(self, fraction: float, text: str) -> None:
        """Draws the bar over the last one.

        Args:
            fraction: What is done, from 0 to 1.
            text: What is being done.
        """
        bar = "=" * round(_BAR * fraction)
        left = max(0.0, self._ends - time.monotonic())
        text += f", at most {left:.0f} s left" if fraction < 1.0 else ""
        print(f"\r[{bar:<{_BAR}}] {fraction:4.0%} {text:<{_TEXT}}", end="", flush=True)
        if fraction >= 1.0:
            print(flush=True)
