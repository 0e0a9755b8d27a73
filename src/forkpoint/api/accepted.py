"""PyFlink settings without a counterpart here, such as slot sharing groups. They have no effect and can be read back."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NoReturn, Self, cast

from forkpoint.api.configuration import Configuration, parse_boolean
from forkpoint.api.requirements import add_requirements
from forkpoint.contract.source import Source
from forkpoint.errors import ConfigError, GraphError
from forkpoint.functions import WatermarkStrategy, to_ms
from forkpoint.graph.options import ARCHIVES, CheckpointingMode, JobOptions
from forkpoint.wording import parse_duration_ms

_CHAINING = "pipeline.operator-chaining"
_CHAINING_WITH_MAX = "pipeline.operator-chaining.chain-operators-with-different-max-parallelism"
_BUFFER_TIMEOUT = "execution.buffer-timeout"
_CHANGELOG = "state.changelog.enabled"
_JARS, _CLASSPATHS, _FILES = "pipeline.jars", "pipeline.classpaths", "python.files"


class AcceptedMixin:
    """The part of StreamExecutionEnvironment that exists for PyFlink compatibility."""

    options: JobOptions
    from_source: Any

    def set_buffer_timeout(self, timeout_millis: timedelta | int) -> Self:
        """Accepted for PyFlink compatibility, without effect: elements are emitted with their epoch."""
        return self._accept(_BUFFER_TIMEOUT, to_ms(timeout_millis, "the buffer timeout", minimum_ms=-1))

    def get_buffer_timeout(self) -> int:
        """The value set, in ms; 100 by default."""
        return parse_duration_ms(_BUFFER_TIMEOUT, self._accepted(_BUFFER_TIMEOUT, 100))

    def disable_operator_chaining(self) -> Self:
        """Accepted for PyFlink compatibility, without effect: operators between two exchanges always run in one task."""
        return self._accept(_CHAINING, False)

    def is_chaining_enabled(self) -> bool:
        """The value set, True by default."""
        return self._flag(_CHAINING, True)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """The value set, True by default."""
        return self._flag(_CHAINING_WITH_MAX, True)

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Accepted for PyFlink compatibility, without effect: every epoch commits a changelog."""
        return self._accept(_CHANGELOG, enabled)

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """The value set, None by default."""
        return cast(bool | None, self._accepted(_CHANGELOG, None))

    def register_slot_sharing_group(self, slot_sharing_group: Any) -> Self:
        """Accepted for PyFlink compatibility, without effect: the engine places the tasks."""
        return self

    def set_default_local_parallelism(self, parallelism: int) -> Self:
        """Accepted for PyFlink compatibility, without effect; use ``set_parallelism``."""
        return self._accept("local.parallelism", parallelism)

    def get_default_local_parallelism(self) -> int:
        """The value set, the number of CPUs by default."""
        return int(self._accepted("local.parallelism", os.cpu_count() or 1))

    def get_checkpoint_interval(self) -> int:
        """The interval in ms, -1 if checkpointing is off."""
        interval_ms = self.options.checkpoint.interval_ms
        return -1 if interval_ms is None else interval_ms

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The mode."""
        return self.options.checkpoint.mode

    get_checkpointing_consistency_mode = get_checkpointing_mode

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """The value set, False by default."""
        return self._flag("execution.checkpointing.unaligned.enabled", False)

    def is_force_unaligned_checkpoints(self) -> bool:
        """The value set, False by default."""
        return self._flag("execution.checkpointing.unaligned.forced", False)

    # -- dependencies

    def add_jars(self, *jars_path: str) -> Self:
        """Accepted for PyFlink compatibility, without effect: no Flink JVM runs. Pass Spark's jars to its session."""
        return self._accept(_JARS, self._listed(_JARS) + list(jars_path))

    def add_classpaths(self, *classpaths: str) -> Self:
        """Accepted for PyFlink compatibility, without effect; see ``add_jars``."""
        return self._accept(_CLASSPATHS, self._listed(_CLASSPATHS) + list(classpaths))

    def add_python_file(self, file_path: str) -> Self:
        """Make a Python file, package directory or zip importable, in this process and the workers.

        Of files with the same module, the one that was added last counts. Workers load it from the same path; on a cluster
        without shared directories, pass it to Spark (``--py-files``).
        """
        path = os.path.abspath(file_path)
        entry, added = os.path.dirname(path) if path.endswith(".py") else path, self._listed(_FILES)
        if entry not in sys.path:
            before = [sys.path.index(each) for each in added if each in sys.path]
            sys.path.insert(min(before, default=len(sys.path)), entry)  # workers inherit this process's import path
        return self._accept(_FILES, [entry, *added])

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> Self:
        """Install the missing packages of a requirements file with pip, in a directory that lives as long as this process.

        ``requirements_cache_dir``: a directory of packages to install from instead of the index. Workers load the packages from
        the same path; on a cluster without shared directories, install them on the workers. ConfigError if pip fails.
        """
        add_requirements(requirements_file_path, requirements_cache_dir)
        return self._accept("python.requirements", requirements_file_path)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> Self:
        """Unpack an archive as ``target_dir`` (default: the archive's name) in the working directory of functions.

        Sets ``spark.archives``: with a local master, Spark's tasks find it by ``pyspark.SparkFiles.get(target_dir)`` only.
        ConfigError if there is no such file.
        """
        path = os.path.abspath(archive_path)
        if not os.path.isfile(path):
            raise ConfigError(f"add_python_archive({archive_path!r}): there is no such file")
        given = self.options.spark.get(ARCHIVES)
        added = f"{path}#{target_dir or os.path.basename(path)}"
        return self._set(spark={**self.options.spark, ARCHIVES: f"{given},{added}" if given else added})

    def set_python_executable(self, python_exec: str) -> Self:
        """Accepted for PyFlink compatibility, without effect: PYSPARK_PYTHON sets the interpreter of Spark's workers."""
        return self._accept("python.executable", python_exec)

    # -- not supported

    def add_source(self, source_func: Any, source_name: str = "Custom Source", type_info: Any = None) -> Any:
        """Same as ``from_source()`` without watermarks. GraphError unless ``source_func`` is a Source."""
        if isinstance(source_func, Source):
            return self.from_source(source_func, WatermarkStrategy.no_watermarks(), source_name, type_info)
        raise GraphError("add_source() takes a SourceFunction in Java, which cannot run here; use from_source() with a Source")

    def create_input(self, input_format: Any, type_info: Any = None) -> Any:
        """Not supported: raises GraphError."""
        raise GraphError("create_input() takes an InputFormat in Java, which cannot run here; use from_source(FileSource…)")

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> NoReturn:
        """Not supported: raises GraphError."""
        raise GraphError("register_cached_file(): files are not distributed to workers; read it in open() from shared storage")

    def _set(self, **changes: Any) -> Self:
        self.options = replace(self.options, **changes)
        return self

    def _accept(self, key: str, value: object) -> Self:
        return self._set(accepted={**self.options.accepted, key: value})

    def _accepted(self, key: str, default: Any) -> Any:
        return self.options.accepted.get(key, default)

    def _flag(self, key: str, default: bool) -> bool:
        return parse_boolean(key, self._accepted(key, default))

    def _listed(self, key: str) -> list[str]:
        given = self._accepted(key, [])
        return Configuration.parse_list_value(given) if isinstance(given, str) else list(given)


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
        return MemorySize(mebi_bytes << 20)

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
