import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;

/**
 * Runs programs on Flink and prints what came out: java Parity INPUTS [PROGRAM…].
 *
 * <p>Each program runs on every input, twice: with a watermark behind each element (jump), and with one for every
 * millisecond on the way there and for two seconds behind the last element (each). Lines: program, input, watermarks, output, timestamp and value, by tabs.
 */
public final class Parity {
    /** A program: adds its named outputs, rows of {@link Json}. */
    interface Builder {
        void build(DataStream<Event> events, Outputs out);
    }

    interface Outputs {
        void add(String name, DataStream<String> rows);
    }

    static final class Program {
        WatermarkStrategy<Event> own;
        long boundMs;
        boolean paced;
        Builder builder;
    }

    static final Map<String, Program> PROGRAMS = new TreeMap<>();

    /** Watermarks are the greatest timestamp, less the bound, less 1 ms. */
    static Program program(String name, long boundMs, Builder builder) {
        Program program = new Program();
        program.boundMs = boundMs;
        program.builder = builder;
        if (PROGRAMS.put(name, program) != null) {
            throw new IllegalArgumentException("two programs named " + name);
        }
        return program;
    }

    /**
     * For operators with two inputs: elements go one at a time, so that they arrive in the order of the source. On a busy
     * machine one may still be overtaken, which shows when the program runs again.
     */
    static void paced(String name, long boundMs, Builder builder) {
        program(name, boundMs, builder).paced = true;
    }

    static void watermarks(String name, WatermarkStrategy<Event> strategy, Builder builder) {
        program(name, 0, builder).own = strategy;
    }

    static final class AfterEach implements WatermarkGenerator<Event>, Serializable {
        private final long boundMs;
        private final boolean each;
        private final int lastSeq;
        private long last = Long.MIN_VALUE;

        AfterEach(long boundMs, boolean each, int lastSeq) {
            this.boundMs = boundMs;
            this.each = each;
            this.lastSeq = lastSeq;
        }

        @Override
        public void onEvent(Event event, long timestamp, WatermarkOutput output) {
            long now = Math.max(last, timestamp - boundMs - 1) + (each && event.seq == lastSeq ? 2_000 : 0);
            if (now <= last) {
                return;
            }
            for (long at = each && last != Long.MIN_VALUE ? last + 1 : now; at <= now; at++) {
                output.emitWatermark(new Watermark(at));
            }
            last = now;
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    static final class Stamp extends ProcessFunction<String, String> {
        private final String prefix;
        private final boolean timed;

        Stamp(String name, String input, String watermarks, String output) {
            this.prefix = String.join("\t", name, input, watermarks, output);
            this.timed = !output.equals("untimed"); // of an output whose timestamps have no order
        }

        @Override
        public void processElement(String row, Context ctx, Collector<String> out) {
            out.collect(prefix + "\t" + (timed ? ctx.timestamp() : null) + "\t" + row);
        }
    }

    @SuppressWarnings("unchecked")
    static List<String> run(String name, Program program, Map<String, List<Event>> inputs) throws Exception {
        Configuration conf = new Configuration();
        conf.setString("taskmanager.memory.network.min", "256m");
        conf.setString("taskmanager.memory.network.max", "256m");
        conf.setString("execution.buffer-timeout.interval", "0 ms");
        conf.setString("pipeline.auto-watermark-interval", "0 ms");
        conf.setString("taskmanager.numberOfTaskSlots", "8");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, conf);
        List<DataStream<String>> all = new ArrayList<>();
        inputs.forEach((input, events) -> {
            for (String watermarks : new String[] {"jump", "each"}) {
                if (program.own != null && watermarks.equals("each")) {
                    continue;
                }
                boolean each = watermarks.equals("each");
                long boundMs = program.boundMs;
                int lastSeq = events.size() - 1;
                WatermarkStrategy<Event> strategy = program.own != null
                    ? program.own
                    : WatermarkStrategy.forGenerator(ctx -> new AfterEach(boundMs, each, lastSeq));
                DataStream<Event> source = env.fromData(Event.class, events.toArray(new Event[0]));
                if (program.paced) {
                    source = source.map(e -> {
                        Thread.sleep(15);
                        return e;
                    }).returns(Event.class);
                }
                source = source.assignTimestampsAndWatermarks(strategy.withTimestampAssigner((e, t) -> e.ts));
                program.builder.build(source, (out, rows) ->
                    all.add(rows.process(new Stamp(name, input, watermarks, out)).returns(String.class)));
            }
        });
        DataStream<String> merged = all.get(0).union(all.subList(1, all.size()).toArray(new DataStream[0]));
        List<String> lines = new ArrayList<>();
        try (CloseableIterator<String> results = merged.executeAndCollect(name)) {
            results.forEachRemaining(lines::add);
        }
        return lines;
    }

    public static void main(String[] args) throws Exception {
        Windows.register();
        Triggers.register();
        Timers.register();
        Joins.register();
        Connected.register();
        Ttl.register();
        Map<String, List<Event>> inputs = new LinkedHashMap<>();
        try (var files = Files.list(Path.of(args[0]))) {
            for (Path file : files.sorted().toList()) {
                String name = file.getFileName().toString().replace(".csv", "");
                inputs.put(name, Files.readAllLines(file).stream().map(Event::parse).toList());
            }
        }
        List<String> chosen = List.of(args).subList(1, args.length);
        for (Map.Entry<String, Program> entry : PROGRAMS.entrySet()) {
            if (chosen.isEmpty() || chosen.contains(entry.getKey())) {
                System.out.println("program\t" + entry.getKey() + "\t" + (entry.getValue().paced ? "paced" : "exact"));
                run(entry.getKey(), entry.getValue(), inputs).forEach(System.out::println);
            }
        }
    }
}
