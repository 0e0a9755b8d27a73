"""`StreamExecutionEnvironment` for PyFlink programs, with the methods that Flink 2 removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from forkpoint import CheckpointConfig, Configuration, FileSource, StreamFormat, WatermarkStrategy
from forkpoint import StreamExecutionEnvironment as Environment
from forkpoint.api.configuration import DURATIONS
from forkpoint.errors import ConfigError
from forkpoint.graph.options import ExternalizedCheckpointRetention, JobOptions
from forkpoint.pyflink.formats import AvroInputFormat
from forkpoint.pyflink.former import CheckpointStorage, FlinkKafkaConsumer, StateBackend, TimeCharacteristic


class StreamExecutionEnvironment(Environment):
    """The environment of a program that imports ``pyflink``.

    Uids are optional, because such programs rarely set them. Types come only from ``output_type``, ``key_type`` and similar
    arguments: PyFlink does not read annotations.
    """

    explicit_types_only = True

    def __init__(self, options: JobOptions | None = None) -> None:
        super().__init__(options)
        self.launch = replace(self.launch, generated_uids=True)

    @property
    def _j_stream_execution_environment(self) -> Any:
        """Flink 1 programs set options through it. Raises ConfigError."""
        raise ConfigError(
            "env._j_stream_execution_environment: there is no Java environment here; set options with "
            "env.configure(configuration), and omit JVM options"
        )

    def configure(self, configuration: Configuration | Mapping[str, Any]) -> Self:
        """Like the base class, except that a duration without a unit is in milliseconds, as in Flink."""
        given = configuration.values if isinstance(configuration, Configuration) else configuration
        return super().configure({key: _in_ms(value) if key in DURATIONS else value for key, value in given.items()})

    def get_checkpoint_config(self) -> FormerCheckpointConfig:
        """The checkpoint options, including Flink 1's names."""
        return FormerCheckpointConfig(self)

    def set_stream_time_characteristic(self, characteristic: TimeCharacteristic) -> Self:
        """As in Flink 1: ProcessingTime withholds periodic watermarks, EventTime emits them."""
        if characteristic is TimeCharacteristic.IngestionTime:
            raise ConfigError(
                "set_stream_time_characteristic(IngestionTime): Flink has removed it. Instead, give from_source() a "
                "WatermarkStrategy whose timestamp assigner returns the current time"
            )
        event_time = TimeCharacteristic(characteristic) is TimeCharacteristic.EventTime
        self.get_config().set_auto_watermark_interval(200 if event_time else 0)
        return self

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """EventTime, unless periodic watermarks are withheld."""
        event_time = self.get_config().get_auto_watermark_interval() > 0
        return TimeCharacteristic.EventTime if event_time else TimeCharacteristic.ProcessingTime

    def set_state_backend(self, state_backend: StateBackend) -> Self:
        """Sets ``state.backend.type`` in the configuration."""
        self.configure(state_backend.options())
        return self

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> Any:
        """The lines of a file, or of a directory's files."""
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset_name), file_path).build()
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Text File Source")

    def create_input(self, input_format: Any, type_info: Any = None) -> Any:
        """The records of an AvroInputFormat. Others are not supported: raises GraphError."""
        if not isinstance(input_format, AvroInputFormat):
            return super().create_input(input_format, type_info)
        source = FileSource.for_record_stream_format(input_format.format, input_format.path).build()
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Custom File Source", type_info)

    def add_source(self, source_func: Any, source_name: str = "Custom Source", type_info: Any = None) -> Any:
        """``from_source()`` without watermarks, for a Source or a FlinkKafkaConsumer."""
        source = source_func.build() if isinstance(source_func, FlinkKafkaConsumer) else source_func
        return super().add_source(source, source_name, type_info)


def _in_ms(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


class FormerCheckpointConfig(CheckpointConfig):
    """The checkpoint options, including Flink 1's names."""

    def enable_externalized_checkpoints(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """Former name of ``set_externalized_checkpoint_retention``."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    set_externalized_checkpoint_cleanup = enable_externalized_checkpoints

    def get_externalized_checkpoint_cleanup(self) -> ExternalizedCheckpointRetention:
        """Former name of ``get_externalized_checkpoint_retention``."""
        return self.get_externalized_checkpoint_retention()

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Sets ``execution.checkpointing.dir`` in the configuration."""
        self._env.configure(storage.options())
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Sets ``execution.checkpointing.dir`` in the configuration."""
        return self.set_checkpoint_storage(CheckpointStorage(checkpoint_path))
