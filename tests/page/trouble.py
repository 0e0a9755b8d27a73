"""Jobs in trouble: `slow FILES` has an operator that sets the pace; `fails OUT` ends with a long error unless MENDED is beside
its output."""

import sys
import time
from pathlib import Path

import forkpoint as fp

LONG = "the price list has no entry for this drink, although it has been there before; " * 38  # about 3,000 characters


def slowly(line: str) -> str:
    time.sleep(0.004)
    return line


def slow(env: fp.StreamExecutionEnvironment, files: str) -> None:
    env.set_max_epoch_rows(200)
    lines = env.from_source(fp.FileSource.text(files), fp.WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    clean = lines.map(str.strip, str).uid("clean")
    priced = clean.key_by(lambda line: line[-1], str).map_with_state(lambda line, n: (slowly(line), (n or 0) + 1), int, str)
    priced.name("look up the price").uid("prices").sink_to(fp.DiscardSink()).uid("ledger")


def fails(env: fp.StreamExecutionEnvironment, out: str) -> None:
    def checked(n: int) -> int:
        if n == 200 and not Path(out).with_name("MENDED").exists():
            raise ValueError(LONG)
        return n

    env.set_restart_strategy(fp.RestartStrategy.fixed_delay(1, 1))
    numbers = env.from_source(fp.CounterSource(per_epoch=20), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    checks = numbers.map(checked, int).uid("checks")
    counts = checks.key_by(lambda _: 0, int).map_with_state(lambda n, c: (f"{n} {c or 0}", (c or 0) + 1), int, str)
    counts.uid("counts").sink_to(fp.FileSink.text(out)).uid("out")


if __name__ == "__main__":
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(100)
    {"slow": slow, "fails": fails}[sys.argv[1]](env, sys.argv[2])
    env.execute(sys.argv[1])
