import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.EventComparator;
import org.apache.flink.cep.PatternStream;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.functions.TimedOutPartialMatchHandler;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * Runs the programs of a JSON file on Flink's CEP and prints what came out: java Patterns PROGRAMS.
 *
 * <p>A line for each program: name, tab, results as JSON; see record_patterns.py. Each program runs with a watermark behind each element,
 * and with one for every millisecond; if the two differ, the latter's results are the entry "each".
 */
public final class Patterns {
    static final ObjectMapper JSON = new ObjectMapper();
    static final OutputTag<String> TIMED_OUT = new OutputTag<>("timed-out") {};
    static final OutputTag<Item> LATE = new OutputTag<>("late") {};

    /** What came out of the running program, as [output, timestamp, JSON]; all in this process, in one thread. */
    static final List<Object[]> CAUGHT = Collections.synchronizedList(new ArrayList<>());

    private Patterns() {}

    static final class Caught<T> extends ProcessFunction<T, T> {
        private final String output;

        Caught(String output) {
            this.output = output;
        }

        @Override
        public void processElement(T row, Context ctx, Collector<T> out) {
            CAUGHT.add(new Object[] {output, ctx.timestamp(), row instanceof Item ? "" + ((Item) row).index : row.toString()});
        }
    }

    static final class Matches extends PatternProcessFunction<Item, String> implements TimedOutPartialMatchHandler<Item> {
        @Override
        public void processMatch(Map<String, List<Item>> match, Context ctx, Collector<String> out) {
            out.collect(text(match, ctx));
        }

        @Override
        public void processTimedOutMatch(Map<String, List<Item>> match, Context ctx) {
            ctx.output(TIMED_OUT, text(match, ctx));
        }

        private static String text(Map<String, List<Item>> match, Context ctx) {
            ObjectNode stages = JSON.createObjectNode();
            match.forEach((stage, items) -> {
                ArrayNode indices = stages.putArray(stage);
                items.forEach(item -> indices.add(item.index));
            });
            return "[" + ctx.timestamp() + "," + stages + "]";
        }
    }

    static final class ByValue implements EventComparator<Item> {
        private final int sign;

        ByValue(int sign) {
            this.sign = sign;
        }

        @Override
        public int compare(Item left, Item right) {
            return sign * Integer.compare(left.value, right.value);
        }
    }

    static ObjectNode run(MiniCluster cluster, JsonNode program, boolean each) throws Exception {
        List<Item> items = new ArrayList<>();
        for (JsonNode e : program.get("events")) {
            items.add(Item.of(items.size(), e.get(0).asLong(), e.get(1).asText(), e.get(2).asText(), e.get(3).asInt()));
        }
        CAUGHT.clear();
        Configuration conf = new Configuration();
        conf.setString("pipeline.auto-watermark-interval", "0 ms");
        conf.setString("restart-strategy.type", "none");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, conf);
        ObjectNode found = JSON.createObjectNode();
        try {
            Pattern<Item, ?> pattern = Chains.pattern(program.get("pattern"), program.get("skip"));
            long boundMs = program.path("bound_ms").asLong(0);
            int count = items.size();
            DataStream<Item> source = env.fromData(Item.class, items.toArray(new Item[0]))
                .assignTimestampsAndWatermarks(
                    WatermarkStrategy.<Item>forGenerator(ctx -> new AfterEach<Item>(boundMs, each, count))
                        .withTimestampAssigner((e, t) -> e.time));
            DataStream<Item> keyed = source.keyBy(e -> e.key);
            String comparator = program.path("comparator").asText("");
            PatternStream<Item> matched = comparator.isEmpty()
                ? CEP.pattern(keyed, pattern)
                : CEP.pattern(keyed, pattern, new ByValue(comparator.startsWith("-") ? -1 : 1));
            SingleOutputStreamOperator<String> out = matched.sideOutputLateData(LATE).process(new Matches());
            out.process(new Caught<>("matches")).returns(String.class);
            out.getSideOutput(TIMED_OUT).process(new Caught<>("timed_out")).returns(String.class);
            out.getSideOutput(LATE).process(new Caught<>("late")).returns(Item.class);
        } catch (Exception e) {
            return said(found, "refused", e);
        }
        try {
            JobID job = cluster.submitJob(env.getStreamGraph().getJobGraph()).get().getJobID();
            cluster.requestJobResult(job).get(60, TimeUnit.SECONDS).toJobExecutionResult(Patterns.class.getClassLoader());
        } catch (TimeoutException e) {
            System.err.println("no end of " + program);
            Runtime.getRuntime().halt(1);
        } catch (Exception e) {
            Throwable cause = e;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            said(found, "failed", cause);
        }
        for (String output : List.of("matches", "timed_out", "late")) {
            ArrayNode rows = JSON.createArrayNode();
            for (Object[] caught : CAUGHT) {
                if (!caught[0].equals(output)) {
                    continue;
                }
                JsonNode row = JSON.readTree((String) caught[2]);
                if (row.isArray() && row.get(0).asLong() != (long) caught[1]) {
                    throw new IllegalStateException("the function saw another time than " + caught[1] + ": " + row);
                }
                rows.add(row);
            }
            if (output.equals("matches") || !rows.isEmpty()) {
                found.set(output, rows);
            }
        }
        return found;
    }

    static ObjectNode said(ObjectNode found, String how, Throwable cause) {
        found.putArray(how).add(cause.getClass().getSimpleName()).add(String.valueOf(cause.getMessage()));
        return found;
    }

    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        conf.setString("rest.port", "0");
        var one = new MiniClusterConfiguration.Builder().setConfiguration(conf).setNumTaskManagers(1).setNumSlotsPerTaskManager(1);
        try (MiniCluster cluster = new MiniCluster(one.build())) {
            cluster.start();
            for (JsonNode program : JSON.readTree(Path.of(args[0]).toFile()).get("entries")) {
                ObjectNode jump = run(cluster, program, false);
                ObjectNode each = run(cluster, program, true);
                if (!each.equals(jump)) {
                    jump.set("each", each);
                }
                System.out.println(program.get("name").asText() + "\t" + jump);
            }
        }
    }
}
