"""The interface of operators: one instance per operator and subtask, with batches as input and output."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import forkpoint.errors
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import EpochInterrupted, ForkpointError, UserFunctionError
from forkpoint.functions import MetricGroup, OutputTag, RuntimeContext
from forkpoint.graph.job import Operator
from forkpoint.runtime.event_time.watermarks import EventTime, Window
from forkpoint.runtime.exchange.batch import Batch, Longs
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend

_ENGINE = str(Path(forkpoint.errors.__file__).parent) + os.sep


@dataclass(frozen=True)
class Epoch:
    """The epoch as an operator sees it.

    ``on_watermark_read`` is called when a function reads a watermark that may be behind. ``fires_all``: all processing-time
    timers fire at the end of the epoch, due or not. ``one_by_one``: the operator takes its outputs one by one, because some were
    mutable. ``trusted``: the operator had outputs in an earlier epoch of this run, all immutable. ``first``: the event time of
    the first of two inputs, if it has watermarks. ``restored``: the first epoch on restored state.
    ``place``: the split of the elements, for operators that run where a source is read; they run several times in an epoch.
    """

    id: int
    window: Window
    processing_time_ms: int
    _: KW_ONLY
    on_watermark_read: Callable[[], None] | None = None
    fires_all: bool = False
    one_by_one: bool = False
    trusted: bool = False
    first: EventTime | None = None
    restored: bool = False
    place: str = ""


@dataclass
class Outputs:
    """An operator's outputs in one epoch. ``mutable``: some were mutable or needed conversion, so all were taken one by one."""

    main: Batch
    sides: dict[str, Batch] = field(default_factory=dict)
    late_records_dropped: int = 0
    mutable: bool = False


class OperatorInstance(Protocol):
    """One operator on one subtask. ``run`` is called once per epoch, with a batch for each input ordinal."""

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs: ...

    def close(self) -> None: ...


@runtime_checkable
class StatefulInstance(OperatorInstance, Protocol):
    """An operator with managed state. ``changes`` returns the changes of the last ``run``."""

    def changes(self) -> ChangeLog: ...

    def states(self) -> list[StateInfo]: ...

    def next_processing_timer_ms(self) -> int | None: ...


class StatefulOperator:
    """Defaults of operators with state: no processing-time timers, and nothing to close."""

    def next_processing_timer_ms(self) -> int | None:
        return None

    def close(self) -> None:
        return None


class KeyedOperator(StatefulOperator):
    """An operator with keyed state."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend) -> None:
        assert info.operator.key is not None
        self._uid = info.operator.uid
        self._type = info.operator.output_type
        self._key = info.operator.key
        self._backend = backend

    def changes(self) -> ChangeLog:
        return self._backend.collect()

    def states(self) -> list[StateInfo]:
        return self._backend.records


@dataclass(frozen=True)
class TaskInfo:
    """The running operator and subtask, which a function sees as its runtime context."""

    operator: Operator
    subtask: int
    parallelism: int
    max_parallelism: int
    parameters: dict[str, str]
    known_states: Mapping[int, StateInfo] = field(default_factory=dict)
    metrics: MetricGroup = field(default_factory=MetricGroup)


class Context(RuntimeContext):
    """The runtime context of a function. ``backend``: None without keyed state."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend | None) -> None:
        self._info = info
        self._backend = backend

    def _state(self, descriptor: Any) -> Any:
        if self._backend is None:
            raise UserFunctionError(
                f"operator {self._info.operator.uid!r}: state {descriptor.name!r} is keyed state, but the stream has no keys; "
                "call key_by() first, or use CheckpointedFunction for operator state"
            )
        return self._backend.get(descriptor)

    def get_state(self, state_descriptor: Any) -> Any:
        return self._state(state_descriptor)

    get_list_state = get_map_state = get_reducing_state = get_aggregating_state = get_state

    def get_task_name(self) -> str:
        return self._info.operator.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._info.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._info.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._info.subtask

    def get_attempt_number(self) -> int:
        return 0

    def get_metrics_group(self) -> MetricGroup:
        return self._info.metrics

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._info.parameters.get(key, default_value)


def with_late(main: Batch, batch: Batch, rows: Longs, tag: OutputTag | None) -> Outputs:
    """``main``, with the late elements at ``rows`` as the tag's side output; without a tag they are dropped."""
    if tag is None:
        return Outputs(main, late_records_dropped=len(rows))
    if not len(rows):
        return Outputs(main)
    late = batch.take(rows)
    if late.table is not None and (tag.type_info is None or tag.type_info.arrow_schema != late.table.schema):
        late = late.with_values(late.values, None)
    return Outputs(main, {tag.tag_id: late})


NOT_USERS = (KeyboardInterrupt, EpochInterrupted)
"""Exceptions that pass through user code but come from elsewhere. Every other exception becomes a UserFunctionError: SystemExit
must not end the process, which other tasks share, GeneratorExit must not end a generator of the runtime, and CancelledError must
not cancel its tasks."""


def check_all_done(done: int, batch: Batch) -> None:
    """Raise the StopIteration of a user function that ended ``map()`` before the batch's last element."""
    if done < batch.size:
        raise StopIteration


def user_error(uid: str, error: BaseException, value: Any, key: Any = None, *, keyed: bool = False) -> ForkpointError:
    """The error of a user function, with operator, key, element and the traceback of user code."""
    where = f"key {shorten(key)}, " if keyed else ""
    return user_failure(uid, error, f"{where}element {shorten(value)}")


def user_failure(uid: str, error: BaseException, arguments: str, what: str = "the function") -> ForkpointError:
    """The error of a user function that was called with ``arguments``; a ForkpointError is returned unchanged."""
    if isinstance(error, ForkpointError):
        return error
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_ENGINE)]
    trace = "".join(traceback.format_list(frames)) + "".join(traceback.format_exception_only(error))
    return UserFunctionError(
        f"operator {uid!r}: {what} raised {type(error).__name__}: {_text_of(error)} ({arguments})\n{trace.rstrip()}"
    )


@contextmanager
def user_code(uid: str, element: Callable[[], Any]) -> Iterator[None]:
    """Convert an exception of user code to a `user_error` about the element that ``element`` returns at that time."""
    try:
        yield
    except (ForkpointError, *NOT_USERS):
        raise
    except BaseException as error:
        raise user_error(uid, error, element()) from error


def results_for(batch: Batch, uid: str, results: Iterable[Any]) -> list[Any]:
    """The results of a user function, one for each of the batch's elements."""
    found: list[Any] = []
    with user_code(uid, lambda: batch.values[len(found)]):
        found.extend(results)
        check_all_done(len(found), batch)
    return found


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as unprintable:  # user code may raise anything
        return f"<its __str__ raises {type(unprintable).__name__}>"


def shorten(value: Any, length: int = 200) -> str:
    try:
        text = repr(value)
    except Exception as unprintable:  # user code may raise anything
        text = f"<{type(value).__name__}, whose __repr__ raises {type(unprintable).__name__}>"
    return text if len(text) <= length else text[: length - 3] + "..."
