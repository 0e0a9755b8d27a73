"""The environment: where a program begins, with its sources and options, and where it is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypedDict, Unpack, overload

from forkpoint.api.accepted import AcceptedMixin
from forkpoint.api.configuration import Configuration, apply_configuration, checkpoint_config
from forkpoint.api.dataframes import check_frame, frame_type
from forkpoint.api.keys import timestamp_column
from forkpoint.api.launch import current_launch
from forkpoint.api.results import CheckResult, JobClient, JobExecutionResult
from forkpoint.api.settings import CheckpointConfig, ExecutionConfig
from forkpoint.api.streams import DataStream
from forkpoint.connectors.base import Source
from forkpoint.connectors.collection import CollectionSource
from forkpoint.errors import ConfigError, GraphError
from forkpoint.functions import WatermarkStrategy, to_ms
from forkpoint.graph.options import (
    CheckpointingMode,
    JobOptions,
    RestartStrategy,
    RestoreOptions,
    RuntimeExecutionMode,
    SavepointSchedule,
)
from forkpoint.graph.specs import DataFrameSpec, SourceSpec
from forkpoint.graph.transformations import Edge, Transformation
from forkpoint.types import Row, TypeInformation, TypeLike, Types, infer_type, type_of
from forkpoint.types.variables import R, T


class _FrameOptions(TypedDict, total=False):
    timestamp: str | None
    split: str | None
    watermark_strategy: WatermarkStrategy[Any] | None
    max_rows: int | None


class StreamExecutionEnvironment(AcceptedMixin):
    """Holds a job while it is being written, with its options. Methods that set something return the environment."""

    def __init__(self, options: JobOptions | None = None) -> None:
        self.options = options or JobOptions()
        self.launch = current_launch()  # what `forkpoint run` lays over the program; see forkpoint.api.launch
        self._operators: list[Transformation] = []

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | Mapping[str, Any] | None = None,
    ) -> StreamExecutionEnvironment:
        """A new environment, with the options of the configuration."""
        env = StreamExecutionEnvironment()
        return env if configuration is None else env.configure(configuration)

    # -- options

    def configure(self, configuration: Configuration | Mapping[str, Any]) -> StreamExecutionEnvironment:
        """Set options by Flink's keys, as in ``{"execution.checkpointing.interval": "10 s"}``.

        Options about Flink's own machinery are taken without effect; ConfigError for unknown keys and wrong values.
        """
        self.options = apply_configuration(self.options, configuration)
        return self

    def get_config(self) -> ExecutionConfig:
        """Job parameters and the watermark interval, to read and change."""
        return ExecutionConfig(self)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """The number of subtasks of operators that have none of their own; at least 1, else ConfigError."""
        self.options = replace(self.options, parallelism=parallelism)
        return self

    def get_parallelism(self) -> int | None:
        """The number of subtasks, None where the engine chooses."""
        return self.options.parallelism

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """The number of key groups, and so the greatest parallelism: 1 to 32768, else ConfigError. 128 by default."""
        self.options = replace(self.options, max_parallelism=max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The number of key groups."""
        return self.options.max_parallelism

    def enable_checkpointing(
        self, interval: timedelta | int, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Take a checkpoint every so often (timedelta, or int ms; above 0, else ConfigError).

        The job then restarts after failures, see ``set_restart_strategy``. An epoch ends with its checkpoint, so
        results become visible at this pace.
        """
        changes: dict[str, Any] = {"interval_ms": to_ms(interval, "the checkpoint interval", minimum_ms=1)}
        if mode is not None:
            changes["mode"] = CheckpointingMode(mode)
        self.options = checkpoint_config(self.options, **changes)
        return self

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The checkpoint options, to read and change."""
        return CheckpointConfig(self)

    def set_restart_strategy(self, strategy: RestartStrategy) -> StreamExecutionEnvironment:
        """Whether and when a failed job starts again: ``RestartStrategy.none()``, ``.fixed_delay(3, timedelta(...))`` …

        By default: never with checkpointing off, with a growing delay and without limit with it on.
        """
        if not isinstance(strategy, RestartStrategy):
            raise ConfigError(f"set_restart_strategy() takes a RestartStrategy, not {strategy!r}")
        self.options = replace(self.options, restart=strategy)
        return self

    def set_state_root(self, root: str) -> StreamExecutionEnvironment:
        """Keep checkpoints and savepoints below this path or URL, beyond the run; uids are needed then."""
        if not root:
            raise ConfigError("the state root is empty; give a path or a URL")
        self.options = replace(self.options, state_root=str(root))
        return self

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Where savepoints go unless a path is given with the command. Below the state root by default."""
        if not directory:
            raise ConfigError("the savepoint directory is empty; give a path or a URL")
        self.options = replace(self.options, savepoint_directory=str(directory))
        return self

    def set_savepoint_schedule(
        self, interval: timedelta | int, directory: str | None = None, *,
        keep_last: int | None = None, keep_for: timedelta | int | None = None,
    ) -> StreamExecutionEnvironment:  # fmt: skip
        """Take a savepoint every ``interval`` while the job runs, if anything was committed since the last one.

        Of those savepoints the newest ``keep_last`` stay, and those younger than ``keep_for``; who fulfils either stays, and
        without either all do. One that was given a label or note stays, and one that a run or another savepoint depends on.
        Times: timedelta, or int ms. ``directory``: None for where other savepoints go.
        """
        kept_ms = None if keep_for is None else to_ms(keep_for, "keep_for", minimum_ms=1)
        interval_ms = to_ms(interval, "the interval of the savepoint schedule", minimum_ms=1)
        self.options = replace(
            self.options, savepoint_schedule=SavepointSchedule(interval_ms, directory, keep_last, kept_ms)
        )
        return self

    def set_max_epoch_rows(self, rows: int) -> StreamExecutionEnvironment:
        """How many elements an epoch takes from each source at most; it bounds the memory that workers need.

        Each source has a limit of its own unless this is said. At least 1, else ConfigError.
        """
        self.options = replace(self.options, max_epoch_rows=rows)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Where savepoints go, None for below the state root."""
        return self.options.savepoint_directory

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """BATCH: bounded inputs give final results only (a key's last reduction; windows and timers at the end of the input),
        and the job is refused with others. AUTOMATIC: BATCH if all inputs are bounded. STREAMING by default."""
        self.options = replace(self.options, runtime_mode=RuntimeExecutionMode(execution_mode))
        return self

    # -- sources

    @overload
    def from_source(
        self, source: Source[Any], watermark_strategy: WatermarkStrategy[Any], source_name: str, type_info: TypeLike[R]
    ) -> DataStream[R]: ...
    @overload
    def from_source(
        self, source: Source[T], watermark_strategy: WatermarkStrategy[Any], source_name: str, type_info: None = None
    ) -> DataStream[T]: ...
    @overload
    def from_source(
        self, source: Source[Any], watermark_strategy: WatermarkStrategy[Any], source_name: str, type_info: Any
    ) -> DataStream[Any]: ...
    def from_source(
        self, source: Source[Any], watermark_strategy: WatermarkStrategy[Any], source_name: str, type_info: Any = None
    ) -> DataStream[Any]:
        """The elements of a source. ``type_info`` (``Types.*`` or a Python type) overrides the source's own type."""
        if not isinstance(source, Source):
            raise GraphError(f"from_source() takes a Source, not {source!r}; for a DataFrame there is from_dataframe()")
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise GraphError(f"from_source() takes a WatermarkStrategy, not {watermark_strategy!r}")
        output_type = source.output_type() if type_info is None else type_of(type_info)
        spec = SourceSpec(source, watermark_strategy, timestamp_column(watermark_strategy, output_type))
        transformation = Transformation(spec, source_name, (), output_type)
        return DataStream(self, (Edge(transformation),), output_type)

    @overload
    def from_collection(
        self, collection: Iterable[Row | tuple[Any, ...]], type_info: TypeInformation[Row]
    ) -> DataStream[Row]: ...
    @overload
    def from_collection(self, collection: Iterable[T], type_info: TypeLike[T] | None = None) -> DataStream[T]: ...
    def from_collection(self, collection: Iterable[Any], type_info: Any = None) -> DataStream[Any]:
        """The elements of a list or other iterable, in order, then the end of input.

        ``type_info``: ``Types.*`` or a Python type; without it, inferred from the elements. There are no watermarks
        before the end unless ``assign_timestamps_and_watermarks`` makes some.
        """
        elements = list(collection)
        if type_info is None:
            type_info = infer_type(elements) if elements else Types.ANY()
        output_type = type_of(type_info)
        source = CollectionSource(elements, output_type)
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "collection", output_type)

    @overload
    def from_dataframe(
        self, frame: Any, uid: str | None = None, type: None = None, **options: Unpack[_FrameOptions]
    ) -> DataStream[Row]: ...
    @overload
    def from_dataframe(
        self, frame: Any, uid: str | None = None, *, type: TypeLike[R], **options: Unpack[_FrameOptions]
    ) -> DataStream[R]: ...
    @overload
    def from_dataframe(
        self, frame: Any, uid: str | None, type: TypeLike[R], **options: Unpack[_FrameOptions]
    ) -> DataStream[R]: ...
    def from_dataframe(
        self,
        frame: Any,
        uid: str | None = None,
        type: Any = None,
        timestamp: str | None = None,
        split: str | None = None,
        watermark_strategy: WatermarkStrategy | None = None,
        max_rows: int | None = None,
    ) -> DataStream[Any]:
        """The rows of a Spark DataFrame, streaming or not.

        ``uid``: the source's, as by ``.uid()``. ``type``: a record type with the frame's columns as fields; without it,
        elements are Rows with the frame's columns. ``timestamp``: the column with the elements' time. ``split``: the
        column that names the split (as Kafka's partition), within which rows come in the order of time; without it, all
        are one split. ``watermark_strategy``: no watermarks by default. ``max_rows``: about how many rows an epoch
        takes at most, where the source can tell; its own options say so by default.
        """
        check_frame(frame, {"timestamp": timestamp, "split": split})
        if max_rows is not None and max_rows < 1:
            raise ConfigError(f"from_dataframe(max_rows={max_rows}): it must be at least 1, or None")
        output_type = frame_type(frame) if type is None else type_of(type)
        strategy = watermark_strategy or WatermarkStrategy.no_watermarks()
        spec = DataFrameSpec(frame, strategy, timestamp, split, max_rows)
        stream = DataStream(self, (Edge(Transformation(spec, "dataframe", (), output_type)),), output_type)
        return stream if uid is None else stream.uid(uid)

    # -- running

    def add_operator(self, transformation: Transformation) -> None:
        """Called by streams for each operator and sink that is added to them."""
        self._operators.append(transformation)

    @property
    def transformations(self) -> tuple[Transformation, ...]:
        """The ends of the job: all sinks, and operators whose output nobody reads, which run too, as in Flink."""
        read = {id(edge.upstream) for operator in self._operators for edge in operator.inputs}
        return tuple(operator for operator in self._operators if id(operator) not in read)

    def get_execution_plan(self) -> str:
        """The job as Flink's JSON: its operators with what they read. GraphError where there are none."""
        self._check()
        from forkpoint.api.plan import execution_plan

        return execution_plan(self.transformations, self.get_parallelism() or 1)

    def execute(self, job_name: str | None = None, restore: str | RestoreOptions | None = None) -> JobExecutionResult:
        """Run the job and wait for its end: that of its bounded inputs, or a stop from outside.

        ``restore``: a savepoint (path, URL, id or label), ``"latest"``, ``"none"`` to begin anew, or RestoreOptions; by
        default the job goes on from its newest checkpoint. ``forkpoint run -s`` takes precedence. JobFailed where the job
        failed for good; GraphError, ConfigError and RestoreRefused before anything runs.
        """
        self._check()
        from forkpoint.api import execution

        result: JobExecutionResult = execution.execute(self, self._name(job_name), _restore(restore))
        self._operators.clear()
        return result

    def execute_async(self, job_name: str | None = None, restore: str | RestoreOptions | None = None) -> JobClient:
        """Start the job and go on; the client tells about it and stops it. ``restore``: as for ``execute``."""
        self._check()
        from forkpoint.api import execution

        client: JobClient = execution.execute_async(self, self._name(job_name), _restore(restore))
        self._operators.clear()
        return client

    def collect(self, stream: DataStream[T], limit: int | None, job_name: str | None) -> Iterable[T]:
        """Run the job and yield a stream's elements; ``stream.execute_and_collect`` is the way to say it."""
        from forkpoint.api import execution

        # execution.collect takes the job as it is now, and yields only then.
        elements: Iterable[T] = execution.collect(stream, limit, self._name(job_name))
        self._operators.clear()
        return elements

    def check(
        self, savepoint: str = "latest", job_name: str | None = None, *, allow_non_restored: bool = False,
        renames: Mapping[str, str] | None = None,
    ) -> CheckResult:  # fmt: skip
        """What ``execute(restore=savepoint)`` would do with the savepoint's state; nothing is started or written.

        ``savepoint``: a path, URL, id or label, or the latest of the job. ``allow_non_restored`` and ``renames``: as in
        RestoreOptions. The operators stay; ``execute()`` may follow.
        """
        self._check()
        from forkpoint.api import execution

        job = execution.inspect(self, self._name(job_name))
        found: CheckResult = execution.check(job, savepoint, allow_non_restored=allow_non_restored, renames=renames)
        return found

    def close(self) -> None:
        """Forget the operators that were added and not executed. Running jobs go on."""
        self._operators.clear()

    def _name(self, job_name: str | None) -> str | None:
        return job_name or (
            str(self.options.accepted["pipeline.name"]) if "pipeline.name" in self.options.accepted else None
        )

    def _check(self) -> None:
        if not self._operators:
            raise GraphError("the job has no operators; add a source and a sink before execute()")


def _restore(given: str | RestoreOptions | None) -> RestoreOptions | None:
    return RestoreOptions(given) if isinstance(given, str) else given
