"""Sorting by event time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forkpoint.errors import GraphError
from forkpoint.functions import OutputTag
from forkpoint.types import Types
from forkpoint.types.variables import T

if TYPE_CHECKING:
    from forkpoint.api.streams import DataStream, KeyedStream


def sorted_by_event_time(stream: KeyedStream[T], late_data_tag: OutputTag[T] | None) -> DataStream[T]:
    from forkpoint.runtime.operators.event_time_sort import EventTimeSortSpec

    if late_data_tag is not None and not isinstance(late_data_tag, OutputTag):
        raise GraphError(f"sort_by_event_time() takes an OutputTag for late elements, not {late_data_tag!r}")
    type = stream.get_type()
    return stream._operator(EventTimeSortSpec(type or Types.ANY(), late_data_tag), "sort_by_event_time", type)


__all__ = ["sorted_by_event_time"]
