"""The spec of windows of a keyed stream, and the resulting states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from forkpoint.functions import (
    AggregateFunction,
    EndOfStreamTrigger,
    Evictor,
    GlobalWindows,
    MergingWindowAssigner,
    OutputTag,
    ProcessWindowFunction,
    ReduceFunction,
    SlidingEventTimeWindows,
    Trigger,
    TumblingEventTimeWindows,
    WindowAssigner,
    WindowFunction,
    declared_states,
)
from forkpoint.graph.job import Operator
from forkpoint.graph.specs import DeclaredState
from forkpoint.runtime.event_time.timers import timer_states
from forkpoint.runtime.expressions.reducers import how_reduced
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.rolling import Rolling
from forkpoint.runtime.windows.merging_windows import merging_windows
from forkpoint.types import TypeInformation

if TYPE_CHECKING:
    from forkpoint.runtime.windows.operator import WindowOperator

CONTENTS = "window-contents"
Contents = Literal["list", "reducing", "aggregating"]


@dataclass(frozen=True)
class WindowSpec(KeyedSpec):
    """Windows of a keyed stream.

    ``contents``: the state of a window: its elements (``list``; with an evictor, pairs of element and timestamp), or the result
    of ``combine``, the function of ``reduce`` or ``aggregate``. ``contents_type``: the type of an element, of the reduced
    element or of the accumulator. ``fn``: the window function, None to emit ``combine``'s result. ``tagged``: the elements are
    TaggedUnions of two streams.
    """

    kind = "window"

    assigner: WindowAssigner
    trigger: Trigger
    evictor: Evictor | None
    lateness_ms: int
    late_tag: OutputTag | None
    contents: Contents
    contents_type: TypeInformation
    combine: ReduceFunction | AggregateFunction | Rolling | Callable[[Any, Any], Any] | None
    fn: ProcessWindowFunction | WindowFunction | None
    tagged: bool = False

    @staticmethod
    def of_all(contents: Contents, contents_type: TypeInformation, combine: Any, fn: Any = None) -> WindowSpec:
        """One window of all elements of a key, which fires at the end of the input."""
        return WindowSpec(GlobalWindows(), EndOfStreamTrigger(), None, 0, None, contents, contents_type, combine, fn)

    @property
    def window_type(self) -> TypeInformation | None:
        return self.assigner.window_type()

    @property
    def only_reduces(self) -> bool:
        """Whether the results are those of a user's reducer."""
        return self.contents == "reducing" and self.fn is None and not isinstance(self.combine, Rolling)

    def how(self, operator: Operator) -> str:
        if not self.only_reduces:
            return ""
        if type(self.assigner) not in (TumblingEventTimeWindows, SlidingEventTimeWindows):
            return "in Python: not of tumbling or sliding windows of event time"
        return how_reduced(self.combine, operator.input_type)

    @property
    def fingerprint(self) -> str:
        """The meaning of saved contents. Contents with another fingerprint are not restored."""
        combine = self.combine
        contents = f"{combine.aggregate}({combine.field})" if isinstance(combine, Rolling) else self.contents
        contents = f"{contents} of two streams" if self.tagged else contents
        parts = [self.assigner.describe(), self.trigger.describe(), contents]
        return ", ".join(parts if self.evictor is None else [*parts, self.evictor.describe()])

    @property
    def declares_all_states(self) -> bool:
        return False  # triggers also have states

    def states(self) -> list[DeclaredState]:
        space = self.window_type
        found = [] if self.fn is None else [DeclaredState.of(d) for d in declared_states(self.fn).values()]
        found.append(DeclaredState(CONTENTS, self.contents, self.contents_type, space, fingerprint=self.fingerprint))
        if isinstance(self.assigner, MergingWindowAssigner) and space is not None:
            found.append(DeclaredState.of(merging_windows(space)))
        return [*found, *timer_states(space)]

    def instance(self, info: TaskInfo, state: ManagedState) -> WindowOperator:
        from forkpoint.runtime.windows.operator import WindowOperator  # loads pyarrow.compute, which only workers need

        return WindowOperator(info, state.keyed, self)
