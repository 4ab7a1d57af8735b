"""Ctrl-C and SIGTERM as a wish that a loop grants at its next safe place."""

import os
import signal
import threading
from contextlib import suppress


class Interrupts:
    """`with Interrupts() as stop:` the first signal makes `stop()` true, a second is a KeyboardInterrupt(number)."""

    def __enter__(self):
        self.received = None  # the number of the signal
        self._before = {}
        if threading.current_thread() is threading.main_thread():  # signals reach no other thread
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self):
        return self.received is not None

    @property
    def exit_status(self):
        """What a shell reports of a program that the signal ended: 130 or 143."""
        return 128 + self.received

    def _handle(self, number, frame):
        if self.received is not None:
            raise KeyboardInterrupt(number)
        self.received = number
        with suppress(OSError):  # print would fail if the signal came in the middle of another print
            os.write(2, b"\nfinishing this step and saving; once more to stop at once\n")
