"""Runs the benchmarks, each scenario in its own process, and reports the medians.

    python benchmarks/run.py                       everything, three runs of each
    python benchmarks/run.py --only aggregate      the comparisons whose names contain this
    python benchmarks/run.py --side spark          one side alone; Spark's alone writes no bench.json

Each round runs all scenarios in turn, so that a slow phase of the machine affects both sides.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from report import report
from rich.console import Console
from scenarios import COMPARISONS, FORKPOINT_SCENARIOS, Comparison, Measurement

HERE = Path(__file__).resolve().parent
SIDES = {"forkpoint": HERE / "forkpoint_side.py", "spark": HERE / "spark_reference.py"}
TIME_LIMIT_S = 1800


class ScenarioError(Exception):
    """A scenario's process failed; the message is the end of its output."""


def side_of(scenario: str) -> str:
    return "forkpoint" if scenario in FORKPOINT_SCENARIOS else "spark"


def scenarios_of(comparisons: Sequence[Comparison], side: str) -> list[str]:
    """The scenarios that the comparisons need, each once, in order."""
    named = [name for row in comparisons for name in (row.forkpoint, row.reference) if name]
    return [name for name in dict.fromkeys(named) if side in ("both", side_of(name))]


def measure(scenario: str) -> Measurement:
    """One run in its own process.

    Raises ScenarioError if the process fails, takes longer than TIME_LIMIT_S or prints no measurement.
    """
    command = [sys.executable, str(SIDES[side_of(scenario)]), scenario]
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise ScenarioError(f"{scenario}: no result after {TIME_LIMIT_S} s") from None
    if done.returncode != 0:
        raise ScenarioError(f"{scenario}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    try:
        return Measurement.from_json(done.stdout.splitlines()[-1])
    except (IndexError, ValueError, TypeError) as problem:
        raise ScenarioError(f"{scenario}: no measurement in its last line ({problem}):\n{done.stdout[-500:]}") from None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each scenario (default: 3)")
    parser.add_argument("--only", default="", metavar="REGEX", help="only comparisons in whose names it is found")
    parser.add_argument("--side", choices=["both", *SIDES], default="both")
    parser.add_argument("--output", type=Path, default=HERE.parent / "bench.json")
    arguments = parser.parse_args()

    chosen = [row for row in COMPARISONS if re.search(arguments.only, f"{row.name} {row.forkpoint} {row.reference}")]
    scenarios = scenarios_of(chosen, arguments.side)
    if not scenarios or arguments.runs < 1:
        parser.error(f"nothing to run: --only {arguments.only!r} fits no comparison, or --runs is below 1")
    results: dict[str, list[Measurement]] = {name: [] for name in scenarios}
    console = Console()
    for turn in range(1, arguments.runs + 1):
        for scenario in scenarios:
            started = time.monotonic()
            try:
                result = measure(scenario)
            except ScenarioError as problem:
                console.print(f"benchmark failed: {problem}", style="red", markup=False)
                return 1
            results[scenario].append(result)
            took = time.monotonic() - started
            figure = f"{result.rows_per_second:,.0f} rows/s"
            console.print(f"run {turn}/{arguments.runs}  {scenario}: {figure} ({took:.0f} s in all)")
    report(chosen, results, arguments.output, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
