import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReadOnlyBroadcastState;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.co.BroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.co.CoMapFunction;
import org.apache.flink.streaming.api.functions.co.CoProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.streaming.api.functions.co.RichCoFlatMapFunction;
import org.apache.flink.util.Collector;

/** Two inputs: connected streams, broadcast state, union. */
final class Connected {
    static final MapStateDescriptor<String, Integer> RULES =
        new MapStateDescriptor<>("rules", Types.STRING, Types.INT);

    private Connected() {}

    /** State and timers of both inputs. */
    static class Ledger extends KeyedCoProcessFunction<String, Event, Event, String> {
        private transient ListState<Integer> open;
        private transient ValueState<Integer> matched;

        @Override
        public void open(OpenContext context) {
            open = getRuntimeContext().getListState(new ListStateDescriptor<>("open", Types.INT));
            matched = getRuntimeContext().getState(new ValueStateDescriptor<>("matched", Types.INT));
        }

        @Override
        public void processElement1(Event e, Context ctx, Collector<String> out) throws Exception {
            open.add(e.seq);
            ctx.timerService().registerEventTimeTimer(ctx.timestamp() + 15);
            out.collect(Json.row(ctx.getCurrentKey(), 1, e.seq, open.get(), matched.value(), ctx.timestamp()));
            if (e.value > 6) {
                ctx.output(Timers.SIDE, Json.row(ctx.getCurrentKey(), 1, e.seq));
            }
        }

        @Override
        public void processElement2(Event e, Context ctx, Collector<String> out) throws Exception {
            matched.update((matched.value() == null ? 0 : matched.value()) + 1);
            out.collect(Json.row(ctx.getCurrentKey(), 2, e.seq, open.get(), matched.value(), ctx.timestamp()));
            ctx.timerService().deleteEventTimeTimer(ctx.timestamp() + 15);
            ctx.timerService().registerEventTimeTimer(ctx.timestamp() + 4);
            if (e.value == 0) {
                open.clear();
            }
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<String> out) throws Exception {
            out.collect(Json.row(ctx.getCurrentKey(), "timer", timestamp, open.get(), matched.value()));
            ctx.output(Timers.SIDE, Json.row(ctx.getCurrentKey(), "timer", timestamp));
        }
    }

    static class Watermarks extends KeyedCoProcessFunction<String, Event, Event, String> {
        @Override
        public void processElement1(Event e, Context ctx, Collector<String> out) {
            ctx.timerService().registerEventTimeTimer(ctx.timestamp() + 5);
            out.collect(Json.row(ctx.getCurrentKey(), 1, e.seq, ctx.timerService().currentWatermark()));
        }

        @Override
        public void processElement2(Event e, Context ctx, Collector<String> out) {
            ctx.timerService().registerEventTimeTimer(ctx.timestamp() + 9);
            out.collect(Json.row(ctx.getCurrentKey(), 2, e.seq, ctx.timerService().currentWatermark()));
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<String> out) {
            out.collect(Json.row(ctx.getCurrentKey(), "timer", timestamp, ctx.timerService().currentWatermark()));
        }
    }

    static class Latest extends RichCoFlatMapFunction<Event, Event, String> {
        private transient ValueState<Integer> latest;

        @Override
        public void open(OpenContext context) {
            latest = getRuntimeContext().getState(new ValueStateDescriptor<>("latest", Types.INT));
        }

        @Override
        public void flatMap1(Event e, Collector<String> out) throws Exception {
            if (latest.value() != null) {
                out.collect(Json.row(e.key, e.seq, latest.value()));
            }
        }

        @Override
        public void flatMap2(Event e, Collector<String> out) throws Exception {
            latest.update(e.seq);
        }
    }

    static Object sorted(ReadOnlyBroadcastState<String, Integer> rules) throws Exception {
        Map<String, Integer> found = new TreeMap<>();
        rules.immutableEntries().forEach(entry -> found.put(entry.getKey(), entry.getValue()));
        return found;
    }

    static class Ruled extends KeyedBroadcastProcessFunction<String, Event, Event, String> {
        private final ListStateDescriptor<Integer> seen = new ListStateDescriptor<>("seen", Types.INT);

        @Override
        public void processElement(Event e, ReadOnlyContext ctx, Collector<String> out) throws Exception {
            getRuntimeContext().getListState(seen).add(e.seq);
            ctx.timerService().registerEventTimeTimer(ctx.timestamp() + 25);
            out.collect(Json.row(ctx.getCurrentKey(), "element", e.seq, sorted(ctx.getBroadcastState(RULES)), ctx.timestamp()));
        }

        @Override
        public void processBroadcastElement(Event e, Context ctx, Collector<String> out) throws Exception {
            ctx.getBroadcastState(RULES).put(e.key, e.value);
            if (e.value < 3) {
                ctx.getBroadcastState(RULES).remove("a");
            }
            ctx.applyToKeyedState(seen, (key, state) -> {
                List<Object> now = new ArrayList<>();
                state.get().forEach(now::add);
                out.collect(Json.row(key, "rule", e.seq, now));
                if (e.value > 5) {
                    state.clear();
                }
            });
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<String> out) throws Exception {
            out.collect(Json.row(ctx.getCurrentKey(), "timer", timestamp, sorted(ctx.getBroadcastState(RULES)),
                getRuntimeContext().getListState(seen).get()));
        }
    }

    static void register() {
        Parity.paced("keyed_co_process", 10, (in, out) -> {
            var results = Joins.keyed(in, "left").connect(Joins.keyed(in, "right")).process(new Ledger());
            out.add("main", results);
            out.add("side", results.getSideOutput(Timers.SIDE));
        });
        Parity.paced("co_process_watermarks", 10, (in, out) -> out.add("main",
            Joins.keyed(in, "left").connect(Joins.keyed(in, "right")).process(new Watermarks())));
        Parity.paced("co_map", 10, (in, out) -> out.add("main",
            Joins.of(in, "left").connect(Joins.of(in, "right")).map(new CoMapFunction<Event, Event, String>() {
                @Override
                public String map1(Event e) {
                    return Json.row("all", 1, e.seq);
                }

                @Override
                public String map2(Event e) {
                    return Json.row("all", 2, e.seq);
                }
            })));
        Parity.paced("co_flat_map_keyed", 10, (in, out) -> out.add("main",
            Joins.keyed(in, "left").connect(Joins.keyed(in, "right")).flatMap(new Latest())));
        Parity.paced("co_process", 10, (in, out) -> out.add("main",
            Joins.of(in, "left").connect(Joins.of(in, "right")).process(new CoProcessFunction<Event, Event, String>() {
                @Override
                public void processElement1(Event e, Context ctx, Collector<String> out) {
                    out.collect(Json.row("all", 1, e.seq, ctx.timestamp(), ctx.timerService().currentWatermark()));
                }

                @Override
                public void processElement2(Event e, Context ctx, Collector<String> out) {
                    out.collect(Json.row("all", 2, e.seq, ctx.timestamp(), ctx.timerService().currentWatermark()));
                }
            })));
        Parity.paced("broadcast_keyed", 10, (in, out) -> out.add("main",
            Windows.byKey(in.filter(e -> !e.kind.equals("rule"))).connect(Joins.of(in, "rule").broadcast(RULES))
                .process(new Ruled())));
        Parity.paced("broadcast", 10, (in, out) -> out.add("main",
            in.filter(e -> !e.kind.equals("rule")).connect(Joins.of(in, "rule").broadcast(RULES))
                .process(new BroadcastProcessFunction<Event, Event, String>() {
                    @Override
                    public void processElement(Event e, ReadOnlyContext ctx, Collector<String> out) throws Exception {
                        out.collect(Json.row(e.key, e.seq, sorted(ctx.getBroadcastState(RULES)), ctx.currentWatermark()));
                    }

                    @Override
                    public void processBroadcastElement(Event e, Context ctx, Collector<String> out) throws Exception {
                        ctx.getBroadcastState(RULES).put(e.key, e.value + e.seq);
                    }
                })));
        Parity.paced("union", 10, (in, out) -> out.add("main",
            Windows.byKey(Joins.of(in, "right").union(Joins.of(in, "rule"), Joins.of(in, "left")))
                .process(new Timers.Arrivals(12))));
    }
}
