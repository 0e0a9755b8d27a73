"""Programs that kill themselves at a step of their work, for tests of what the next start does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

Steps = Mapping[str, tuple[Any, str]]
"""By name: what has the method or function (a class or module), and its name there."""


def die_at(steps: Steps, step: str, number: int, before_death: Callable[..., None] | None = None) -> None:
    """Make the ``number``-th call of a step the last thing that this process does: it dies before it, or, with a trailing "+",
    after it. ``before_death`` gets the call's arguments."""
    owner, name = steps[step.removesuffix("+")]
    real, after, left, lock = getattr(owner, name), step.endswith("+"), number, Lock()

    def die(args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if before_death is not None:
            before_death(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    def dies(*args: Any, **options: Any) -> Any:
        nonlocal left
        with lock:
            left -= 1
            now = left == 0
        if now and not after:
            die(args, options)
        result = real(*args, **options)
        if now:
            die(args, options)
        return result

    setattr(owner, name, dies)
