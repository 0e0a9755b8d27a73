"""Methods that say something about the operator just added: names, uids, parallelism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

from forkpoint.errors import GraphError
from forkpoint.graph.options import check_max_parallelism, check_parallelism
from forkpoint.graph.transformations import Transformation
from forkpoint.runtime.operators.keyed_functions import STATE_NAME
from forkpoint.types.acceptance import encodable


class NamingMixin:
    """Settings of the operator whose output a stream is, or of a sink. Each returns the same stream, for chaining.

    On a keyed stream, a union, a side output or a rebalanced stream there is no such operator: GraphError.
    """

    def _source_of(self, asked: str) -> Transformation:
        raise AssertionError("streams and sinks each have their own")

    def uid(self, uid: str) -> Self:
        """The operator's identity in checkpoints and savepoints: its state is found again by it in later versions.

        Unique within the job. Needed on every source, sink and stateful operator whose state is to outlive the run.
        """
        if not isinstance(uid, str) or not uid.strip():
            raise GraphError(f"a uid must be a non-empty string, not {uid!r}")
        _check_unicode("uid", uid)
        self._source_of(f"uid({uid!r})").uid = uid
        return self

    def name(self, name: str) -> Self:
        """The operator's name for people: in the web page, metrics and messages. Free to change."""
        if not isinstance(name, str) or not name:
            raise GraphError(f"a name must be a non-empty string, not {name!r}")
        _check_unicode("name", name)
        self._source_of(f"name({name!r})").name = name
        return self

    def get_name(self) -> str:
        """The operator's name."""
        return self._source_of("get_name()").name

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Not there: GraphError. Savepoints know operators by their uid."""
        raise GraphError(f"set_uid_hash({uid_hash!r}): savepoints know operators by their uid; use uid()")

    def force_non_parallel(self) -> Self:
        """``set_parallelism(1)``."""
        return self.set_parallelism(1)

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Accepted for PyFlink programs without effect: elements leave with their epoch."""
        self._source_of("set_buffer_timeout()")
        return self

    def migrate_state(self, from_version: int, migration: Callable[[Any], Any], *, state: str = STATE_NAME) -> Self:
        """Say how saved state of an earlier version becomes that of the next. Run once, when a savepoint is restored.

        ``migration`` takes all that one key has in the state, and returns what it is to have: the value of value,
        reducing or aggregating state, a list's elements, a map as a dict; None for nothing. So it may change the kind of
        state as well. ``state``: the descriptor's name; "state" is that of reduce, sum, min, max and map_with_state.

        State begins as version 1. With migrations from 1 and 2 the program's state is of version 3, and saved state of
        version 1 goes through both. Keep at least the last one, as it tells the version. GraphError if there are two from
        one version. What only adds fields with defaults, drops, renames or widens needs no migration.
        """
        of = self._source_of(f"migrate_state({from_version})")
        functions = _with_step(of.migrations.states.get(state, {}), from_version, migration, f"state {state!r}")
        of.migrations = replace(of.migrations, states={**of.migrations.states, state: functions})
        return self

    def migrate_key(self, from_version: int, migration: Callable[[Any], Any]) -> Self:
        """Say how the operator's saved keys of an earlier version become those of the next: ``migration(key)``.

        For a key_by of another type or meaning. All states and timers of the operator go to their new keys, wherever
        those belong. A restore is refused if two saved keys with state become one. Versions as in ``migrate_state``.
        """
        of = self._source_of(f"migrate_key({from_version})")
        of.migrations = replace(of.migrations, keys=_with_step(of.migrations.keys, from_version, migration, "the key"))
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Accepted for PyFlink programs: all operators run with the job's parallelism, and a warning says so where this is
        another. At least 1, else ConfigError."""
        self._source_of("set_parallelism()").parallelism = check_parallelism(parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Accepted for PyFlink programs: the job's max parallelism holds for all. 1 to 32768, else ConfigError."""
        self._source_of("set_max_parallelism()").max_parallelism = check_max_parallelism(max_parallelism)
        return self

    def set_description(self, description: str) -> Self:
        """Accepted for PyFlink programs without effect; ``name()`` is what is shown."""
        self._source_of("set_description()")
        return self

    def disable_chaining(self) -> Self:
        """Accepted for PyFlink programs without effect: operators between two exchanges always run in one task."""
        self._source_of("disable_chaining()")
        return self

    def start_new_chain(self) -> Self:
        """Accepted for PyFlink programs without effect; see ``disable_chaining``."""
        self._source_of("start_new_chain()")
        return self

    def slot_sharing_group(self, slot_sharing_group: Any) -> Self:
        """Accepted for PyFlink programs without effect: Spark places the tasks."""
        self._source_of("slot_sharing_group()")
        return self


def _with_step(
    steps: Mapping[int, Callable[[Any], Any]], version: int, migration: Callable[[Any], Any], of: str
) -> dict[int, Callable[[Any], Any]]:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise GraphError(f"a migration of {of} starts from a version of 1 or more, not {version!r}")
    if not callable(migration):
        raise GraphError(f"the migration of {of} from version {version} has to be callable, not {migration!r}")
    if version in steps:
        raise GraphError(
            f"there are two migrations of {of} from version {version}; chain them as {version} and {version + 1}"
        )
    return {**steps, version: migration}


def _check_unicode(what: str, text: str) -> None:
    if not encodable(text):
        raise GraphError(f"the {what} {text!r} holds half of a character (a surrogate), which no file can; remove it")
