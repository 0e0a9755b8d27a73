"""A job with a memory limit: its epochs are as large as fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.cli.commands.run import run as run_command
from forkpoint.driver.run.epoch_memory import FIRST_ROWS, LEAST_ROWS, EpochMemory
from forkpoint.errors import ConfigError
from forkpoint.graph.options import JobOptions
from forkpoint.operations import RunRequest
from forkpoint.runtime.exchange.control import Memory
from forkpoint.wording import parse_bytes
from programs import run_python

MIB = 1 << 20
LIMIT = 256 * MIB
LOAD = """
import json, sys, threading, time
import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.runtime.tasks.memory import own_bytes

before, peak, epochs = own_bytes(), 0, []

class Steps:
    def on_step(self, step, epoch):
        epochs.append(epoch)

def look():
    global peak
    while True:
        peak = max(peak, own_bytes())
        time.sleep(0.002)

class Letter(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, letter, ctx):
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield len(letter)

threading.Thread(target=look, daemon=True).start()
env = fp.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
limit = int(sys.argv[1])
env.launch = Launch(options={"memory_bytes": limit or None, "engine": "local"}, steps=Steps())
source = fp.NumberSequenceSource(0, 24_999)
numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
letters = numbers.map(lambda number: f"{number:020}" * 500, str).key_by(lambda letter: int(letter[:20]) % 7, int)
letters.process(Letter(), int).uid("letters").sink_to(fp.DiscardSink()).uid("out")
env.execute("letters")
print(json.dumps({"peak": peak, "before": before, "epochs": len(set(epochs))}))
"""


@given(
    base=st.integers(0, LIMIT // 2),
    element=st.integers(1, LIMIT // FIRST_ROWS // 2),
    noise=st.lists(st.floats(0.95, 1.05), min_size=20, max_size=20),
)
def test_epochs_grow_until_they_fill_the_limit_and_never_exceed_it(base: int, element: int, noise: list[float]) -> None:
    memory = EpochMemory()
    for factor in noise:
        peak = base + round(element * memory.rows * factor)
        assert peak <= LIMIT
        memory = memory.after(memory.rows, [Memory("a", base, peak, LIMIT), Memory("b", base, base, LIMIT)])
    filled = base + element * memory.rows
    assert filled >= 0.7 * LIMIT or memory.rows >= FIRST_ROWS * 2**19


def test_epochs_shrink_when_elements_grow_and_a_small_epoch_says_nothing() -> None:
    memory = EpochMemory(100_000).after(100_000, [Memory("a", 50 * MIB, 2 * LIMIT, LIMIT)])
    assert 20_000 < memory.rows < 50_000
    assert memory.after(10, [Memory("a", 50 * MIB, 51 * MIB, LIMIT)]) == memory
    assert memory.after(0, [Memory("a", 50 * MIB, LIMIT, LIMIT)]) == memory


def test_a_process_that_is_too_large_at_any_size_of_epochs_is_named() -> None:
    memory, large = EpochMemory(), Memory("host:7", LIMIT, LIMIT + MIB, LIMIT)
    while memory.rows > LEAST_ROWS:
        memory = memory.after(memory.rows, [large])
        assert memory.short is None
    memory = memory.after(memory.rows, [large])
    assert memory == EpochMemory(LEAST_ROWS, large)
    assert memory.after(LEAST_ROWS, [Memory("host:7", 0, MIB, LIMIT)]).short is None


@pytest.mark.parametrize(("text", "expected"), [("512m", 512 * MIB), ("1.5 GB", 1536 * MIB), ("64MiB", 64 * MIB), (123, 123)])
def test_sizes_are_read_as_in_spark_and_flink(text: object, expected: int) -> None:
    assert parse_bytes("--memory", text) == expected


def test_the_command_line_of_a_request_has_a_size_that_the_command_reads_back() -> None:
    request = RunRequest(__file__, memory_bytes=512 * MIB)
    assert run_command.make_context("run", request.command_line).params["memory_bytes"] == 512 * MIB
    with pytest.raises(ConfigError, match="512m"):
        run_command.make_context("run", ["--memory", "", __file__])


def test_a_size_without_a_unit_and_a_limit_below_what_python_takes_are_refused() -> None:
    for wrong in ("512", "many", "5 s", True):
        with pytest.raises(ConfigError, match="512m"):
            parse_bytes("--memory", wrong)
    with pytest.raises(ConfigError, match="memory of a subtask"):
        JobOptions(memory_bytes=MIB)


def test_a_job_keeps_to_its_limit(tmp_path: Path) -> None:
    """250 MB of elements take a multiple of that in one epoch; in epochs within a limit, at most a tenth more than the limit."""
    program = tmp_path / "letters.py"
    program.write_text(LOAD)
    free, limited = (json.loads(run_python([program, limit], capture_output=True, check=True).stdout) for limit in (0, 220 * MIB))
    assert free["epochs"] == 1
    assert free["peak"] > 400 * MIB
    assert limited["epochs"] > 3
    assert limited["peak"] < 1.1 * 220 * MIB
