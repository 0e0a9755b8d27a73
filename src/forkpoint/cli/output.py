"""Output as text or JSON. Results go to stdout; errors and remarks to stderr.

Everything goes through `text.visible`, because names, notes and values may come from records and other people's programs.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from forkpoint.cli.failures import Failure
from forkpoint.cli.text import visible, visible_cell, visible_json
from forkpoint.operations.observer import Observer, OnStep

if TYPE_CHECKING:
    from forkpoint.savepoint.format.tasks import Progress as OnProgress

_LINE_SECONDS = 5.0
_WIDE = 10_000  # without a terminal, lines must not be wrapped or cut

Cell = str | Text


class Output(Observer, ABC):
    """Prints a command's result and the progress of its operation."""

    @abstractmethod
    def result(self, data: dict[str, Any], show: Callable[[TextOutput], None]) -> None:
        """Print a result: ``data`` as JSON, or ``show`` as text."""

    @abstractmethod
    def event(self, name: str, data: dict[str, Any], text: str) -> None:
        """Print an event of a foreground program, which may itself print to stdout."""

    @abstractmethod
    def failure(self, failure: Failure) -> None:
        """Print an error to stderr."""

    def remark(self, text: str) -> None:
        """Print a warning or hint to stderr."""
        _write_line(visible(text), sys.stderr)


class TextOutput(Output):
    def __init__(self) -> None:
        self._console = _console(sys.stdout)

    def result(self, data: dict[str, Any], show: Callable[[TextOutput], None]) -> None:
        show(self)

    def event(self, name: str, data: dict[str, Any], text: str) -> None:
        _write_line(visible(text), sys.stderr)

    def failure(self, failure: Failure) -> None:
        console = _console(sys.stderr)
        if failure.details is not None:
            console.print(visible(failure.details), soft_wrap=True)
        if failure.message:
            console.print(Text("Error: ", "bold red") + Text(visible(failure.message)), soft_wrap=True)

    @contextmanager
    def progress(self, what: str, unit: str = "parts") -> Iterator[OnProgress]:
        console = _console(sys.stderr)
        if not console.is_terminal:
            steps = _Steps(self.remark, quiet_seconds=2.0)
            yield lambda done, total: steps(f"{what}: {done} of {total} {unit}")
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # most commands show no progress

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(visible_cell(what), total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def steps(self, what: str) -> Iterator[OnStep]:
        console = _console(sys.stderr)
        if not console.is_terminal:
            yield _Steps(self.remark)
            return
        with console.status(visible_cell(what)) as status:
            yield lambda step: status.update(visible_cell(f"{what}: {step}"))

    # -- for `show` functions

    def line(self, text: Cell = "") -> None:
        self._console.print(_visible_cell(text, visible), soft_wrap=True)

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[Cell]], right: Sequence[str] = ()) -> None:
        """``right``: titles of columns whose values are numbers."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in titles:
            justify: JustifyMethod = "right" if title in right else "left"
            table.add_column(visible_cell(title), justify=justify, no_wrap=not self._console.is_terminal)
        for row in rows:
            table.add_row(*(_visible_cell(cell, visible_cell) for cell in row))
        self._console.print(table)


class _Steps:
    """Prints steps as lines if there is no terminal. Prints a step once, and steps that differ only in numbers at most every few
    seconds. Prints nothing within the first ``quiet_seconds``."""

    def __init__(self, say: Callable[[str], None], quiet_seconds: float = 0.0) -> None:
        self._print = say
        self._from = time.monotonic() + quiet_seconds
        self._said: set[str] = set()
        self._at = -_LINE_SECONDS

    def __call__(self, step: str) -> None:
        kind, now = re.sub(r"\d+", "#", step), time.monotonic()
        if now < self._from:
            return
        if kind in self._said and (step in self._said or now - self._at < _LINE_SECONDS):
            return
        self._said |= {kind, step}
        self._at = now
        self._print(step)


class JsonOutput(Output):
    def result(self, data: dict[str, Any], show: Callable[[TextOutput], None]) -> None:
        print(_json(data, indent=2))

    def event(self, name: str, data: dict[str, Any], text: str) -> None:
        self.row({"event": name, **data})

    def row(self, data: dict[str, Any]) -> None:
        """Print one of many results, in a line."""
        _write_line(_json(data), sys.stdout)

    def failure(self, failure: Failure) -> None:
        error = {"code": failure.code, "message": failure.message, "exit_code": failure.exit_code}
        if failure.details is not None:
            error["details"] = failure.details
        _write_line(_json({"error": error}), sys.stderr)


def _write_line(text: str, stream: TextIO) -> None:
    """Write a line in one call, because other threads log and print. ``print`` writes the line end separately."""
    stream.write(f"{text}\n")
    stream.flush()


def _visible_cell(cell: Cell, visible: Callable[[str], str]) -> Cell:
    plain = str(cell)
    shown = visible(plain)
    if shown == plain:
        return cell
    return Text(shown, cell.style) if isinstance(cell, Text) else shown


def _json(data: Any, indent: int | None = None) -> str:
    """Strict JSON: non-finite numbers become the strings "NaN", "Infinity" and "-Infinity"."""
    try:
        text = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_replace_non_finite(data), indent=indent, ensure_ascii=False, allow_nan=False)
    return visible_json(text)


def _replace_non_finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _replace_non_finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_replace_non_finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else "Infinity" if data > 0 else "-Infinity"
    return data


def _console(file: Any) -> Console:
    terminal = file.isatty()
    return Console(file=file, highlight=False, markup=False, emoji=False, width=None if terminal else _WIDE)
