import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** The job in Flink's Java: FlinkCount BROKERS FROM TO CHECKPOINTS PARALLELISM INTERVAL_MS. */
public class FlinkCount {
    public static class Event {
        public long user;
        public long number;
        public long sent_us;
        public String note;
    }

    public static class Counted {
        public long user;
        public long number;
        public long sent_us;
        public long count;
    }

    public static class Events implements DeserializationSchema<Event> {
        private transient ObjectMapper json;

        @Override
        public void open(InitializationContext context) {
            json = new ObjectMapper();
        }

        @Override
        public Event deserialize(byte[] message) throws java.io.IOException {
            return json.readValue(message, Event.class);
        }

        @Override
        public boolean isEndOfStream(Event event) {
            return false;
        }

        @Override
        public TypeInformation<Event> getProducedType() {
            return Types.POJO(Event.class);
        }
    }

    public static class Key implements SerializationSchema<Counted> {
        @Override
        public byte[] serialize(Counted element) {
            return Long.toString(element.user).getBytes(StandardCharsets.US_ASCII);
        }
    }

    public static class Value implements SerializationSchema<Counted> {
        private transient ObjectMapper json;

        @Override
        public void open(InitializationContext context) {
            json = new ObjectMapper();
        }

        @Override
        public byte[] serialize(Counted element) {
            try {
                return json.writeValueAsBytes(element);
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }

    public static class Count extends KeyedProcessFunction<Long, Event, Counted> {
        private transient ValueState<Long> seen;

        @Override
        public void open(OpenContext context) {
            seen = getRuntimeContext().getState(new ValueStateDescriptor<>("seen", Types.LONG));
        }

        @Override
        public void processElement(Event event, Context context, Collector<Counted> out) throws Exception {
            Long before = seen.value();
            Counted counted = new Counted();
            counted.user = event.user;
            counted.number = event.number;
            counted.sent_us = event.sent_us;
            counted.count = before == null ? 1 : before + 1;
            seen.update(counted.count);
            out.collect(counted);
        }
    }

    public static void main(String[] args) throws Exception {
        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + args[3]);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(args[4]), settings);
        env.enableCheckpointing(Long.parseLong(args[5]));
        env.getConfig().enableObjectReuse();
        KafkaSource<Event> source = KafkaSource.<Event>builder()
                .setBootstrapServers(args[0])
                .setTopics(args[1])
                .setGroupId("flink-" + args[2])
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setValueOnlyDeserializer(new Events())
                .build();
        KafkaSink<Counted> sink = KafkaSink.<Counted>builder()
                .setBootstrapServers(args[0])
                .setRecordSerializer(KafkaRecordSerializationSchema.<Counted>builder()
                        .setTopic(args[2])
                        .setKeySerializationSchema(new Key())
                        .setValueSerializationSchema(new Value())
                        .build())
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("flink-" + args[2])
                .setProperty("transaction.timeout.ms", "600000")
                .build();
        env.fromSource(source, WatermarkStrategy.noWatermarks(), "events")
                .keyBy(event -> event.user, Types.LONG)
                .process(new Count())
                .returns(Types.POJO(Counted.class))
                .sinkTo(sink);
        env.execute("counting");
    }
}
