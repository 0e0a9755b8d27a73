import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.PatternSelectFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;

/**
 * The job of program.py on Flink: FlinkPatterns PATTERN EVENTS BACKEND PARALLELISM CHECKPOINTS. With a directory of SAVEPOINTS
 * and whether they are COMPRESSED, it takes one of each format after the last event, and ends.
 */
public class FlinkPatterns {
    static final CountDownLatch ALL_SENT = new CountDownLatch(1);

    /** Numbers, after which it waits. */
    public static class Waiting implements SourceFunction<Long> {
        private final long count;
        private volatile boolean running = true;

        Waiting(long count) {
            this.count = count;
        }

        @Override
        public void run(SourceContext<Long> context) throws Exception {
            for (long number = 0; number < count && running; number++) {
                synchronized (context.getCheckpointLock()) {
                    context.collect(number);
                }
            }
            ALL_SENT.countDown();
            while (running) Thread.sleep(100);
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    public static class Event {
        public int key;
        public int value;
        public long at;

        public Event() {}

        Event(long number) {
            key = (int) (number * 7919 % 100_000);
            value = (int) (((number * 2654435761L) >> 7) % 1000);
            at = number / 100;
        }
    }

    static SimpleCondition<Event> between(int low, int high) {
        return SimpleCondition.of(event -> event.value >= low && event.value < high);
    }

    static Pattern<Event, ?> pattern(String name) {
        if (name.equals("stages")) {
            return Pattern.<Event>begin("a").where(between(0, 10))
                    .followedBy("b").where(between(100, 300))
                    .followedBy("c").where(between(900, 1000))
                    .within(Duration.ofSeconds(10));
        }
        return Pattern.<Event>begin("a").where(between(0, 300)).oneOrMore()
                .followedBy("c").where(between(900, 1000))
                .within(Duration.ofSeconds(5));
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", arguments[2]);
        configuration.setString("execution.checkpointing.interval", "10 s");
        configuration.setString("execution.checkpointing.dir", arguments[4]);
        configuration.setString("restart-strategy.type", "none");
        if (arguments.length > 5) {
            configuration.setString("execution.checkpointing.snapshot-compression", arguments[6]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        env.setParallelism(Integer.parseInt(arguments[3]));
        env.getConfig().enableObjectReuse();
        long count = Long.parseLong(arguments[1]);
        DataStream<Long> numbers = arguments.length > 5
                ? env.addSource(new Waiting(count), Types.LONG)
                : env.fromSource(new NumberSequenceSource(0, count - 1), WatermarkStrategy.noWatermarks(), "numbers");
        var events = numbers
                .map(Event::new).returns(Event.class)
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Event>forMonotonousTimestamps().withTimestampAssigner((event, before) -> event.at));
        PatternSelectFunction<Event, Long> select =
                (Map<String, List<Event>> match) -> match.get("c").get(0).at - match.get("a").get(0).at;
        CEP.pattern(events.keyBy(event -> event.key), pattern(arguments[0]))
                .select(select).returns(Long.class)
                .sinkTo(new DiscardingSink<>());
        if (arguments.length <= 5) {
            env.execute();
            return;
        }
        JobClient job = env.executeAsync();
        ALL_SENT.await();
        Thread.sleep(2000); // the watermark comes every 200 ms
        for (var format : SavepointFormatType.values()) {
            job.triggerSavepoint(arguments[5] + "/" + format, format).get();
        }
        job.cancel().get();
    }
}
