"""Settings of an operator: uid, name, migrations, parallelism."""

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
    """Settings of a sink or of the operator that produced a stream. Each method returns the object, for chaining.

    GraphError on keyed or rebalanced streams, unions and side outputs, which no single operator produced.
    """

    def _producer(self, call: str) -> Transformation:
        raise NotImplementedError

    def uid(self, uid: str) -> Self:
        """Set the operator's identity in checkpoints and savepoints, by which later versions find its state.

        Unique within the job. Required on every source, sink and stateful operator if state is to outlive the run.
        """
        if not isinstance(uid, str) or not uid.strip():
            raise GraphError(f"a uid must be a non-empty string, not {uid!r}")
        _check_unicode("uid", uid)
        self._producer(f"uid({uid!r})").uid = uid
        return self

    def name(self, name: str) -> Self:
        """Set the operator's display name, shown in the status and in messages. Can change at any time."""
        if not isinstance(name, str) or not name:
            raise GraphError(f"a name must be a non-empty string, not {name!r}")
        _check_unicode("name", name)
        self._producer(f"name({name!r})").name = name
        return self

    def get_name(self) -> str:
        """The operator's name."""
        return self._producer("get_name()").name

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Not supported: raises GraphError. Use ``uid``."""
        raise GraphError(f"set_uid_hash({uid_hash!r}): savepoints identify operators by uid; use uid()")

    def force_non_parallel(self) -> Self:
        """Same as ``set_parallelism(1)``."""
        return self.set_parallelism(1)

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Accepted for PyFlink compatibility, without effect: elements leave with their epoch."""
        self._producer("set_buffer_timeout()")
        return self

    def migrate_state(self, from_version: int, migration: Callable[[Any], Any], *, state: str = STATE_NAME) -> Self:
        """Convert saved state of a version to the next version. Runs once, when a savepoint is restored.

        ``migration`` takes one key's content of the state and returns the new content: the value of value, reducing and
        aggregating state, the elements of a list, a dict for a map; None if empty. It may change the kind of state.
        ``state``: the descriptor's name; "state" for reduce, sum, min, max and map_with_state.

        State starts at version 1. With migrations from 1 and 2 the program's state has version 3, and saved state of
        version 1 goes through both. Keep at least the last migration, because it defines the version. GraphError for two
        migrations from the same version. Adding fields with defaults, dropping, renaming and widening need no migration.
        """
        operator = self._producer(f"migrate_state({from_version})")
        states = operator.migrations.states
        steps = _with_step(states.get(state, {}), from_version, migration, f"state {state!r}")
        operator.migrations = replace(operator.migrations, states={**states, state: steps})
        return self

    def migrate_key(self, from_version: int, migration: Callable[[Any], Any]) -> Self:
        """Convert the operator's saved keys of a version to the next version with ``migration(key)``.

        For a changed key type or meaning. All states and timers of the operator move to the new keys. A restore is refused
        if two saved keys with state map to the same new key. Versions are as in ``migrate_state``.
        """
        operator = self._producer(f"migrate_key({from_version})")
        steps = _with_step(operator.migrations.keys, from_version, migration, "the key")
        operator.migrations = replace(operator.migrations, keys=steps)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Accepted for PyFlink compatibility: all operators run with the job's parallelism; a different one gives a warning.

        ConfigError below 1.
        """
        self._producer("set_parallelism()").parallelism = check_parallelism(parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Accepted for PyFlink compatibility: the job's max parallelism applies. ConfigError unless 1 to 32768."""
        check_max_parallelism(max_parallelism)
        self._producer("set_max_parallelism()")
        return self

    def set_description(self, description: str) -> Self:
        """Accepted for PyFlink compatibility, without effect; ``name()`` sets the name shown."""
        self._producer("set_description()")
        return self

    def disable_chaining(self) -> Self:
        """Accepted for PyFlink compatibility, without effect: operators between two exchanges always run in one task."""
        self._producer("disable_chaining()")
        return self

    def start_new_chain(self) -> Self:
        """Accepted for PyFlink compatibility, without effect; see ``disable_chaining``."""
        self._producer("start_new_chain()")
        return self

    def slot_sharing_group(self, slot_sharing_group: Any) -> Self:
        """Accepted for PyFlink compatibility, without effect: Spark places the tasks."""
        self._producer("slot_sharing_group()")
        return self


def _with_step(
    steps: Mapping[int, Callable[[Any], Any]], version: int, migration: Callable[[Any], Any], of: str
) -> dict[int, Callable[[Any], Any]]:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise GraphError(f"a migration of {of} must start from version 1 or above, not {version!r}")
    if not callable(migration):
        raise GraphError(f"the migration of {of} from version {version} must be callable, not {migration!r}")
    if version in steps:
        raise GraphError(f"there are two migrations of {of} from version {version}; chain them as {version} and {version + 1}")
    return {**steps, version: migration}


def _check_unicode(what: str, text: str) -> None:
    if not encodable(text):
        raise GraphError(f"the {what} {text!r} contains a lone surrogate, which files cannot store; remove it")
