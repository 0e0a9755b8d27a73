import static java.time.Duration.ofMillis;

import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.GlobalWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.evictors.DeltaEvictor;
import org.apache.flink.streaming.api.windowing.evictors.Evictor;
import org.apache.flink.streaming.api.windowing.evictors.TimeEvictor;
import org.apache.flink.streaming.api.windowing.triggers.ContinuousEventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.CountTrigger;
import org.apache.flink.streaming.api.windowing.triggers.DeltaTrigger;
import org.apache.flink.streaming.api.windowing.triggers.EventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.PurgingTrigger;
import org.apache.flink.streaming.api.windowing.triggers.Trigger;
import org.apache.flink.streaming.api.windowing.triggers.TriggerResult;
import org.apache.flink.streaming.api.windowing.windows.GlobalWindow;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.api.windowing.windows.Window;
import org.apache.flink.streaming.runtime.operators.windowing.TimestampedValue;
import org.apache.flink.util.Collector;

/** Triggers and evictors, windows of counts. */
final class Triggers {
    private Triggers() {}

    static class Any<W extends Window> extends ProcessWindowFunction<Event, String, String, W> {
        @Override
        public void process(String key, Context ctx, Iterable<Event> elements, Collector<String> out) {
            out.collect(Json.row(key, ctx.window().maxTimestamp(), Json.seqs(elements)));
        }
    }

    /** Fires early at a high value and 10 ms of event time behind it, once; empties the window at a low one. */
    static class Custom extends Trigger<Event, TimeWindow> {
        private final ValueStateDescriptor<Long> early = new ValueStateDescriptor<>("early", Types.LONG);

        @Override
        public TriggerResult onElement(Event e, long timestamp, TimeWindow window, TriggerContext ctx) throws Exception {
            if (window.maxTimestamp() <= ctx.getCurrentWatermark()) {
                return TriggerResult.FIRE;
            }
            ctx.registerEventTimeTimer(window.maxTimestamp());
            ValueState<Long> at = ctx.getPartitionedState(early);
            if (e.value >= 7) {
                if (at.value() != null) {
                    ctx.deleteEventTimeTimer(at.value());
                }
                long then = Math.min(timestamp + 10, window.maxTimestamp());
                ctx.registerEventTimeTimer(then);
                at.update(then);
                return TriggerResult.FIRE;
            }
            return e.value == 0 ? TriggerResult.PURGE : TriggerResult.CONTINUE;
        }

        @Override
        public TriggerResult onEventTime(long time, TimeWindow window, TriggerContext ctx) throws Exception {
            ValueState<Long> at = ctx.getPartitionedState(early);
            if (time == window.maxTimestamp()) {
                return TriggerResult.FIRE;
            }
            if (at.value() != null && at.value() == time) {
                at.clear();
                return TriggerResult.FIRE_AND_PURGE;
            }
            return TriggerResult.CONTINUE;
        }

        @Override
        public TriggerResult onProcessingTime(long time, TimeWindow window, TriggerContext ctx) {
            return TriggerResult.CONTINUE;
        }

        @Override
        public void clear(TimeWindow window, TriggerContext ctx) throws Exception {
            ValueState<Long> at = ctx.getPartitionedState(early);
            if (at.value() != null) {
                ctx.deleteEventTimeTimer(at.value());
                at.clear();
            }
            ctx.deleteEventTimeTimer(window.maxTimestamp());
        }
    }

    /** Takes out all elements of low value, which may be all there are. */
    static class Low implements Evictor<Event, TimeWindow> {
        @Override
        public void evictBefore(
            Iterable<TimestampedValue<Event>> elements, int size, TimeWindow window, EvictorContext ctx) {
            for (var all = elements.iterator(); all.hasNext(); ) {
                if (all.next().getValue().value < 6) {
                    all.remove();
                }
            }
        }

        @Override
        public void evictAfter(
            Iterable<TimestampedValue<Event>> elements, int size, TimeWindow window, EvictorContext ctx) {
            for (var all = elements.iterator(); all.hasNext(); ) {
                if (all.next().getTimestamp() > ctx.getCurrentWatermark() - 20) {
                    all.remove();
                }
            }
        }
    }

    static double apart(Event a, Event b) {
        return Math.abs(a.value - b.value);
    }

    static void register() {
        registerTriggers();
        registerEvictors();
    }

    private static void registerTriggers() {
        Parity.program("continuous_trigger", 10, (in, out) -> Windows.late(out, Windows.byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(100))).trigger(ContinuousEventTimeTrigger.of(ofMillis(15)))
            .allowedLateness(ofMillis(30)).sideOutputLateData(Windows.LATE).process(new Windows.Elements())));
        Parity.program("continuous_trigger_sessions", 10, (in, out) -> Windows.late(out, Windows.byKey(in)
            .window(EventTimeSessionWindows.withGap(ofMillis(20))).trigger(ContinuousEventTimeTrigger.of(ofMillis(15)))
            .allowedLateness(ofMillis(30)).sideOutputLateData(Windows.LATE).process(new Windows.Sorted())));
        Parity.program("count_trigger_sessions", 10, (in, out) -> Windows.late(out, Windows.byKey(in)
            .window(EventTimeSessionWindows.withGap(ofMillis(12))).trigger(CountTrigger.of(3))
            .allowedLateness(ofMillis(30)).sideOutputLateData(Windows.LATE).process(new Windows.Sorted())));
        Parity.program("count_trigger_sliding", 10, (in, out) -> Windows.late(out, Windows.byKey(in)
            .window(SlidingEventTimeWindows.of(ofMillis(60), ofMillis(20))).trigger(CountTrigger.of(2))
            .allowedLateness(ofMillis(30)).sideOutputLateData(Windows.LATE).process(new Windows.Elements())));
        Parity.program("purging_event_time", 10, (in, out) -> Windows.late(out, Windows.byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(40))).trigger(PurgingTrigger.of(EventTimeTrigger.create()))
            .allowedLateness(ofMillis(60)).sideOutputLateData(Windows.LATE).process(new Windows.Elements())));
        Parity.program("purging_event_time_sessions", 10, (in, out) -> Windows.late(out, Windows.byKey(in)
            .window(EventTimeSessionWindows.withGap(ofMillis(15))).trigger(PurgingTrigger.of(EventTimeTrigger.create()))
            .allowedLateness(ofMillis(60)).sideOutputLateData(Windows.LATE).process(new Windows.Sorted())));
        Parity.program("purging_count", 10, (in, out) -> out.add("main", Windows.byKey(in)
            .window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(4)))
            .process(new Any<GlobalWindow>())));
        Parity.program("delta_trigger", 10, (in, out) -> out.add("main", Windows.byKey(in)
            .window(GlobalWindows.create())
            .trigger(DeltaTrigger.of(4, Triggers::apart, TypeInformation.of(Event.class).createSerializer(new SerializerConfigImpl())))
            .process(new Any<GlobalWindow>())));
        Parity.program("purging_delta_tumbling", 10, (in, out) -> out.add("main", Windows.byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(100)))
            .trigger(PurgingTrigger.of(DeltaTrigger.of(
                3, Triggers::apart, TypeInformation.of(Event.class).createSerializer(new SerializerConfigImpl()))))
            .allowedLateness(ofMillis(30)).process(new Windows.Elements())));
        Parity.program("never_trigger", 10, (in, out) -> out.add("main", Windows.byKey(in)
            .window(GlobalWindows.create()).process(new Any<GlobalWindow>())));
        Parity.program("custom_trigger", 10, (in, out) -> Windows.late(out, Windows.byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(60))).trigger(new Custom())
            .allowedLateness(ofMillis(40)).sideOutputLateData(Windows.LATE).process(new Windows.Elements())));
        Parity.program("count_tumbling", 10, (in, out) -> out.add("main", Windows.byKey(in)
            .countWindow(4).process(new Any<GlobalWindow>())));
        Parity.program("count_sliding", 10, (in, out) -> out.add("main", Windows.byKey(in)
            .countWindow(5, 2).process(new Any<GlobalWindow>())));
        Parity.program("count_sliding_reduce", 10, (in, out) -> out.add("main", Windows.fields(Windows.byKey(in)
            .countWindow(3, 2).reduce((a, b) -> Windows.mix(a, b)))));
    }

    private static void registerEvictors() {
        Parity.program("custom_evictor", 10, (in, out) -> out.add("main", Windows.byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(30))).evictor(new Low())
            .allowedLateness(ofMillis(60)).process(new Windows.Elements())));
        Parity.program("custom_evictor_aggregate", 10, (in, out) -> out.add("main", Windows.byKey(in)
            .window(TumblingEventTimeWindows.of(ofMillis(30))).evictor(new Low())
            .allowedLateness(ofMillis(60)).aggregate(new Windows.Mixed(), new Windows.Summary<Long>())));
        for (boolean after : new boolean[] {false, true}) {
            String when = after ? "after" : "before";
            Parity.program("evictor_count_" + when, 10, (in, out) -> Windows.late(out, Windows.byKey(in)
                .window(TumblingEventTimeWindows.of(ofMillis(50))).evictor(CountEvictor.of(2, after))
                .allowedLateness(ofMillis(60)).sideOutputLateData(Windows.LATE).process(new Windows.Elements())));
            Parity.program("evictor_time_" + when, 10, (in, out) -> out.add("main", Windows.byKey(in)
                .window(GlobalWindows.create()).trigger(CountTrigger.of(3)).evictor(TimeEvictor.of(ofMillis(25), after))
                .process(new Any<GlobalWindow>())));
            Parity.program("evictor_delta_" + when, 10, (in, out) -> out.add("main", Windows.byKey(in)
                .window(SlidingEventTimeWindows.of(ofMillis(60), ofMillis(30))).trigger(CountTrigger.of(2))
                .evictor(DeltaEvictor.of(4, Triggers::apart, after))
                .allowedLateness(ofMillis(30)).process(new Windows.Elements())));
            Parity.program("evictor_sessions_" + when, 10, (in, out) -> out.add("main", Windows.byKey(in)
                .window(EventTimeSessionWindows.withGap(ofMillis(15))).evictor(TimeEvictor.of(ofMillis(12), after))
                .allowedLateness(ofMillis(60)).process(new Windows.Sorted())));
            Parity.program("evictor_reduce_" + when, 10, (in, out) -> out.add("main", Windows.byKey(in)
                .window(TumblingEventTimeWindows.of(ofMillis(50))).evictor(CountEvictor.of(3, after))
                .allowedLateness(ofMillis(60)).reduce((a, b) -> Windows.mix(a, b), new Windows.Summary<Event>())));
            Parity.program("evictor_aggregate_" + when, 10, (in, out) -> out.add("main", Windows.byKey(in)
                .window(TumblingEventTimeWindows.of(ofMillis(50))).evictor(CountEvictor.of(3, after))
                .allowedLateness(ofMillis(60)).aggregate(new Windows.Mixed(), new Windows.Summary<Long>())));
        }
    }
}
