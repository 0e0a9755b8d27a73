import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/** Keyed functions: timers, state, watermarks, rolling aggregates. */
final class Timers {
    static final OutputTag<String> SIDE = new OutputTag<>("side") {};

    private Timers() {}

    static class Arrivals extends KeyedProcessFunction<String, Event, String> {
        private final long delay;
        private transient ListState<Integer> seen;

        Arrivals(long delay) {
            this.delay = delay;
        }

        @Override
        public void open(OpenContext context) {
            seen = getRuntimeContext().getListState(new ListStateDescriptor<>("seen", Types.INT));
        }

        @Override
        public void processElement(Event e, Context ctx, Collector<String> out) throws Exception {
            seen.add(e.seq);
            ctx.timerService().registerEventTimeTimer(ctx.timestamp() + delay);
            out.collect(Json.row(ctx.getCurrentKey(), "element", e.seq));
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<String> out) throws Exception {
            out.collect(Json.row(ctx.getCurrentKey(), "timer", timestamp, ctx.timestamp(), seen.get(), ctx.timeDomain()));
        }
    }

    static class Watermarks extends KeyedProcessFunction<String, Event, String> {
        @Override
        public void processElement(Event e, Context ctx, Collector<String> out) {
            ctx.timerService().registerEventTimeTimer(ctx.timestamp() + 6);
            out.collect(Json.row(ctx.getCurrentKey(), "element", e.seq, ctx.timerService().currentWatermark()));
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<String> out) {
            out.collect(Json.row(ctx.getCurrentKey(), "timer", timestamp, ctx.timerService().currentWatermark()));
        }
    }

    /** Says when nothing was heard of a key for a time. */
    static class Quiet extends KeyedProcessFunction<String, Event, String> {
        private transient ValueState<Long> last;

        @Override
        public void open(OpenContext context) {
            last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Types.LONG));
        }

        @Override
        public void processElement(Event e, Context ctx, Collector<String> out) throws Exception {
            if (last.value() != null) {
                ctx.timerService().deleteEventTimeTimer(last.value() + 15);
            }
            last.update(ctx.timestamp());
            ctx.timerService().registerEventTimeTimer(ctx.timestamp() + 15);
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<String> out) throws Exception {
            out.collect(Json.row(ctx.getCurrentKey(), timestamp, last.value()));
            last.clear();
        }
    }

    /** Timers that register timers, ahead and in the past. */
    static class Chained extends KeyedProcessFunction<String, Event, String> {
        private transient ValueState<Integer> fuel;

        @Override
        public void open(OpenContext context) {
            fuel = getRuntimeContext().getState(new ValueStateDescriptor<>("fuel", Types.INT));
        }

        @Override
        public void processElement(Event e, Context ctx, Collector<String> out) throws Exception {
            fuel.update(e.value % 4);
            ctx.timerService().registerEventTimeTimer(ctx.timestamp() + e.value);
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<String> out) throws Exception {
            int left = fuel.value();
            out.collect(Json.row(ctx.getCurrentKey(), timestamp, left));
            if (left > 0) {
                fuel.update(left - 1);
                ctx.timerService().registerEventTimeTimer(timestamp + 9);
                if (left == 2) {
                    ctx.timerService().registerEventTimeTimer(timestamp - 4);
                }
                if (left == 3) {
                    ctx.timerService().deleteEventTimeTimer(timestamp + 1);
                }
            }
        }
    }

    /** Timers for the past, for now, for the next millisecond and for the end of time. */
    static class Due extends KeyedProcessFunction<String, Event, String> {
        @Override
        public void processElement(Event e, Context ctx, Collector<String> out) {
            long now = ctx.timerService().currentWatermark();
            if (now > Long.MIN_VALUE) {
                ctx.timerService().registerEventTimeTimer(now - e.value);
                ctx.timerService().registerEventTimeTimer(now);
                ctx.timerService().registerEventTimeTimer(now + 1);
            }
            ctx.timerService().registerEventTimeTimer(Long.MAX_VALUE);
            ctx.timerService().registerEventTimeTimer(1L << 50);
            out.collect(Json.row(ctx.getCurrentKey(), "element", e.seq));
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<String> out) {
            out.collect(Json.row(ctx.getCurrentKey(), "timer", timestamp, ctx.timestamp()));
        }
    }

    /** All kinds of state, and a side output from elements and timers. */
    static class States extends KeyedProcessFunction<String, Event, String> {
        private transient ListState<Integer> list;
        private transient MapState<String, Integer> map;
        private transient ReducingState<Long> reduced;
        private transient AggregatingState<Event, Long> mixed;

        @Override
        public void open(OpenContext context) {
            list = getRuntimeContext().getListState(new ListStateDescriptor<>("list", Types.INT));
            map = getRuntimeContext().getMapState(new MapStateDescriptor<>("map", Types.STRING, Types.INT));
            reduced = getRuntimeContext().getReducingState(
                new ReducingStateDescriptor<>("reduced", (a, b) -> Windows.mix(a, b), Types.LONG));
            mixed = getRuntimeContext().getAggregatingState(
                new AggregatingStateDescriptor<>("mixed", new Windows.Mixed(), Types.LONG));
        }

        @Override
        public void processElement(Event e, Context ctx, Collector<String> out) throws Exception {
            list.add(e.seq);
            map.put(e.kind, map.contains(e.kind) ? map.get(e.kind) + 1 : 1);
            reduced.add((long) e.seq);
            mixed.add(e);
            ctx.timerService().registerEventTimeTimer(Math.floorDiv(ctx.timestamp(), 30) * 30 + 29);
            if (e.value > 6) {
                ctx.output(SIDE, Json.row(ctx.getCurrentKey(), "high", e.seq));
            }
            if (e.value == 0) {
                map.remove(e.kind);
                list.update(List.of(-1, -2));
            }
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<String> out) throws Exception {
            Map<String, Integer> sorted = new TreeMap<>();
            map.entries().forEach(entry -> sorted.put(entry.getKey(), entry.getValue()));
            out.collect(Json.row(ctx.getCurrentKey(), timestamp, list.get(), sorted, reduced.get(), mixed.get()));
            ctx.output(SIDE, Json.row(ctx.getCurrentKey(), "timer", timestamp));
            if (timestamp % 20 == 9) {
                list.clear();
                map.clear();
                reduced.clear();
                mixed.clear();
            }
        }
    }

    /** Holds elements until the watermark has passed them, and lets them go in the order of their timestamps. */
    static class InOrder extends KeyedProcessFunction<String, Event, String> {
        private transient MapState<Long, List<Integer>> held;

        @Override
        public void open(OpenContext context) {
            held = getRuntimeContext().getMapState(new MapStateDescriptor<>("held", Types.LONG, Types.LIST(Types.INT)));
        }

        @Override
        public void processElement(Event e, Context ctx, Collector<String> out) throws Exception {
            if (ctx.timestamp() <= ctx.timerService().currentWatermark()) {
                ctx.output(SIDE, Json.row(ctx.getCurrentKey(), e.seq));
                return;
            }
            List<Integer> same = held.get(ctx.timestamp());
            same = same == null ? new ArrayList<>() : new ArrayList<>(same);
            same.add(e.seq);
            held.put(ctx.timestamp(), same);
            ctx.timerService().registerEventTimeTimer(ctx.timestamp());
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<String> out) throws Exception {
            for (int seq : held.get(timestamp)) {
                out.collect(Json.row(ctx.getCurrentKey(), seq));
            }
            held.remove(timestamp);
        }
    }

    /** A timer that emits events, for another function behind. */
    static class Echo extends KeyedProcessFunction<String, Event, Event> {
        @Override
        public void processElement(Event e, Context ctx, Collector<Event> out) {
            out.collect(e);
            ctx.timerService().registerEventTimeTimer(ctx.timestamp() + 8 + e.value);
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext ctx, Collector<Event> out) {
            out.collect(new Event(-1, ctx.getCurrentKey(), timestamp, 0, "echo"));
        }
    }

    static class Running extends RichFlatMapFunction<Event, String> {
        private transient ValueState<Integer> sum;

        @Override
        public void open(OpenContext context) {
            sum = getRuntimeContext().getState(new ValueStateDescriptor<>("sum", Types.INT));
        }

        @Override
        public void flatMap(Event e, Collector<String> out) throws Exception {
            int now = (sum.value() == null ? 0 : sum.value()) + e.value;
            for (int i = 0; i < e.value % 3; i++) {
                out.collect(Json.row(e.key, e.seq, now, i));
            }
            if (now > 20) {
                sum.clear();
            } else {
                sum.update(now);
            }
        }
    }

    /** A watermark only behind elements that say so, sometimes one that goes back. */
    static class Punctuated implements WatermarkGenerator<Event> {
        @Override
        public void onEvent(Event e, long timestamp, WatermarkOutput output) {
            if (e.kind.equals("rule")) {
                output.emitWatermark(new Watermark(timestamp - 3));
            } else if (e.value == 9) {
                output.emitWatermark(new Watermark(timestamp - 60));
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    static void register() {
        Parity.program("timers_arrival_order", 10, (in, out) ->
            out.add("main", Windows.byKey(in).process(new Arrivals(20))));
        Parity.program("timers_at_once", 10, (in, out) ->
            out.add("main", Windows.byKey(in).process(new Arrivals(-30))));
        Parity.program("watermark_seen", 10, (in, out) ->
            out.add("main", Windows.byKey(in).process(new Watermarks())));
        Parity.program("timers_deleted", 10, (in, out) -> out.add("main", Windows.byKey(in).process(new Quiet())));
        Parity.program("timers_in_timers", 10, (in, out) -> out.add("main", Windows.byKey(in).process(new Chained())));
        Parity.program("timers_due", 10, (in, out) -> out.add("main", Windows.byKey(in).process(new Due())));
        Parity.program("state_kinds", 10, (in, out) -> {
            var results = Windows.byKey(in).process(new States());
            out.add("main", results);
            out.add("side", results.getSideOutput(SIDE));
        });
        Parity.program("temporal_order", 25, (in, out) -> {
            var results = Windows.byKey(in).process(new InOrder());
            out.add("main", results);
            out.add("side", results.getSideOutput(SIDE));
        });
        Parity.program("timers_behind_timers", 10, (in, out) -> out.add("main", Windows.byKey(in).process(new Echo())
            .keyBy((KeySelector<Event, String>) e -> e.key).process(new Arrivals(11))));
        Parity.program("watermark_behind_timers", 10, (in, out) -> out.add("main", Windows.byKey(in).process(new Echo())
            .keyBy((KeySelector<Event, String>) e -> e.key).process(new Watermarks())));
        Parity.program("windows_behind_timers", 10, (in, out) -> Windows.late(out, Windows.byKey(in).process(new Echo())
            .keyBy((KeySelector<Event, String>) e -> e.key)
            .window(org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows.of(
                java.time.Duration.ofMillis(20)))
            .sideOutputLateData(Windows.LATE).process(new Windows.Elements())));
        Parity.program("process_without_key", 10, (in, out) -> {
            var results = in.process(new ProcessFunction<Event, String>() {
                @Override
                public void processElement(Event e, Context ctx, Collector<String> out) {
                    out.collect(Json.row("all", e.seq, ctx.timestamp(), ctx.timerService().currentWatermark()));
                    if (e.value > 6) {
                        ctx.output(SIDE, Json.row("all", e.seq));
                    }
                }
            });
            out.add("main", results);
            out.add("side", results.getSideOutput(SIDE));
        });
        Parity.program("keyed_flat_map", 10, (in, out) ->
            out.add("main", Windows.byKey(in).flatMap(new Running())));
        Parity.program("keyed_reduce", 10, (in, out) ->
            out.add("main", Windows.fields(Windows.byKey(in).reduce((a, b) -> Windows.mix(a, b)))));
        Parity.program("rolling_fields", 10, (in, out) -> {
            out.add("sum", Windows.fields(Windows.byKey(in).sum("value")));
            out.add("min", Windows.fields(Windows.byKey(in).min("value")));
            out.add("max", Windows.fields(Windows.byKey(in).max("value")));
            out.add("min_by", Windows.fields(Windows.byKey(in).minBy("value")));
            out.add("max_by", Windows.fields(Windows.byKey(in).maxBy("value")));
        });
        Parity.watermarks("punctuated_watermarks", WatermarkStrategy.forGenerator(ctx -> new Punctuated()), (in, out) ->
            out.add("main", Windows.byKey(in).process(new Arrivals(20))));
        Parity.watermarks("no_watermarks", WatermarkStrategy.noWatermarks(), (in, out) ->
            out.add("main", Windows.byKey(in).process(new Arrivals(20))));
    }
}
