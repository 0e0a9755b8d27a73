"""Medians of the runs, side by side: as a table and as bench.json."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from scenarios import FORKPOINT_SCENARIOS, Comparison, Measurement, Unit

Results = Mapping[str, Sequence[Measurement]]  # scenario name → its runs


@dataclass(frozen=True)
class Figure:
    """One entry of bench.json. `ratio`: how many times better than the reference, whatever the unit."""

    name: str
    value: float
    unit: Unit
    reference: str | None
    reference_value: float | None
    ratio: float | None


def in_unit(run: Measurement, unit: Unit, scenario: str) -> float:
    if unit == "rows/s":
        return run.rows_per_second
    if unit == "keys/s":
        return FORKPOINT_SCENARIOS[scenario].keys / statistics.median(run.epoch_seconds)
    if unit == "%":
        return run.share * 100
    return statistics.median(run.epoch_seconds) * (1000 if unit == "ms/epoch" else 1)


def median(runs: Sequence[Measurement], unit: Unit, scenario: str) -> float:
    return statistics.median(in_unit(run, unit, scenario) for run in runs)


def figures(comparisons: Sequence[Comparison], results: Results) -> list[Figure]:
    """One figure for each comparison whose scenarios were all run."""
    found = []
    for row in comparisons:
        if row.forkpoint not in results or (row.reference and row.reference not in results):
            continue
        value = median(results[row.forkpoint], row.unit, row.forkpoint)
        reference_value = ratio = None
        if row.reference:
            reference_value = median(results[row.reference], row.unit, row.reference)
            ratio = value / reference_value if row.unit.endswith("/s") else reference_value / value
        found.append(Figure(row.name, value, row.unit, row.reference, reference_value, ratio))
    return found


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def runs_table(results: Results) -> Table:
    table = Table(title="Every scenario: median (lowest to highest of its runs)", title_justify="left")
    table.add_column("scenario")
    for heading in ("runs", "rows/s", "ms/epoch"):
        table.add_column(heading, justify="right")
    for name, runs in results.items():
        cells = []
        for unit in ("rows/s", "ms/epoch"):
            values = [in_unit(run, unit, name) for run in runs]
            cells.append(f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})")
        table.add_row(name, str(len(runs)), *cells)
    return table


def figures_table(rows: Sequence[Figure]) -> Table:
    table = Table(title="forkpoint and its reference, medians; times: above 1 is ahead", title_justify="left")
    table.add_column("work")
    for heading in ("forkpoint", "reference", "unit", "times"):
        table.add_column(heading, justify="right")
    for row in rows:
        reference = "" if row.reference_value is None else number(row.reference_value)
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(row.name, number(row.value), reference, row.unit, ratio)
    return table


def of_others(directory: Path) -> list[Figure]:
    """The figures that other benchmarks have left here: those against Flink in Java."""
    files = [directory / name for name in ("flink.json", "nexmark.json")]
    return [Figure(**figure) for file in files if file.exists() for figure in json.loads(file.read_text(encoding="utf-8"))]


def report(comparisons: Sequence[Comparison], results: Results, output: Path, console: Console) -> None:
    """Print both tables; write `output` if forkpoint's side was run."""
    console.print(runs_table(results))
    rows = figures(comparisons, results)
    if rows:
        console.print(figures_table(rows))
        output.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
        console.print(f"written: {output}")
    if others := of_others(output.parent):
        console.print(figures_table(others))
