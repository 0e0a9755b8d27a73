"""Throughput from Kafka through a count by key to Kafka, exactly once: forkpoint, Flink's Java, Spark's own way (at least once),
and PyFlink if it is installed.

    python benchmarks/kafka/throughput.py [--records N] [--only NAME …] [--parallelism N] [--interval-ms MS]

A topic is filled first, and each side reads it from the start. What counts is the committed output over time, from the moment at
which a tenth of it is there, or 20 s after its beginning: starting takes seconds. CPU time is that of a side's processes, without
the broker's. The machine's load changes, so compare the figures of one run: the last column is a side's throughput divided by
that of Flink's Java.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from broker import PARTITIONS, Broker, broker, fill
from sides import NAMES, available, command, cpu_seconds, running

_START = 0.1  # of the records, before which nothing is measured
_START_S = 20.0  # after the first output, when sides are measured that are slower
_END = 0.98
_SAMPLED_S = 0.1
_FEWEST_STEPS = 4


@dataclass(frozen=True)
class Sample:
    seconds: float
    records: int
    cpu_s: float
    broker_cpu_s: float


@dataclass(frozen=True)
class Figures:
    records_s: float
    cpu_us: float  # per record
    broker_cpu_us: float

    @staticmethod
    def of(samples: list[Sample]) -> Figures:
        """The slopes of lines through samples at regular times: output becomes visible in steps."""
        seconds = [sample.seconds for sample in samples]
        records_s, cpu, broker_cpu = (
            float(np.polyfit(seconds, [getattr(sample, name) for sample in samples], 1)[0])
            for name in ("records", "cpu_s", "broker_cpu_s")
        )
        return Figures(records_s, cpu / records_s * 1e6, broker_cpu / records_s * 1e6)


def measure(kafka: Broker, name: str, source: str, records: int, directory: Path, options: argparse.Namespace) -> Figures:
    to = kafka.create_topic(partitions=PARTITIONS)
    log = directory / f"{name}.log"
    place = directory / f"{name}-{time.monotonic_ns()}"
    place.mkdir()
    arguments = command(
        name, kafka.bootstrap_servers, source, to, place, options.parallelism, options.interval_ms, options.epoch_rows
    )
    samples: list[Sample] = []
    broker_process = psutil.Process(kafka.pid)
    with running(name, arguments, log) as process:
        began, found, first = time.monotonic(), 0, float("inf")
        while found < records * _END and time.monotonic() < began + options.seconds:
            if process.status() == psutil.STATUS_ZOMBIE:
                raise SystemExit(f"{name} ended: {log.read_text(errors='replace')[-3000:]}")
            found = kafka.committed_records(to) or found
            first = min(first, time.monotonic()) if found else first
            if found >= records * _START or time.monotonic() > first + _START_S:
                broker_cpu_s = sum(broker_process.cpu_times()[:2])
                samples.append(Sample(time.monotonic(), found, cpu_seconds(process), broker_cpu_s))
            time.sleep(_SAMPLED_S)
    kafka.delete_topic(to)
    if len({sample.records for sample in samples}) < _FEWEST_STEPS:
        raise SystemExit(f"{name} cannot be measured: {found} records were there; change --records or --seconds")
    return Figures.of(samples)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--records", type=int, default=4_000_000)
    arguments.add_argument("--only", nargs="*", choices=NAMES, default=available())
    arguments.add_argument("--parallelism", type=int, default=4)
    arguments.add_argument("--interval-ms", type=int, default=1000)
    arguments.add_argument("--epoch-rows", type=int, default=500_000, help="of forkpoint: the most that an epoch reads")
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--seconds", type=float, default=120, help="the most that a side may take")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as kafka:
        source = kafka.create_topic(partitions=PARTITIONS)
        fill(kafka, source, options.records)
        print(f"{'':12}{'records/s':>12}{'CPU us/record':>15}{'broker':>8}{'to Flink':>10}", flush=True)
        for _ in range(options.rounds):
            reference: float | None = None
            for name in options.only:
                figures = measure(kafka, name, source, options.records, Path(directory), options)
                reference = figures.records_s if name == "flink-java" else reference
                ratio = f"{figures.records_s / reference:10.2f}" if reference else ""
                print(
                    f"{name:12}{figures.records_s:12,.0f}{figures.cpu_us:15.2f}{figures.broker_cpu_us:8.2f}{ratio}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
