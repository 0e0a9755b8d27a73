"""Operator state, and notifications about checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod

from forkpoint.functions.descriptors import ListStateDescriptor
from forkpoint.functions.state import ListState
from forkpoint.types.variables import T


class OperatorStateStore(ABC):
    """Operator state: lists whose elements are redistributed when the parallelism changes."""

    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """A list whose elements are split evenly over the subtasks when restored."""

    @abstractmethod
    def get_union_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """A list of which every subtask gets all elements when restored."""


class FunctionInitializationContext(ABC):
    """The context of ``initialize_state``."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether the run was restored from a checkpoint or savepoint that contains this operator."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """The operator's state store."""


class FunctionSnapshotContext(ABC):
    """The context of ``snapshot_state``."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The id of the checkpoint, which is that of the epoch."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """The start of the epoch, in int milliseconds since 1970-01-01 UTC."""


class CheckpointedFunction(ABC):
    """A function that keeps data in attributes and writes it to operator state at each checkpoint.

    Use it as a mixin: ``class Buffer(MapFunction, CheckpointedFunction)``.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext, /) -> None:
        """Called once per subtask, before ``open()``. Get the lists, and read them if the context is restored."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext, /) -> None:
        """Called at the end of each epoch. Update the lists."""


class CheckpointListener(ABC):  # noqa: B024  (both calls are optional)
    """A function that is notified of complete checkpoints: the last one of a job and that of a stop with a savepoint, too.

    A crash right after the commit loses the notification, but a later one stands for all earlier ones. A function that
    prepares something for a checkpoint keeps it in operator state (``CheckpointedFunction``), so that whichever copy of the
    function is notified has it; one that was notified may be notified again after a restart.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int, /) -> None:  # noqa: B027
        """The checkpoint and all earlier ones are committed."""

    def notify_checkpoint_aborted(self, checkpoint_id: int, /) -> None:  # noqa: B027
        """The checkpoint was aborted; its epoch will be repeated."""
