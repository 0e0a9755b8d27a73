import static java.time.Duration.ofMillis;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.stream.StreamSupport;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.functions.windowing.ProcessAllWindowFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.functions.windowing.WindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.MergingWindowAssigner;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.triggers.EventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.Trigger;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/** Windows of time: lateness, sessions, functions and their state. */
final class Windows {
    static final OutputTag<Event> LATE = new OutputTag<>("late") {};

    private Windows() {}

    static KeyedStream<Event, String> byKey(DataStream<Event> in) {
        return in.keyBy((KeySelector<Event, String>) e -> e.key);
    }

    /** What is in the window. */
    static class Elements extends ProcessWindowFunction<Event, String, String, TimeWindow> {
        @Override
        public void process(String key, Context ctx, Iterable<Event> elements, Collector<String> out) {
            out.collect(Json.row(key, ctx.window().getStart(), ctx.window().getEnd(), Json.seqs(elements)));
        }
    }

    /** What is in the session. Flink merges sessions in the order of their hash codes, so there is none to compare. */
    static class Sorted extends ProcessWindowFunction<Event, String, String, TimeWindow> {
        @Override
        public void process(String key, Context ctx, Iterable<Event> elements, Collector<String> out) {
            List<Integer> seqs = new ArrayList<>();
            elements.forEach(e -> seqs.add(e.seq));
            seqs.sort(null);
            out.collect(Json.row(key, ctx.window().getStart(), ctx.window().getEnd(), seqs));
        }
    }

    /** The window as part of the key: what fires at one moment has no order in Flink. */
    static class ByWindow extends ProcessWindowFunction<Event, String, String, TimeWindow> {
        @Override
        public void process(String key, Context ctx, Iterable<Event> elements, Collector<String> out) {
            out.collect(Json.row(key + ctx.window().getStart(), ctx.window().getEnd(), Json.seqs(elements)));
        }
    }

    /** The watermark as well, and when the window goes. */
    static class Watermarked extends ProcessWindowFunction<Event, String, String, TimeWindow> {
        @Override
        public void process(String key, Context ctx, Iterable<Event> elements, Collector<String> out) {
            out.collect(Json.row(key, ctx.window().getStart(), Json.seqs(elements), ctx.currentWatermark()));
        }
    }

    /** Counts a window's firings in its own state, the key's windows in the key's. */
    static class Counting extends ProcessWindowFunction<Event, String, String, TimeWindow> {
        private final ValueStateDescriptor<Integer> firings = new ValueStateDescriptor<>("firings", Types.INT);
        private final ListStateDescriptor<Integer> seen = new ListStateDescriptor<>("seen", Types.INT);
        private final ValueStateDescriptor<Integer> cleared = new ValueStateDescriptor<>("cleared", Types.INT);
        private final ListStateDescriptor<Long> all = new ListStateDescriptor<>("all", Types.LONG);

        @Override
        public void process(String key, Context ctx, Iterable<Event> elements, Collector<String> out) throws Exception {
            ValueState<Integer> count = ctx.windowState().getState(firings);
            count.update(count.value() == null ? 1 : count.value() + 1);
            ListState<Integer> sizes = ctx.windowState().getListState(seen);
            sizes.add((int) StreamSupport.stream(elements.spliterator(), false).count());
            ListState<Long> windows = ctx.globalState().getListState(all);
            windows.add(ctx.window().getStart());
            out.collect(Json.row(
                key, ctx.window().getStart(), count.value(), sizes.get(), windows.get(),
                ctx.globalState().getState(cleared).value()));
        }

        @Override
        public void clear(Context ctx) throws Exception {
            ValueState<Integer> count = ctx.windowState().getState(firings);
            ValueState<Integer> gone = ctx.globalState().getState(cleared);
            gone.update((gone.value() == null ? 0 : gone.value()) + (count.value() == null ? 100 : count.value()));
            count.clear();
            ctx.windowState().getListState(seen).clear();
        }
    }

    /** Not commutative: shows the order. */
    static class Mixed implements AggregateFunction<Event, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 7L;
        }

        @Override
        public Long add(Event e, Long accumulator) {
            return mix(accumulator, e.seq);
        }

        @Override
        public Long getResult(Long accumulator) {
            return accumulator * 2;
        }

        @Override
        public Long merge(Long a, Long b) {
            return mix(a, b);
        }
    }

    /** Commutative, for what has no order. */
    static class Summed implements AggregateFunction<Event, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Event e, Long accumulator) {
            return accumulator + 1_000 + e.seq;
        }

        @Override
        public Long getResult(Long accumulator) {
            return accumulator;
        }

        @Override
        public Long merge(Long a, Long b) {
            return a + b;
        }
    }

    static long mix(long a, long b) {
        return (a * 31 + b) % 1_000_003;
    }

    static Event mix(Event a, Event b) {
        return new Event((int) mix(a.seq, b.seq), b.key, Math.max(a.ts, b.ts), a.value + b.value, a.kind);
    }

    static Event sum(Event a, Event b) {
        return new Event(a.seq + b.seq, b.key, Math.max(a.ts, b.ts), a.value + b.value, a.kind);
    }

    static class Summary<T> extends ProcessWindowFunction<T, String, String, TimeWindow> {
        @Override
        public void process(String key, Context ctx, Iterable<T> elements, Collector<String> out) {
            List<Object> row = Json.list(key, ctx.window().getStart(), ctx.window().getEnd());
            elements.forEach(e -> row.add(e instanceof Event ? ((Event) e).json() : e));
            out.collect(Json.text(row));
        }
    }

    /** From the element's timestamp, as long as its value says. */
    static class ByValue extends WindowAssigner<Object, TimeWindow> {
        @Override
        public Collection<TimeWindow> assignWindows(Object element, long timestamp, WindowAssignerContext context) {
            List<TimeWindow> windows = new ArrayList<>();
            for (int i = 0; i < ((Event) element).value % 3; i++) {
                windows.add(new TimeWindow(Math.floorDiv(timestamp, 40) * 40, (Math.floorDiv(timestamp, 40) + i + 1) * 40));
            }
            return windows;
        }

        @Override
        public Trigger<Object, TimeWindow> getDefaultTrigger() {
            return EventTimeTrigger.create();
        }

        @Override
        public TypeSerializer<TimeWindow> getWindowSerializer(ExecutionConfig config) {
            return new TimeWindow.Serializer();
        }

        @Override
        public boolean isEventTime() {
            return true;
        }
    }

    /** Around the element, as far as its value says; what overlaps becomes one. */
    static class Around extends MergingWindowAssigner<Object, TimeWindow> {
        @Override
        public Collection<TimeWindow> assignWindows(Object element, long timestamp, WindowAssignerContext context) {
            int value = ((Event) element).value;
            return List.of(new TimeWindow(timestamp - value, timestamp + value + 1));
        }

        @Override
        public void mergeWindows(Collection<TimeWindow> windows, MergeCallback<TimeWindow> callback) {
            TimeWindow.mergeWindows(windows, callback);
        }

        @Override
        public Trigger<Object, TimeWindow> getDefaultTrigger() {
            return EventTimeTrigger.create();
        }

        @Override
        public TypeSerializer<TimeWindow> getWindowSerializer(ExecutionConfig config) {
            return new TimeWindow.Serializer();
        }

        @Override
        public boolean isEventTime() {
            return true;
        }
    }

    static void late(Parity.Outputs out, SingleOutputStreamOperator<String> results) {
        out.add("main", results);
        out.add("late", results.getSideOutput(LATE).map(e -> Json.row(e.key, e.seq)).returns(Types.STRING));
    }

    static DataStream<String> fields(DataStream<Event> events) {
        return events.map(e -> Json.row(e.key, e.seq, e.value, e.kind)).returns(Types.STRING);
    }

    static void register() {
        Parity.program("tumbling_lateness", 20, (in, out) -> late(out, byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(50)))
            .allowedLateness(ofMillis(30)).sideOutputLateData(LATE).process(new Elements())));
        Parity.program("tumbling_no_lateness", 5, (in, out) -> late(out, byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(30), ofMillis(7)))
            .sideOutputLateData(LATE).process(new Elements())));
        Parity.program("sliding_lateness", 15, (in, out) -> late(out, byKey(in)
            .window(SlidingEventTimeWindows.of(ofMillis(60), ofMillis(25)))
            .allowedLateness(ofMillis(20)).sideOutputLateData(LATE).process(new Elements())));
        Parity.program("sliding_gaps", 10, (in, out) -> late(out, byKey(in) // shorter than its slide: some are in no window
            .window(SlidingEventTimeWindows.of(ofMillis(20), ofMillis(50), ofMillis(-10)))
            .allowedLateness(ofMillis(10)).sideOutputLateData(LATE).process(new Elements())));
        Parity.program("session_lateness", 10, (in, out) -> late(out, byKey(in)
            .window(EventTimeSessionWindows.withGap(ofMillis(12)))
            .allowedLateness(ofMillis(40)).sideOutputLateData(LATE).process(new Sorted())));
        Parity.program("session_reduce_lateness", 10, (in, out) -> late(out, byKey(in)
            .window(EventTimeSessionWindows.withGap(ofMillis(15)))
            .allowedLateness(ofMillis(100)).sideOutputLateData(LATE)
            .reduce((a, b) -> sum(a, b), new Summary<Event>())));
        Parity.program("session_dynamic_gap", 10, (in, out) -> late(out, byKey(in)
            .window(EventTimeSessionWindows.withDynamicGap((Event e) -> 3 + 4L * e.value))
            .allowedLateness(ofMillis(25)).sideOutputLateData(LATE).process(new Sorted())));
        Parity.program("custom_assigner", 10, (in, out) -> late(out, byKey(in)
            .window(new ByValue())
            .allowedLateness(ofMillis(15)).sideOutputLateData(LATE).process(new ByWindow())));
        Parity.program("custom_merging_assigner", 10, (in, out) -> late(out, byKey(in)
            .window(new Around())
            .allowedLateness(ofMillis(30)).sideOutputLateData(LATE).process(new Sorted())));
        Parity.program("window_state", 10, (in, out) -> out.add("main", byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(40)))
            .allowedLateness(ofMillis(35)).process(new Counting())));
        Parity.program("window_watermark", 10, (in, out) -> out.add("main", byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(40)))
            .allowedLateness(ofMillis(60)).process(new Watermarked())));
        Parity.program("aggregate_process", 10, (in, out) -> late(out, byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(50)))
            .allowedLateness(ofMillis(30)).sideOutputLateData(LATE).aggregate(new Mixed(), new Summary<Long>())));
        Parity.program("aggregate_session", 10, (in, out) -> late(out, byKey(in)
            .window(EventTimeSessionWindows.withGap(ofMillis(10)))
            .allowedLateness(ofMillis(50)).sideOutputLateData(LATE).aggregate(new Summed(), new Summary<Long>())));
        Parity.program("reduce_process", 10, (in, out) -> out.add("main", byKey(in)
            .window(SlidingEventTimeWindows.of(ofMillis(60), ofMillis(20)))
            .allowedLateness(ofMillis(30)).reduce((a, b) -> mix(a, b), new Summary<Event>())));
        Parity.program("reduce_alone", 10, (in, out) -> out.add("main", fields(byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(50)))
            .allowedLateness(ofMillis(30)).reduce((a, b) -> mix(a, b)))));
        Parity.program("apply_window", 10, (in, out) -> out.add("main", byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(50)))
            .apply(new WindowFunction<Event, String, String, TimeWindow>() {
                @Override
                public void apply(String key, TimeWindow window, Iterable<Event> input, Collector<String> out) {
                    input.forEach(e -> out.collect(Json.row(key, window.getStart(), e.seq)));
                }
            })));
        Parity.program("window_fields", 10, (in, out) -> {
            var windows = byKey(in).window(TumblingEventTimeWindows.of(ofMillis(50))).allowedLateness(ofMillis(30));
            out.add("sum", fields(windows.sum("value")));
            out.add("min", fields(windows.min("value")));
            out.add("max", fields(windows.max("value")));
            out.add("min_by", fields(windows.minBy("value")));
            out.add("max_by", fields(windows.maxBy("value")));
        });
        Parity.program("window_all", 10, (in, out) -> out.add("main", in
            .windowAll(TumblingEventTimeWindows.of(ofMillis(35))).allowedLateness(ofMillis(20))
            .process(new ProcessAllWindowFunction<Event, String, TimeWindow>() {
                @Override
                public void process(Context ctx, Iterable<Event> elements, Collector<String> out) {
                    out.collect(Json.row("all", ctx.window().getStart(), Json.seqs(elements)));
                }
            })));
        Parity.program("windows_behind_windows", 10, (in, out) -> out.add("main", byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(20))).allowedLateness(ofMillis(25)).reduce((a, b) -> mix(a, b))
            .keyBy((KeySelector<Event, String>) e -> e.key)
            .window(TumblingEventTimeWindows.of(ofMillis(60))).allowedLateness(ofMillis(30)).process(new Elements())));
        Parity.program("two_stages_by_another_key", 10, (in, out) -> late(out, byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(20))).allowedLateness(ofMillis(25)).reduce((a, b) -> mix(a, b))
            .keyBy((KeySelector<Event, String>) e -> e.kind)
            .window(SlidingEventTimeWindows.of(ofMillis(80), ofMillis(40))).sideOutputLateData(LATE)
            .aggregate(new Summed(), new Summary<Long>())));
    }
}
