"""The SQL shell: statements are edited in the terminal, completed and highlighted, and executed when a semicolon ends them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.shortcuts import clear
from pygments.lexers.sql import SqlLexer

from forkpoint.cli import failures
from forkpoint.cli.settings import current
from forkpoint.cli.sql_results import show, start_entered
from forkpoint.errors import ConfigError, ForkpointError
from forkpoint.sql.binding.expressions import function_names
from forkpoint.sql.errors import Text, without_secrets
from forkpoint.sql.parser import is_complete
from forkpoint.storage.private import make_directories, open_new
from forkpoint.table.interactive import Interactive, Program

_PROMPT = "sql> "
_HELP = """Statements end with a semicolon, and may have several lines.
  SELECT …        runs the query and prints its result; Ctrl-C ends it
  INSERT INTO …   starts a job in the background: see `forkpoint list`
  CREATE, ALTER, DROP, SHOW, DESCRIBE, USE, SET, RESET, EXPLAIN
  help, clear, quit"""
_KEYWORDS = """
ADD ALTER AND AS BETWEEN BY CASE CAST CATALOG CATALOGS COLUMNS CREATE CROSS CURRENT DATABASE DATABASES DESCRIBE
DISTINCT DROP ELSE END ENFORCED EXCEPT EXECUTE EXISTS EXPLAIN FALSE FROM FULL FUNCTIONS GROUP HAVING IF IN INNER
INSERT INTERSECT INTERVAL INTO IS JOIN KEY LEFT LIKE LIMIT MODIFY NOT NULL ON OR ORDER PRIMARY RENAME RESET RIGHT
SELECT SET SHOW STATEMENT TABLE TABLES TEMPORARY THEN TO TRUE UNION USE VALUES VIEW VIEWS WATERMARK WHEN WHERE WITH
"""


_BEFORE_TABLES = {"FROM", "JOIN", "INTO", "TABLE", "VIEW", "DESCRIBE", "DESC", "LIKE"}


def run_shell(interactive: Interactive, options: dict[str, Any]) -> None:
    """Execute statements from the terminal until its user quits. ``options``: of the jobs of INSERTs."""
    prompt: PromptSession[str] = PromptSession(
        _PROMPT,
        multiline=True,
        history=_History(str(_history_file())),
        lexer=PygmentsLexer(SqlLexer),
        completer=_Names(interactive),
        complete_while_typing=False,
        key_bindings=_keys(),
        prompt_continuation=lambda width, number, wrapped: " " * width,
    )
    click.echo("Statements end with a semicolon; `help` lists them, `quit` ends the shell.")
    while True:
        try:
            text = prompt.prompt().strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        match text.rstrip(" ;").lower():
            case "quit" | "exit":
                return
            case "help":
                click.echo(_HELP)
            case "clear":
                clear()
            case "":
                pass
            case _:
                _execute(interactive, text, options)


def _execute(interactive: Interactive, text: str, options: dict[str, Any]) -> None:
    output = current().output
    try:
        for outcome in interactive.run(Text(text)):
            if isinstance(outcome, Program):
                start_entered(outcome, True, options)
            elif outcome is not None:
                show(outcome, output)
            else:
                click.echo("OK")
    except ForkpointError as error:
        output.failure(failures.describe(error))
    except click.exceptions.Exit:  # the job's failure has been shown
        pass
    except KeyboardInterrupt:
        output.remark("interrupted")


def _keys() -> KeyBindings:
    """Enter ends a statement, and otherwise begins a line."""
    keys = KeyBindings()
    ends = Condition(lambda: _ends(get_app().current_buffer.text))

    @keys.add("enter", filter=ends)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys


def _ends(text: str) -> bool:
    return text.strip(" \n;").lower() in ("", "quit", "exit", "help", "clear") or is_complete(text)


def _history_file() -> Path:
    """The file of earlier statements, which only this user can read."""
    path = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "forkpoint" / "sql-history"
    make_directories(str(path.parent))
    os.close(open_new(str(path), append=True, own=True))
    return path


class _History(FileHistory):
    def store_string(self, string: str) -> None:
        super().store_string(without_secrets(string))


class _Names(Completer):
    """Completes keywords, functions, tables and columns; after FROM and the like only tables."""

    def __init__(self, interactive: Interactive) -> None:
        self._session = interactive.session
        self._words = sorted({*_KEYWORDS.split(), *function_names()})

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        word = document.get_word_before_cursor()
        before = document.text_before_cursor.removesuffix(word).split()
        tables = self._session.catalog.written()
        if not (before and before[-1].upper() in _BEFORE_TABLES):
            lower = word.islower()
            keywords = [each.lower() if lower else each for each in self._words]
            tables = [*sorted({*tables, *self._columns()}), *keywords]
        found = (name for name in tables if name.lower().startswith(word.lower()))
        return (Completion(name, -len(word)) for name in found)

    def _columns(self) -> Iterator[str]:
        for name in self._session.catalog.written():
            with suppress(ConfigError):  # a view of a table that is gone
                schema = self._session.described(name, 0, Text(name)).schema
                yield from (field.name for field in schema)
