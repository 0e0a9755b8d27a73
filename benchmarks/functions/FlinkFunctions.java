import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.util.Collector;

/** The jobs of program.py on Flink: FlinkFunctions JOB EVENTS BACKEND PARALLELISM CHECKPOINTS. */
public class FlinkFunctions {
    public static class Event {
        public int key;
        public int amount;
        public long at;

        public Event() {}

        Event(long number) {
            key = (int) (number * 7919 % 100_000);
            amount = (int) (((number * 2654435761L) >> 7) % 1000);
            at = number / 100;
        }
    }

    public static class Totals {
        public long count;
        public long sum;

        public Totals() {}
    }

    public static class Total {
        public int key;
        public long count;
        public long sum;

        public Total() {}

        Total(int key, long count, long sum) {
            this.key = key;
            this.count = count;
            this.sum = sum;
        }
    }

    static class CountAndSum extends KeyedProcessFunction<Integer, Event, Total> {
        private transient ValueState<Totals> totals;

        @Override
        public void open(OpenContext context) {
            totals = getRuntimeContext().getState(new ValueStateDescriptor<>("totals", Totals.class));
        }

        @Override
        public void processElement(Event event, Context context, Collector<Total> out) throws Exception {
            Totals now = totals.value();
            if (now == null) now = new Totals();
            now.count++;
            now.sum += event.amount;
            totals.update(now);
            out.collect(new Total(event.key, now.count, now.sum));
        }
    }

    static class CountAndSumOfWindow implements AggregateFunction<Event, Totals, Totals> {
        @Override
        public Totals createAccumulator() {
            return new Totals();
        }

        @Override
        public Totals add(Event event, Totals totals) {
            totals.count++;
            totals.sum += event.amount;
            return totals;
        }

        @Override
        public Totals getResult(Totals totals) {
            return totals;
        }

        @Override
        public Totals merge(Totals one, Totals other) {
            one.count += other.count;
            one.sum += other.sum;
            return one;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", arguments[2]);
        configuration.setString("execution.checkpointing.interval", "1 s");
        configuration.setString("execution.checkpointing.dir", arguments[4]);
        configuration.setString("restart-strategy.type", "none");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        env.setParallelism(Integer.parseInt(arguments[3]));
        var events = env.fromSource(
                        new NumberSequenceSource(0, Long.parseLong(arguments[1]) - 1), WatermarkStrategy.noWatermarks(), "numbers")
                .map(Event::new).returns(Event.class);
        if (arguments[0].equals("windows")) {
            KeyedStream<Event, Integer> keyed = events.assignTimestampsAndWatermarks(
                            WatermarkStrategy.<Event>forMonotonousTimestamps().withTimestampAssigner((event, before) -> event.at))
                    .keyBy(event -> event.key);
            keyed.window(TumblingEventTimeWindows.of(Duration.ofSeconds(60)))
                    .aggregate(new CountAndSumOfWindow())
                    .sinkTo(new DiscardingSink<>());
        } else {
            events.keyBy(event -> event.key).process(new CountAndSum()).returns(Total.class).sinkTo(new DiscardingSink<>());
        }
        env.execute();
    }
}
