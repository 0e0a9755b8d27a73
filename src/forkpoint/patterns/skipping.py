"""What happens to other matches and partial matches after a match."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from forkpoint.errors import GraphError

SkipKind = Literal["no_skip", "skip_to_next", "skip_past_last_event", "skip_to_first", "skip_to_last"]


@dataclass(frozen=True)
class AfterMatchSkipStrategy:
    """After a match, which partial matches and later matches are dropped, by the event with which they begin.

    ``stage``: of ``skip_to_first`` and ``skip_to_last``. ``throws``: a match without that stage, or one that begins with its
    event, is an error.
    """

    kind: SkipKind = "no_skip"
    stage: str = ""
    throws: bool = False

    @staticmethod
    def no_skip() -> AfterMatchSkipStrategy:
        """Emit every match."""
        return AfterMatchSkipStrategy()

    @staticmethod
    def skip_to_next() -> AfterMatchSkipStrategy:
        """Drop those that begin with the match's first event."""
        return AfterMatchSkipStrategy("skip_to_next")

    @staticmethod
    def skip_past_last_event() -> AfterMatchSkipStrategy:
        """Drop those that begin before the match's end."""
        return AfterMatchSkipStrategy("skip_past_last_event")

    @staticmethod
    def skip_to_first(pattern_name: str) -> AfterMatchSkipStrategy:
        """Drop those that begin before the first event of a stage."""
        return AfterMatchSkipStrategy("skip_to_first", _stage(pattern_name))

    @staticmethod
    def skip_to_last(pattern_name: str) -> AfterMatchSkipStrategy:
        """Drop those that begin before the last event of a stage."""
        return AfterMatchSkipStrategy("skip_to_last", _stage(pattern_name))

    def throw_exception_on_miss(self) -> AfterMatchSkipStrategy:
        """Make it an error if a match lacks the stage to skip to, or begins with it: skipping there would not end."""
        if not self.stage:
            raise GraphError(f"throw_exception_on_miss(): {self.kind}() skips to no stage, so it cannot miss one")
        return replace(self, throws=True)


NO_SKIP = AfterMatchSkipStrategy()


def _stage(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise GraphError(f"an AfterMatchSkipStrategy skips to a stage by its name, not to {name!r}")
    return name
