"""State that belongs to a subtask rather than to a key, and word of finished checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod

from forkpoint.functions.descriptors import ListStateDescriptor
from forkpoint.functions.state import ListState
from forkpoint.types.variables import T


class OperatorStateStore(ABC):
    """Lists of elements that are handed out to the subtasks anew whenever the parallelism changes."""

    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """A list whose elements are dealt out evenly over the subtasks."""

    @abstractmethod
    def get_union_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """A list of which, after a restore, every subtask gets all elements of all subtasks."""


class FunctionInitializationContext(ABC):
    """Given to ``initialize_state``."""

    @abstractmethod
    def is_restored(self) -> bool:
        """True where the run started from a checkpoint or savepoint that knows this operator."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Where the operator's lists are."""


class FunctionSnapshotContext(ABC):
    """Given to ``snapshot_state``."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The id of the checkpoint, which is the epoch's."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """When the epoch began, in int milliseconds since 1970-01-01 UTC."""


class CheckpointedFunction(ABC):
    """A function that keeps its own attributes and writes them to operator state when a checkpoint is taken.

    Inherit from it next to a function class: ``class Buffer(MapFunction, CheckpointedFunction)``.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext, /) -> None:
        """Called once a subtask, before ``open()``: get the lists, and read them where the context is restored."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext, /) -> None:
        """Called at the end of each epoch: bring the lists up to date."""


class CheckpointListener(ABC):  # noqa: B024  (both calls are optional)
    """A function that wants to know when a checkpoint is complete.

    Calls may be missed: a crash between commit and call loses it. A later one stands for all before it.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int, /) -> None:  # noqa: B027
        """The checkpoint (and every one before it) is committed."""

    def notify_checkpoint_aborted(self, checkpoint_id: int, /) -> None:  # noqa: B027
        """The checkpoint was given up; its epoch is done again."""
