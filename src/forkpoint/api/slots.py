"""Slot sharing groups: accepted for PyFlink compatibility, without effect, as the engine places the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from forkpoint.errors import ConfigError

_MEBI = 1 << 20


@dataclass(frozen=True, order=True)
class MemorySize:
    """A number of bytes."""

    bytes_size: int

    def __post_init__(self) -> None:
        if self.bytes_size < 0:
            raise ConfigError(f"MemorySize: {self.bytes_size} bytes; it must be at least 0")

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """A size in MiB (1,048,576 bytes)."""
        return MemorySize(mebi_bytes * _MEBI)

    def get_bytes(self) -> int:
        """The number of bytes."""
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """Whole kibibytes."""
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        """Whole mebibytes."""
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        """Whole gibibytes."""
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        """Whole tebibytes."""
        return self.bytes_size >> 40

    def __repr__(self) -> str:
        return f"{self.bytes_size} bytes"


@dataclass(frozen=True)
class SlotSharingGroup:
    """A slot sharing group and its resources: ``SlotSharingGroup.builder("name").set_cpu_cores(1.0)…build()``."""

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Start a builder for the group."""
        return SlotSharingGroup.Builder(SlotSharingGroup(name))

    def get_name(self) -> str:
        """The group's name."""
        return self.name

    def get_cpu_cores(self) -> float | None:
        """CPU cores, None if not set."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Heap memory, None if not set."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Off-heap memory, None if not set."""
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Managed memory, None if not set."""
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """External resources by name."""
        return dict(self.external_resources)

    class Builder:
        """Builds a SlotSharingGroup."""

        def __init__(self, group: SlotSharingGroup) -> None:
            self._group = group

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Set CPU cores, above 0."""
            return self._set(cpu_cores=cpu_cores)

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set heap memory, above 0."""
            return self._set(task_heap_memory=task_heap_memory)

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set heap memory in MiB."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set off-heap memory."""
            return self._set(task_off_heap_memory=task_off_heap_memory)

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set off-heap memory in MiB."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set managed memory."""
            return self._set(managed_memory=managed_memory)

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set managed memory in MiB."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Set an external resource."""
            return self._set(external_resources={**self._group.external_resources, name: value})

        def build(self) -> SlotSharingGroup:
            """Build the group. With any resource, ConfigError unless CPU cores and heap memory are above 0."""
            group = self._group
            if group != SlotSharingGroup(group.name):
                heap = group.task_heap_memory
                if not group.cpu_cores or group.cpu_cores < 0 or heap is None or not heap.get_bytes():
                    raise ConfigError(
                        f"SlotSharingGroup {group.name!r}: with any resource, CPU cores and heap memory must be set, both above 0"
                    )
            return group

        def _set(self, **changes: Any) -> SlotSharingGroup.Builder:
            self._group = replace(self._group, **changes)
            return self
