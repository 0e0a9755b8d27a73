"""Runs PyFlink's examples of streams and tables, which come with the package, on forkpoint.

    python tests/parity/pyflink/flink_examples.py [--record | --engine ENGINE] [EXAMPLE…]

No line is changed but the address of the Kafka broker, a real one that is started for them. What they print and write to
Kafka is compared with what they do on Flink, ``examples.json``, as multisets of lines; those that need a system or an API that
forkpoint does not have must end with a message that says what to use. ``--record`` runs them on PyFlink and writes the file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

sys.path.append(str(Path(__file__).parents[2]))
from programs import Python
from servers.jars import BUILD, downloaded
from servers.kafka import Kafka

HERE = Path(__file__).parent
FLINK = Path(os.environ.get("FLINK_VENV") or HERE.parents[2] / ".flink" / "venv")
RECORDED = HERE / "examples.json"
VERSION = "2.3.0"
SECONDS = 300
# Flink's watermarks tick by a clock, and the example ends before the first tick: its timers see all elements. Here they see
# those that came before them, as the docs say.
BY_THE_CLOCK = {"event_time_timer": ("(Alice,163.29999923706055)", "(Alice,143.19999885559082)")}
# Their sums are in state of type FLOAT. PyFlink rounds them to 32 bits when they leave its cache, forkpoint at each update.
IN_FLOATS = {"event_time_timer", "state_access", "table/windowing/sliding_window"}

RUN = (
    "basic_operations",
    "event_time_timer",
    "process_json_data",
    "state_access",
    "word_count",
    "windowing/session_with_dynamic_gap_window",
    "windowing/session_with_gap_window",
    "windowing/sliding_time_window",
    "windowing/tumbling_count_window",
    "windowing/tumbling_time_window",
    "table/mixing_use_of_datastream_and_table",
    "table/multi_sink",
    "table/process_json_data",
    "table/process_json_data_with_udf",
    "table/pandas/conversion_from_dataframe",
    "table/pandas/pandas_udaf",
    "table/windowing/over_window",
    "table/windowing/session_window",
    "table/windowing/sliding_window",
    "table/windowing/tumble_window",
    "table/word_count",
)
# Their tables also change rows.
UPDATING = {"table/word_count"}
# Their input is random: of what they print, the number of lines is compared.
RANDOM = {"table/mixing_use_of_datastream_and_table", "table/pandas/conversion_from_dataframe"}
# Those that read a topic of Kafka for ever: they are ended.
ENDLESS = {
    "connectors/kafka_avro_format": "test_avro_topic",
    "connectors/kafka_bytearray_format": "test_bytearray_topic",
    "connectors/kafka_csv_format": "test_csv_topic",
    "connectors/kafka_json_format": "test_json_topic",
}
# Those that use Kafka, with their topic. The last only writes: it ends by itself, long after its last line.
KAFKA = {**ENDLESS, "connectors/kafka_row_field_extractor_example": "row-extractor-example"}
# Those that need a system or an API that is not there: how the message begins that they end with.
REFUSED = {
    "connectors/elasticsearch": "pyflink.datastream.connectors.elasticsearch.Elasticsearch6SinkBuilder is not supported",
    "connectors/pulsar": "pyflink.datastream.connectors.pulsar.PulsarSource is not supported",
    "table/async/async_scalar_function": "pyflink.table.udf.AsyncScalarFunction is not supported",
}
# Those that cannot be compared.
LEFT_OUT = {
    "asyncio/remote_model_inference": "never ends, with random input",
    "streaming_word_count": "never ends, with random input",
    "table/basic_operations": "fails on Flink itself: its `import *` of expressions hides the module json",
    "table/streaming_word_count": "never ends, with random input",
}
EXAMPLES = (*RUN, *KAFKA, *REFUSED)

NOISE = ("Nomodulenamed", "PYFLINK_CYTHON_ENABLED", "UsingAnyforunsupported")  # what Flink and Beam log, without blanks
# Without a line for so long, a job that reads for ever has nothing more to say.
QUIET_S = {"forkpoint": 1.0, "flink": 90.0}
ADDRESS = "localhost:9092"  # of the broker, in the examples

Outcome = Literal["same", "refused", "fails"]


@dataclass(frozen=True)
class Done:
    """How a run ended. ``code``: None if it was ended."""

    code: int | None
    printed: list[str]
    errors: str


def directory() -> Path:
    """Where the examples are: in PyFlink that is installed for recording, else in its wheel, which is downloaded once."""
    place = next(FLINK.glob("lib/python*/site-packages"), None)
    if place is None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        place = downloaded(
            BUILD / "pyflink",
            lambda into: [*pip, "--target", str(into), f"apache-flink=={VERSION}"],
            "pip cannot fetch PyFlink's wheel",
        )
    return place / "pyflink" / "examples"


def path_of(example: str) -> Path:
    """Where an example is; those without a folder of their own are of streams."""
    return directory() / f"{example if example.startswith('table/') else f'datastream/{example}'}.py"


def run(
    start: Callable[..., subprocess.Popen[str]],
    command: list[str],
    example: str,
    kafka: Kafka | None,
    expected: int | None,
    **environment: str,
) -> Done:
    """Run an example. One that reads for ever is ended once it has printed as many lines as ``expected`` and then nothing."""
    text = path_of(example).read_text()
    if kafka is not None:
        text = text.replace(ADDRESS, kafka.bootstrap_servers)
    text = re.sub(r"file:///path/to/(flink-sql-[a-z-]+)-[\d.]+\.jar", _jar, text)
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile("w+") as errors:
        program = Path(place, f"{Path(example).name}.py")
        program.write_text(text)
        process = start(
            [*command, str(program)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **environment},
        )
        printed: list[str] = []
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(process.stdout, printed), daemon=True)
        reader.start()
        code = _ended(process, printed, expected)
        reader.join(10)
        errors.seek(0)
        if kafka is not None:
            printed = [line.replace(kafka.bootstrap_servers, ADDRESS) for line in printed]
        return Done(code, lines(printed), errors.read().strip())


def _jar(found: re.Match[str]) -> str:
    jar = next(FLINK.glob(f"lib/python*/site-packages/pyflink/lib/{found[1]}-[0-9]*.jar"), None)
    return found[0] if jar is None else f"file://{jar}"


def _read(of: IO[str], into: list[str]) -> None:
    into.extend(of)


def _ended(process: subprocess.Popen[str], printed: list[str], expected: int | None) -> int | None:
    started = changed = time.monotonic()
    seen = 0
    while process.poll() is None:
        time.sleep(0.1)
        now = time.monotonic()
        if (count := sum(not line.isspace() for line in printed)) > seen:
            seen, changed = count, now
        quiet_s = QUIET_S["flink" if expected is None else "forkpoint"]
        if now > started + SECONDS or (seen >= (expected or 1) and now > changed + quiet_s):
            process.kill()
            process.wait()
            return None
    return process.returncode


def lines(printed: list[str]) -> list[str]:
    """What was printed, in any order, without Flink's subtask numbers, and without what tells Java's texts from Python's."""
    plain = [re.sub(r"['\"\s]", "", re.sub(r"^\d+> ", "", line)) for line in printed if line.strip()]
    return sorted(re.sub(r"^Row\((.*)\)$", lambda row: f"+I[{re.sub(r'[a-z0-9_]+=', '', row[1])}]", line) for line in plain)


def written(kafka: Kafka, topic: str) -> list[str]:
    """The records of a topic, as lines."""
    return sorted(f"{topic}:{message.key!r}:{message.value!r}" for message in kafka.read(topic))


def on_forkpoint(example: str, engine: str, kafka: Callable[[], Kafka]) -> tuple[Outcome, str]:
    """How the example ends, and why."""
    command = ["-W", "ignore", "-m", "forkpoint.pyflink"]
    if example in REFUSED:
        done = run(Python, command, example, None, SECONDS, FORKPOINT_ENGINE=engine)
        last = done.errors.rpartition("\n")[2]
        said = done.code not in (0, None) and REFUSED[example] in last and "Instead, " in last
        return ("refused" if said else "fails"), last
    recorded: list[str] = json.loads(RECORDED.read_text())[example]
    broker = kafka() if example in KAFKA else None
    topic = None if broker is None else broker.create_topic(KAFKA[example])
    expected = sum(not line.startswith(f"{topic}:") for line in recorded)
    done = run(Python, command, example, broker, expected if example in ENDLESS else SECONDS, FORKPOINT_ENGINE=engine)
    if done.code not in (0, None):
        return "fails", done.errors.rpartition("\n")[2]
    printed = done.printed if broker is None else [*done.printed, *written(broker, str(topic))]
    if example in BY_THE_CLOCK:
        theirs, ours = BY_THE_CLOCK[example]
        recorded.remove(theirs)
        recorded = sorted([*recorded, ours])
    if example in IN_FLOATS:
        printed, recorded = rounded(printed), rounded(recorded)
    if example in UPDATING:
        printed, recorded = remaining(printed), remaining(recorded)
    if example in RANDOM:
        printed, recorded = [str(len(printed))], [str(len(recorded))]
    return ("same", "") if Counter(printed) == Counter(recorded) else ("fails", f"printed {printed}, Flink {recorded}")


def rounded(printed: list[str]) -> list[str]:
    """The lines with the digits that a FLOAT has for sure."""
    return sorted(re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.6g}", line) for line in printed)


def remaining(printed: list[str]) -> list[str]:
    """The rows that remain after changes. Flink prints each, forkpoint those of an epoch that are left."""
    rows: Counter[str] = Counter()
    for line in printed:
        kind, _, row = line.partition("[")
        rows[row] += {"+I": 1, "+U": 1, "-U": -1, "-D": -1}.get(kind, 1)
    return sorted(rows.elements())


def record(examples: Sequence[str], kafka: Callable[[], Kafka]) -> None:
    fetch = ["mvn", "--quiet", "--batch-mode", "--file", str(HERE / "jars.xml"), "dependency:copy-dependencies"]
    subprocess.run([*fetch, "-DexcludeTransitive=true", f"-DoutputDirectory={directory().parent / 'lib'}"], check=True)
    path = f"{FLINK / 'bin'}{os.pathsep}{os.environ['PATH']}"  # where Flink looks for its workers' Python
    printed = json.loads(RECORDED.read_text())
    for example in examples:
        broker = kafka() if example in KAFKA else None
        topic = None if broker is None else broker.create_topic(KAFKA[example])
        lines_read = None if example in ENDLESS else SECONDS
        done = run(subprocess.Popen, ["python", "-W", "ignore"], example, broker, lines_read, PATH=path, PYTHONPATH="")
        if done.code not in (0, None):
            sys.exit(f"{example} on PyFlink: {done.errors}")
        printed[example] = [line for line in done.printed if not line.startswith(NOISE)]
        if broker is not None:
            printed[example] += written(broker, str(topic))
    RECORDED.write_text(json.dumps(printed, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="run them on PyFlink, and write what they print")
    parser.add_argument("--engine", default="local", choices=["local", "spark"])
    parser.add_argument("examples", nargs="*", help="all of them by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        started: list[Kafka] = []

        def kafka() -> Kafka:
            if not started:
                started.append(Kafka(Path(place, "broker")))
            return started[0]

        try:
            if arguments.record:
                record([e for e in arguments.examples or EXAMPLES if e not in REFUSED], kafka)
            found: Counter[Outcome] = Counter()
            for example in arguments.examples or EXAMPLES:
                outcome, why = on_forkpoint(example, arguments.engine, kafka)
                print(f"{example}: {outcome}{f' ({why})' if why else ''}", flush=True)
                found[outcome] += 1
        finally:
            for broker in started:
                broker.stop()
    print(f"{found['same']} run and print what Flink prints, {found['refused']} are refused, {found['fails']} fail")
    sys.exit(found["fails"])


if __name__ == "__main__":
    main()
