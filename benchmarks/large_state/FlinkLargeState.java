import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** The jobs of program.py on Flink: FlinkLargeState JOB EVENTS KEYS PARALLELISM MANAGED_MIB CHECKPOINTS BACKEND. With ForSt, the
 * function asks for state asynchronously, for which ForSt is made. */
public class FlinkLargeState {
    static final LongAdder DONE = new LongAdder();

    public static class Event {
        public long key;
        public long amount;

        public Event() {}

        Event(long number, boolean zipf, long keys) {
            long a = (number * 1103515245L + 12345) % 2147483648L;
            long b = (a ^ (a >> 15)) * 1597334677L % 2147483648L;
            long mixed = b ^ (b >> 13);
            key = zipf ? mixed >> (5 + number % 26) : mixed % keys;
            amount = number % 1000;
        }
    }

    public static class Totals {
        public long count;
        public long sum;

        public Totals() {}
    }

    public static class Total {
        public long key;
        public long count;
        public long sum;

        public Total() {}

        Total(long key, long count, long sum) {
            this.key = key;
            this.count = count;
            this.sum = sum;
        }
    }

    static class CountAndSum extends KeyedProcessFunction<Long, Event, Total> {
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
            DONE.increment();
        }
    }

    static class CountAndSumLater extends KeyedProcessFunction<Long, Event, Total> {
        private transient org.apache.flink.api.common.state.v2.ValueState<Totals> totals;

        @Override
        public void open(OpenContext context) {
            totals = getRuntimeContext().getState(
                    new org.apache.flink.api.common.state.v2.ValueStateDescriptor<>("totals", TypeInformation.of(Totals.class)));
        }

        @Override
        public void processElement(Event event, Context context, Collector<Total> out) throws Exception {
            totals.asyncValue().thenAccept(found -> {
                Totals now = found == null ? new Totals() : found;
                now.count++;
                now.sum += event.amount;
                totals.asyncUpdate(now);
                out.collect(new Total(event.key, now.count, now.sum));
                DONE.increment();
            });
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        boolean later = arguments[6].equals("forst");
        configuration.setString("state.backend.type", arguments[6]);
        configuration.setString("execution.checkpointing.interval", "1 s");
        configuration.setString("execution.checkpointing.incremental", "true");
        configuration.setString("taskmanager.memory.managed.size", arguments[4] + "m");
        configuration.setString("execution.checkpointing.dir", arguments[5] + "/checkpoints");
        configuration.setString("io.tmp.dirs", arguments[5].replace("file:", ""));
        configuration.setString("restart-strategy.type", "none");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        env.setParallelism(Integer.parseInt(arguments[3]));
        boolean zipf = arguments[0].equals("zipf");
        long keys = Long.parseLong(arguments[2]);
        Thread progress = new Thread(() -> {
            while (true) {
                System.out.println(System.currentTimeMillis() + " " + DONE.sum());
                try {
                    Thread.sleep(1000);
                } catch (InterruptedException ended) {
                    return;
                }
            }
        });
        progress.setDaemon(true);
        progress.start();
        KeyedStream<Event, Long> events = env
                .fromSource(new NumberSequenceSource(0, Long.parseLong(arguments[1]) - 1), WatermarkStrategy.noWatermarks(), "numbers")
                .map(number -> new Event(number, zipf, keys)).returns(Event.class)
                .keyBy(event -> event.key);
        (later ? events.enableAsyncState().process(new CountAndSumLater()) : events.process(new CountAndSum()))
                .returns(Total.class).sinkTo(new DiscardingSink<>());
        env.execute();
        System.out.println(System.currentTimeMillis() + " " + DONE.sum());
    }
}
