"""PyFlink's side, run with PyFlink's own Python: BROKERS FROM TO CHECKPOINTS PARALLELISM INTERVAL_MS JARS."""

import json
import sys
from pathlib import Path

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, event, ctx):
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield json.dumps({"user": event["user"], "number": event["number"], "sent_us": event["sent_us"], "count": seen})


def main():
    brokers, source, to, checkpoints, parallelism, interval_ms, jars = sys.argv[1:]
    settings = Configuration()
    settings.set_string("execution.checkpointing.dir", f"file://{checkpoints}")
    settings.set_string("python.executable", sys.executable)
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    needed = ("flink-connector-kafka-*.jar", "flink-connector-base-*.jar", "kafka-clients-*.jar", "jackson-*.jar")
    env.add_jars(*(f"file://{jar}" for pattern in needed for jar in Path(jars).glob(pattern)))
    env.set_parallelism(int(parallelism)).enable_checkpointing(int(interval_ms))
    reads = (
        KafkaSource.builder()
        .set_bootstrap_servers(brokers)
        .set_topics(source)
        .set_group_id(f"pyflink-{to}")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    writes = (
        KafkaSink.builder()
        .set_bootstrap_servers(brokers)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder().set_topic(to).set_value_serialization_schema(SimpleStringSchema()).build()
        )
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(f"pyflink-{to}")
        .set_property("transaction.timeout.ms", "600000")
        .build()
    )
    events = env.from_source(reads, WatermarkStrategy.no_watermarks(), "events").map(json.loads)
    counts = events.key_by(lambda event: event["user"], Types.LONG()).process(Count(), Types.STRING())
    counts.sink_to(writes)
    env.execute("counting")


if __name__ == "__main__":
    main()
