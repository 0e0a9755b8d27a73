"""StreamExecutionEnvironment: options, sources and execution of a job."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, Self, TypedDict, Unpack, overload

from forkpoint.api.accepted import AcceptedMixin
from forkpoint.api.configuration import Configuration, apply_configuration
from forkpoint.api.dataframes import check_frame, frame_type
from forkpoint.api.display import graph_html
from forkpoint.api.launch import current_launch, with_defaults
from forkpoint.api.results import CheckResult, JobClient, JobExecutionResult
from forkpoint.api.settings import CheckpointConfig, ExecutionConfig
from forkpoint.api.streams.base import check_type
from forkpoint.api.streams.keys import timestamp_column
from forkpoint.api.streams.streams import DataStream
from forkpoint.connectors.collection import CollectionSource
from forkpoint.contract.source import Source
from forkpoint.errors import ConfigError, GraphError
from forkpoint.functions import WatermarkStrategy, to_ms
from forkpoint.functions.base import no_class
from forkpoint.graph.options import (
    Autoscale,
    CheckpointingMode,
    JobOptions,
    RestartStrategy,
    RestoreOptions,
    RuntimeExecutionMode,
    SavepointSchedule,
)
from forkpoint.graph.specs import DataFrameSpec, EpochSinkSpec, SinkSpec, SourceSpec
from forkpoint.graph.transformations import Edge, Transformation, topological_order
from forkpoint.types import Row, TypeInformation, TypeLike, Types, infer_type, type_of
from forkpoint.types.variables import R, T
from forkpoint.wording import parse_bytes


class _FrameOptions(TypedDict, total=False):
    timestamp: str | None
    split: str | None
    watermark_strategy: WatermarkStrategy[Any] | None
    max_rows: int | None


class StreamExecutionEnvironment(AcceptedMixin):
    """Holds the operators and options of a job. Setters return the environment."""

    # As in PyFlink: annotations are hints, and the keys of two streams have no type unless both have.
    explicit_types_only: ClassVar[bool] = False

    def __init__(self, options: JobOptions | None = None) -> None:
        self.options = options or JobOptions()
        self.launch = current_launch()  # settings of `forkpoint run` that override the program's
        self._operators: list[Transformation] = []

    @classmethod
    def get_execution_environment(cls, configuration: Configuration | Mapping[str, Any] | None = None) -> Self:
        """Create an environment. The configuration overrides the options of environment variables and forkpoint.toml."""
        env = cls(with_defaults(JobOptions()))
        return env if configuration is None else env.configure(configuration)

    # -- options

    def configure(self, configuration: Configuration | Mapping[str, Any]) -> Self:
        """Set options by Flink's keys, as in ``{"execution.checkpointing.interval": "10 s"}``.

        Flink options without a counterpart here have no effect. ConfigError for unknown keys and invalid values.
        """
        self.options = apply_configuration(self.options, configuration)
        return self

    def get_config(self) -> ExecutionConfig:
        """The execution options, such as job parameters, to read and modify."""
        return ExecutionConfig(self)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of subtasks per operator. ConfigError below 1."""
        return self._set(parallelism=parallelism)

    def get_parallelism(self) -> int | None:
        """The number of subtasks per operator, None if the engine chooses it."""
        return self.options.parallelism

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of key groups, the upper bound of the parallelism. 1 to 32768, else ConfigError; default 128."""
        return self._set(max_parallelism=max_parallelism)

    def get_max_parallelism(self) -> int:
        """The number of key groups."""
        return self.options.max_parallelism

    def enable_checkpointing(
        self, interval: timedelta | int, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Take a checkpoint at every ``interval`` (timedelta or int ms, above 0, else ConfigError).

        The job then restarts after failures; see ``set_restart_strategy``. Each epoch ends with a checkpoint, so results
        become visible at this interval.
        """
        current = self.options.checkpoint
        interval_ms = to_ms(interval, "the checkpoint interval", minimum_ms=1)
        mode = current.mode if mode is None else CheckpointingMode(mode)
        return self._set(checkpoint=replace(current, interval_ms=interval_ms, mode=mode))

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The checkpoint options, to read and modify."""
        return CheckpointConfig(self)

    def set_restart_strategy(self, strategy: RestartStrategy) -> StreamExecutionEnvironment:
        """Set whether and when a failed job restarts, as in ``RestartStrategy.fixed_delay(3, timedelta(...))``.

        Default: no restart without checkpointing, else exponential delay without limit.
        """
        if not isinstance(strategy, RestartStrategy):
            raise ConfigError(f"set_restart_strategy() takes a RestartStrategy, not {strategy!r}")
        return self._set(restart=strategy)

    def set_state_root(self, root: str) -> StreamExecutionEnvironment:
        """Keep checkpoints and savepoints under this path or URL beyond the run. Operators then need uids."""
        if not root:
            raise ConfigError("the state root is empty; give a path or a URL")
        return self._set(state_root=str(root))

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Set the directory of savepoints taken without an explicit path. Default: under the state root."""
        if not directory:
            raise ConfigError("the savepoint directory is empty; give a path or a URL")
        return self._set(savepoint_directory=str(directory))

    def set_autoscale(self, minimum: int, maximum: int) -> StreamExecutionEnvironment:
        """Let the running job choose its parallelism within these bounds, from how busy it is."""
        return self._set(autoscale=Autoscale(minimum, maximum))

    def set_savepoint_schedule(
        self,
        interval: timedelta | int,
        directory: str | None = None,
        *,
        keep_last: int | None = None,
        keep_for: timedelta | int | None = None,
    ) -> StreamExecutionEnvironment:
        """Take a savepoint every ``interval`` while the job runs, if anything was committed since the last one.

        A scheduled savepoint is kept if it is among the newest ``keep_last`` or younger than ``keep_for``, if it has a label
        or note, or if a run or another savepoint depends on it. Without ``keep_last`` and ``keep_for`` all are kept. Times
        are timedelta or int ms. ``directory``: None for the default savepoint directory.
        """
        kept_ms = None if keep_for is None else to_ms(keep_for, "keep_for", minimum_ms=1)
        interval_ms = to_ms(interval, "the interval of the savepoint schedule", minimum_ms=1)
        return self._set(savepoint_schedule=SavepointSchedule(interval_ms, directory, keep_last, kept_ms))

    def set_max_epoch_rows(self, rows: int) -> StreamExecutionEnvironment:
        """Set the maximum number of elements an epoch reads from each source, which bounds the workers' memory.

        Default: each source's own limit. ConfigError below 1.
        """
        return self._set(max_epoch_rows=rows)

    def set_memory_per_subtask(self, memory: int | str) -> StreamExecutionEnvironment:
        """Set how much memory a subtask may take, in bytes or as ``"512m"`` or ``"2g"``; mapped files do not count.

        An epoch then reads as many elements as fit. On the local engine, the driver's process runs all subtasks, and may take
        their sum. Measured on Linux only. Default: no limit. ConfigError below 64 MiB.
        """
        return self._set(memory_bytes=parse_bytes("the memory per subtask", memory))

    def get_default_savepoint_directory(self) -> str | None:
        """The default savepoint directory, None for under the state root."""
        return self.options.savepoint_directory

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Set STREAMING (the default), BATCH, or AUTOMATIC, which is BATCH if all inputs are bounded.

        BATCH emits final results only (a key's last reduction; windows and timers at the end of the input), and raises
        GraphError for unbounded inputs when the job is compiled.
        """
        return self._set(runtime_mode=RuntimeExecutionMode(execution_mode))

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
        """Read a source. ``type_info`` (``Types.*`` or a Python type) overrides the source's own type."""
        no_class(source, "from_source()")
        if not isinstance(source, Source):
            raise GraphError(f"from_source() takes a Source, not {source!r}; use from_dataframe() for a DataFrame")
        check_type(watermark_strategy, WatermarkStrategy, "from_source")
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
        """Read the elements of an iterable, in order, as bounded input.

        ``type_info``: ``Types.*`` or a Python type, by default inferred from the elements. There are no watermarks before
        the end of the input unless ``assign_timestamps_and_watermarks`` generates them.
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
        """Read the rows of a batch or streaming Spark DataFrame.

        ``uid``: the source's uid, as set by ``.uid()``. ``type``: a record type with the frame's columns as fields; by
        default elements are Rows. ``timestamp``: the column with the elements' timestamps. ``split``: the column that names
        the split (such as Kafka's partition), within which rows are in time order; by default all rows are one split.
        ``watermark_strategy``: no watermarks by default. ``max_rows``: the approximate maximum of rows per epoch, if the
        Spark source supports one; by default its own options apply.
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
        """Register an operator or sink; called by streams."""
        self._operators.append(transformation)

    @property
    def transformations(self) -> tuple[Transformation, ...]:
        """The ends of the graph: sinks, and operators whose output nobody reads, which run as well, as in Flink."""
        read = {id(edge.upstream) for operator in self._operators for edge in operator.inputs}
        return tuple(operator for operator in self._operators if id(operator) not in read)

    def __repr__(self) -> str:
        operators = topological_order(self.transformations)
        return f"<StreamExecutionEnvironment with {len(operators)} operator{'' if len(operators) == 1 else 's'}>"

    def _repr_html_(self) -> str:
        """The graph of the job that ``execute()`` would run, for a notebook."""
        return graph_html(repr(self)[1:-1], self.transformations)

    def get_execution_plan(self) -> str:
        """The job's operators and edges as JSON for Flink's plan visualizer. GraphError without operators."""
        self._check()
        ids: dict[Transformation, int] = {}
        nodes = []
        for operator in topological_order(self.transformations):
            ids[operator] = len(ids) + 1
            node = {
                "id": ids[operator],
                "type": operator.name,
                "pact": _pact(operator),
                "contents": operator.name,
                "parallelism": operator.parallelism or self.get_parallelism() or 1,
            }
            if operator.inputs:
                node["predecessors"] = [
                    {"id": ids[edge.upstream], "ship_strategy": edge.partitioning.ship_strategy, "side": "second"}
                    for edge in operator.inputs
                ]
            nodes.append(node)
        return json.dumps({"nodes": nodes}, indent=2)

    def execute(self, job_name: str | None = None, restore: str | RestoreOptions | None = None) -> JobExecutionResult:
        """Run the job and wait until its inputs end or it is stopped.

        ``restore``: a savepoint (path, URL, id or label), ``"latest"``, ``"none"`` to start without state, or
        RestoreOptions; by default the job resumes from its newest checkpoint. ``forkpoint run -s`` takes precedence.
        JobFailed if the job fails and is not restarted; GraphError, ConfigError and RestoreRefused before anything runs.
        """
        self._check()
        from forkpoint.api import execution

        result = execution.execute(self, self._name(job_name), _restore(restore))
        self._operators.clear()
        return result

    def execute_async(self, job_name: str | None = None, restore: str | RestoreOptions | None = None) -> JobClient:
        """Start the job and return a client that observes and stops it. ``restore``: as for ``execute``."""
        self._check()
        from forkpoint.api import execution

        client = execution.execute_async(self, self._name(job_name), _restore(restore))
        self._operators.clear()
        return client

    def collect(self, stream: DataStream[T], limit: int | None, job_name: str | None) -> Iterable[T]:
        """Run the job and yield a stream's elements; use ``stream.execute_and_collect``."""
        from forkpoint.api import execution

        # execution.collect compiles the job before it returns the iterator.
        elements: Iterable[T] = execution.collect(stream, limit, self._name(job_name))
        self._operators.clear()
        return elements

    def check(
        self,
        savepoint: str = "latest",
        job_name: str | None = None,
        *,
        allow_non_restored: bool = False,
        renames: Mapping[str, str] | None = None,
        accept_empty: Collection[str] = (),
    ) -> CheckResult:
        """Report what ``execute(restore=savepoint)`` would do with the saved state, without starting or writing anything.

        ``savepoint``: a path, URL, id or label, or ``"latest"``. ``allow_non_restored``, ``renames`` and
        ``accept_empty``: as in RestoreOptions. The environment keeps its operators; ``execute()`` may follow.
        """
        self._check()
        from forkpoint.api import execution

        job = execution.inspect(self, self._name(job_name))
        return execution.check(job, savepoint, allow_non_restored=allow_non_restored, renames=renames, accept_empty=accept_empty)

    def close(self) -> None:
        """Discard operators that were not executed. Running jobs continue."""
        self._operators.clear()

    def _name(self, job_name: str | None) -> str | None:
        name = job_name or self.options.accepted.get("pipeline.name")
        return None if name is None else str(name)

    def _check(self) -> None:
        if not self._operators:
            raise GraphError("the job has no operators; add a source and a sink before execute()")


def _pact(operator: Transformation) -> str:
    if isinstance(operator.spec, SourceSpec | DataFrameSpec):
        return "Data Source"
    return "Data Sink" if isinstance(operator.spec, SinkSpec | EpochSinkSpec) else "Operator"


def _restore(given: str | RestoreOptions | None) -> RestoreOptions | None:
    return RestoreOptions(given) if isinstance(given, str) else given
