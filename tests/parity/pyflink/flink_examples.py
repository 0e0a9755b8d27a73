"""Runs PyFlink's DataStream examples, which come with the package, on forkpoint with no line changed.

    python tests/parity/pyflink/flink_examples.py [--record | --engine ENGINE] [EXAMPLE…]

What the ones print that need nothing but Flink is compared with what Flink prints, ``examples.json``, as multisets
of lines; the others have to end with a message that says what to use. ``--record`` runs them on PyFlink and writes that.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FLINK = Path(os.environ.get("FLINK_VENV") or HERE.parents[2] / ".flink" / "venv")
RECORDED = HERE / "examples.json"
SECONDS = 300
# Flink's watermarks tick by a clock, and the example ends before the first tick: its timers see all elements. Here they see
# those that came before them, as the docs say.
BY_THE_CLOCK = {"event_time_timer": ("(Alice,163.29999923706055)", "(Alice,143.19999885559082)")}
# Their sums are in state of type FLOAT. PyFlink rounds them to 32 bits when they leave its cache, forkpoint at each update.
IN_FLOATS = {"event_time_timer", "state_access"}

RUN = (
    "basic_operations", "event_time_timer", "process_json_data", "state_access", "word_count",
    "windowing/session_with_dynamic_gap_window", "windowing/session_with_gap_window", "windowing/sliding_time_window",
    "windowing/tumbling_count_window", "windowing/tumbling_time_window",
)  # fmt: skip
# Those that need a system or an API that Spark stands for here: how the message begins that they end with.
REFUSED = {
    "asyncio/remote_model_inference": "pyflink.table.StreamTableEnvironment is not supported",
    "connectors/elasticsearch": "pyflink.datastream.connectors.elasticsearch.Elasticsearch6SinkBuilder is not supported",
    "connectors/kafka_avro_format": "pyflink.datastream.formats.avro.AvroRowSerializationSchema is not supported",
    "connectors/kafka_bytearray_format": "pyflink.datastream.connectors.kafka.KafkaRecordSerializationSchema is not supported",
    "connectors/kafka_csv_format": "pyflink.datastream.formats.csv.CsvRowSerializationSchema is not supported",
    "connectors/kafka_json_format": "pyflink.datastream.formats.json.JsonRowSerializationSchema is not supported",
    "connectors/kafka_row_field_extractor_example": "pyflink.datastream.connectors.kafka.KafkaSink is not supported",
    "connectors/pulsar": "pyflink.datastream.connectors.pulsar.PulsarSource is not supported",
    "streaming_word_count": "pyflink.table.StreamTableEnvironment is not supported",
}

NOISE = ("Nomodulenamed", "PYFLINK_CYTHON_ENABLED", "UsingAnyforunsupported")  # what Flink and Beam log, without blanks


def directory() -> Path | None:
    """Where the examples are; None where PyFlink isn't installed for recording."""
    return next(FLINK.glob("lib/python*/site-packages/pyflink/examples/datastream"), None)


def run(command: list[str], example: str, **environment: str) -> subprocess.CompletedProcess[str]:
    found = directory()
    if found is None:
        sys.exit(f"there is no PyFlink in {FLINK}; `make flink-parity` installs it")
    return subprocess.run(
        [*command, str(found / f"{example}.py")], capture_output=True, text=True, timeout=SECONDS,
        env={**os.environ, **environment},
    )  # fmt: skip


def lines(output: str) -> list[str]:
    """What was printed, in any order, without Flink's subtask numbers, and without what tells Java's texts from Python's."""
    return sorted(re.sub(r"['\"\s]", "", re.sub(r"^\d+> ", "", line)) for line in output.splitlines() if line.strip())


def on_forkpoint(example: str, engine: str) -> str | None:
    """What is wrong with the example's run; None where nothing is."""
    command = [sys.executable, "-W", "ignore", "-m", "forkpoint.pyflink"]
    done = run(command, example, FORKPOINT_ENGINE=engine)
    if example in REFUSED:
        *_, last = done.stderr.strip().splitlines() or [""]
        as_expected = done.returncode != 0 and REFUSED[example] in last and "Instead, " in last
        return None if as_expected else f"it ended with {done.returncode}: {last}"
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1]
    printed, recorded = lines(done.stdout), json.loads(RECORDED.read_text())[example]
    if example in BY_THE_CLOCK:
        theirs, ours = BY_THE_CLOCK[example]
        recorded.remove(theirs)
        recorded = sorted([*recorded, ours])
    if example in IN_FLOATS:
        printed, recorded = rounded(printed), rounded(recorded)
    return None if printed == recorded else f"printed {printed}, Flink {recorded}"


def rounded(printed: list[str]) -> list[str]:
    """The lines with the digits that a FLOAT has for sure."""
    return sorted(re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.6g}", line) for line in printed)


def record() -> None:
    path = f"{FLINK / 'bin'}{os.pathsep}{os.environ['PATH']}"  # where Flink looks for its workers' Python
    printed = {}
    for example in RUN:
        done = run(["python", "-W", "ignore"], example, PATH=path, PYTHONPATH="")
        if done.returncode != 0:
            sys.exit(f"{example} on PyFlink: {done.stderr.strip()}")
        printed[example] = [line for line in lines(done.stdout) if not line.startswith(NOISE)]
    RECORDED.write_text(json.dumps(printed, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="run them on PyFlink, and write what they print")
    parser.add_argument("--engine", default="local", choices=["local", "spark"])
    parser.add_argument("examples", nargs="*", help="all of them by default")
    arguments = parser.parse_args()
    if arguments.record:
        record()
    wrong = 0
    for example in arguments.examples or (*RUN, *REFUSED):
        problem = on_forkpoint(example, arguments.engine)
        print(f"{example}: {problem or 'as expected'}", flush=True)
        wrong += problem is not None
    sys.exit(wrong)


if __name__ == "__main__":
    main()
