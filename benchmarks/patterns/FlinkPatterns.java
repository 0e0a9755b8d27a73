import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.PatternSelectFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** The job of program.py on Flink: FlinkPatterns PATTERN EVENTS BACKEND PARALLELISM CHECKPOINTS. */
public class FlinkPatterns {
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
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        env.setParallelism(Integer.parseInt(arguments[3]));
        env.getConfig().enableObjectReuse();
        var events = env.fromSource(new NumberSequenceSource(0, Long.parseLong(arguments[1]) - 1),
                        WatermarkStrategy.noWatermarks(), "numbers")
                .map(Event::new).returns(Event.class)
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Event>forMonotonousTimestamps().withTimestampAssigner((event, before) -> event.at));
        PatternSelectFunction<Event, Long> select =
                (Map<String, List<Event>> match) -> match.get("c").get(0).at - match.get("a").get(0).at;
        CEP.pattern(events.keyBy(event -> event.key), pattern(arguments[0]))
                .select(select).returns(Long.class)
                .sinkTo(new DiscardingSink<>());
        env.execute();
    }
}
