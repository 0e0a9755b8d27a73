"""Jobs on a thread of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from forkpoint.api.execution import Job


class InBackground:
    """A job on a thread."""

    def __init__(self, prepared: Job) -> None:
        self.driver = prepared.driver
        self.result: Any = None
        self._thread = threading.Thread(target=self._run, args=[prepared], daemon=True)
        self._thread.start()

    def _run(self, prepared: Job) -> None:
        try:
            self.result = prepared.begin()()
        except Exception as error:
            self.result = error

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def wait_for(self, condition: Callable[[Any], object]) -> Any:
        """Its status once it meets the condition, or has ended."""
        while not condition(self.driver.status()) and self.alive:
            time.sleep(0.01)
        return self.driver.status()

    def end(self) -> Any:
        """Its result, or the error that ended it."""
        self._thread.join()
        return self.result
