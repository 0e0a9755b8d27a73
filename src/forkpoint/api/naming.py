"""Methods that say something about the operator just added: names, uids, parallelism."""

from __future__ import annotations

from typing import TypeVar

from forkpoint.errors import GraphError
from forkpoint.graph.options import check_max_parallelism, check_parallelism
from forkpoint.graph.transformations import Transformation

Self = TypeVar("Self", bound="NamingMixin")


class NamingMixin:
    """Settings of the operator whose output a stream is, or of a sink. Each returns the same stream, for chaining.

    On a keyed stream, a union, a side output or a rebalanced stream there is no such operator: GraphError.
    """

    def _source_of(self, asked: str) -> Transformation:
        raise AssertionError("streams and sinks each have their own")

    def uid(self: Self, uid: str) -> Self:
        """The operator's identity in checkpoints and savepoints: its state is found again by it in later versions.

        Unique within the job. Needed on every source, sink and stateful operator whose state is to outlive the run.
        """
        if not isinstance(uid, str) or not uid.strip():
            raise GraphError(f"a uid must be a non-empty string, not {uid!r}")
        self._source_of(f"uid({uid!r})").uid = uid
        return self

    def name(self: Self, name: str) -> Self:
        """The operator's name for people: in the web page, metrics and messages. Free to change."""
        if not isinstance(name, str) or not name:
            raise GraphError(f"a name must be a non-empty string, not {name!r}")
        self._source_of(f"name({name!r})").name = name
        return self

    def set_parallelism(self: Self, parallelism: int) -> Self:
        """How many subtasks the operator has; at least 1, else ConfigError."""
        self._source_of("set_parallelism()").parallelism = check_parallelism(parallelism)
        return self

    def set_max_parallelism(self: Self, max_parallelism: int) -> Self:
        """The most subtasks the operator may ever have: 1 to 32768, else ConfigError."""
        self._source_of("set_max_parallelism()").max_parallelism = check_max_parallelism(max_parallelism)
        return self

    def set_description(self: Self, description: str) -> Self:
        """Accepted for PyFlink programs without effect; ``name()`` is what is shown."""
        self._source_of("set_description()")
        return self

    def disable_chaining(self: Self) -> Self:
        """Accepted for PyFlink programs without effect: operators between two exchanges always run in one task."""
        self._source_of("disable_chaining()")
        return self

    def start_new_chain(self: Self) -> Self:
        """Accepted for PyFlink programs without effect; see ``disable_chaining``."""
        self._source_of("start_new_chain()")
        return self

    def slot_sharing_group(self: Self, slot_sharing_group: str) -> Self:
        """Accepted for PyFlink programs without effect: Spark places the tasks."""
        self._source_of("slot_sharing_group()")
        return self
