"""Small jobs whose state's type changes from one version to the next, on the local engine."""

from __future__ import annotations

from typing import Any

import forkpoint as fp
from forkpoint.driver.restore import RestoreOptions
from forkpoint.testing import TestSource, run_local
from forkpoint.testing.script import StopWithSavepoint

IN, OUT = "in", "out"


def keeper(descriptor: Any, on: Any) -> fp.KeyedProcessFunction:
    """A function with one state. ``on(state, value)`` is called for each element and gives what to emit."""

    class Keeper(fp.KeyedProcessFunction):
        state = descriptor

        def process_element(self, value: Any, ctx: Any) -> Any:
            yield ctx.get_current_key(), on(self.state, value)

    return Keeper()
