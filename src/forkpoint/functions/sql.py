"""The classes of user functions that SQL calls, by PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.metrics import MetricGroup
from forkpoint.types import Row


class FunctionContext:
    """The context of ``open()`` of a function that SQL calls."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    def get_metric_group(self) -> MetricGroup:
        """The metrics of the operator that calls the function, on this subtask."""
        return self._context.get_metrics_group()

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A job parameter set with ``env.get_config().set_global_job_parameters``, or the default."""
        return self._context.get_job_parameter(key, default_value)


class UserDefinedFunction(ABC):  # noqa: B024  (all methods are optional)
    """Base of the functions that SQL calls. Each subtask gets a copy of the instance, so its attributes must be picklable."""

    def open(self, function_context: FunctionContext, /) -> None:  # noqa: B027
        """Called once per subtask, before the first call."""

    def close(self) -> None:  # noqa: B027
        """Called once per subtask at the end, also after a failure."""

    def is_deterministic(self) -> bool:
        """Whether equal arguments always have equal results."""
        return True


class ScalarFunction(UserDefinedFunction):
    """Computes a value from the values of a row; ``udf()`` gives it its types."""

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """Return the result. NULL is None."""


class TableFunction(UserDefinedFunction):
    """Computes rows from the values of a row; ``udtf()`` gives it its types."""

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """Yield rows, or return a list of them: tuples, Rows, or values of a single column. A row by itself is one row, None
        none."""


class SqlAggregateFunction(UserDefinedFunction):
    """Computes a value from the rows of a group; ``udaf()`` gives it its types. It is PyFlink's AggregateFunction of tables.

    An accumulator is changed in place, or what a method returns takes its place.
    """

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return the accumulator of a group without rows."""

    @abstractmethod
    def accumulate(self, accumulator: Any, *args: Any) -> Any:
        """Add a row's values to an accumulator."""

    def retract(self, accumulator: Any, *args: Any) -> Any:
        """Take a row's values back; needed for rows that also change."""
        raise NotImplementedError

    def merge(self, accumulator: Any, accumulators: Any) -> Any:
        """Add other accumulators to an accumulator; needed for session windows."""
        raise NotImplementedError

    @abstractmethod
    def get_value(self, accumulator: Any) -> Any:
        """Return the result."""

    def get_result_type(self) -> Any:
        """The type of the result, unless ``udaf()`` gives it."""
        return None

    def get_accumulator_type(self) -> Any:
        """The type of the accumulator, unless ``udaf()`` gives it."""
        return None


class TableAggregateFunction(SqlAggregateFunction):
    """Computes rows from the rows of a group, for ``flat_aggregate``; ``udtaf()`` gives it its types."""

    @abstractmethod
    def emit_value(self, accumulator: Any) -> Any:
        """Yield rows: tuples, Rows, or values of a single column."""

    def get_value(self, accumulator: Any) -> Any:
        """The rows of ``emit_value``."""
        return [tuple(row) if isinstance(row, Row | tuple | list) else (row,) for row in self.emit_value(accumulator)]
