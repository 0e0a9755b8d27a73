"""Calls what Flink 1 had and Flink 2 has not, by the places where Flink 1 had it."""

import sys

from pyflink.common import Types
from pyflink.common.restart_strategy import RestartStrategies
from pyflink.common.serialization import SimpleStringSchema
from pyflink.common.typeinfo import RowTypeInfo
from pyflink.datastream import (
    CheckpointingMode,
    ExternalizedCheckpointCleanup,
    StreamExecutionEnvironment,
    TimeCharacteristic,
)
from pyflink.datastream.checkpoint_storage import FileSystemCheckpointStorage
from pyflink.datastream.connectors import FlinkKafkaConsumer, FlinkKafkaProducer
from pyflink.datastream.connectors.kafka import Semantic
from pyflink.datastream.state_backend import RocksDBStateBackend

CHECKPOINTS, LINES = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment()
env.set_stream_time_characteristic(TimeCharacteristic.EventTime)
env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1000))
env.set_state_backend(RocksDBStateBackend(f"file://{CHECKPOINTS}", enable_incremental_checkpointing=True))
env.enable_checkpointing(1000, CheckpointingMode.EXACTLY_ONCE)
config = env.get_checkpoint_config()
config.enable_externalized_checkpoints(ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION)
config.set_checkpoint_storage(FileSystemCheckpointStorage(f"file://{CHECKPOINTS}"))
print(env.options.restart, env.options.state_backend, env.get_stream_time_characteristic())

properties = {"bootstrap.servers": "localhost:9092", "group.id": "g", "auto.offset.reset": "earliest"}
source = FlinkKafkaConsumer("in", SimpleStringSchema(), properties).build()
print(source.watch.subscription.topics, source.watch.start.kind, source.watch.start.reset.name)
FlinkKafkaProducer("out", SimpleStringSchema(), properties, semantic=Semantic.EXACTLY_ONCE)

lines = env.read_text_file(LINES).map(lambda line: (line, len(line)), RowTypeInfo([Types.STRING(), Types.INT()], ["a", "b"]))
lines.print()
env.execute("former")
