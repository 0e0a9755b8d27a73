"""The classes of user functions that SQL calls, by PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.metrics import MetricGroup


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
