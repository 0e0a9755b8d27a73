"""Testing kit: whole jobs in this process (``run_local``, ``run_upgrade``), single operators (harnesses), scripted inputs, and
a manual clock, all on the engine's own runtime.
"""

from forkpoint.testing.clock import ManualClock
from forkpoint.testing.function_harnesses import (
    BroadcastProcessHarness,
    CoProcessHarness,
    KeyedBroadcastProcessHarness,
    KeyedCoProcessHarness,
    KeyedProcessHarness,
    OperatorHarness,
    ProcessHarness,
    TwoInputHarness,
)
from forkpoint.testing.local import LocalRun, run_local
from forkpoint.testing.sink import Record, TestSink
from forkpoint.testing.sink_contract import Row, SinkContract
from forkpoint.testing.source import ABORT, EOF, PAUSE, Abort, Advance, Eof, Pause, Rescale, TestSource
from forkpoint.testing.source_contract import SourceContract
from forkpoint.testing.upgrade import UpgradeRun, run_upgrade
from forkpoint.testing.window_harness import WindowHarness

__all__ = [
    "ABORT",
    "EOF",
    "PAUSE",
    "Abort",
    "Advance",
    "BroadcastProcessHarness",
    "CoProcessHarness",
    "Eof",
    "KeyedBroadcastProcessHarness",
    "KeyedCoProcessHarness",
    "KeyedProcessHarness",
    "LocalRun",
    "ManualClock",
    "OperatorHarness",
    "Pause",
    "ProcessHarness",
    "Record",
    "Rescale",
    "Row",
    "SinkContract",
    "SourceContract",
    "TestSink",
    "TestSource",
    "TwoInputHarness",
    "UpgradeRun",
    "WindowHarness",
    "run_local",
    "run_upgrade",
]
