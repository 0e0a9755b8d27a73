import static java.time.Duration.ofMillis;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.functions.CoGroupFunction;
import org.apache.flink.api.common.functions.FlatJoinFunction;
import org.apache.flink.api.common.functions.JoinFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.GlobalWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.triggers.CountTrigger;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/** Joins of the events of kind left with those of kind right. */
final class Joins {
    static final OutputTag<Event> LEFT_LATE = new OutputTag<>("left-late") {};
    static final OutputTag<Event> RIGHT_LATE = new OutputTag<>("right-late") {};

    private Joins() {}

    static DataStream<Event> of(DataStream<Event> in, String kind) {
        return in.filter(e -> e.kind.equals(kind));
    }

    static KeyedStream<Event, String> keyed(DataStream<Event> in, String kind) {
        return Windows.byKey(of(in, kind));
    }

    /** The pair as part of the key: Flink gives an element's matches in the order of hash codes. */
    static class Pairs extends ProcessJoinFunction<Event, Event, String> {
        @Override
        public void processElement(Event left, Event right, Context ctx, Collector<String> out) {
            out.collect(Json.row(left.key + left.seq + "-" + right.seq, ctx.getLeftTimestamp(), ctx.getRightTimestamp(), ctx.getTimestamp()));
        }
    }

    /** Which element the pair came with: that has an order. */
    static class Latter extends ProcessJoinFunction<Event, Event, String> {
        @Override
        public void processElement(Event left, Event right, Context ctx, Collector<String> out) {
            out.collect(Json.row(left.key, Math.max(left.seq, right.seq)));
        }
    }

    static void intervals(Parity.Outputs out, KeyedStream.IntervalJoined<Event, Event, String> joined) {
        SingleOutputStreamOperator<String> pairs =
            joined.sideOutputLeftLateData(LEFT_LATE).sideOutputRightLateData(RIGHT_LATE).process(new Pairs());
        out.add("main", pairs);
        out.add("left", pairs.getSideOutput(LEFT_LATE).map(e -> Json.row(e.key, e.seq)).returns(Types.STRING));
        out.add("right", pairs.getSideOutput(RIGHT_LATE).map(e -> Json.row(e.key, e.seq)).returns(Types.STRING));
    }

    static final JoinFunction<Event, Event, String> PAIR = (l, r) -> Json.row(l.key, l.seq, r.seq);
    static final JoinFunction<Event, Event, String> PAIR_AS_KEY = (l, r) -> Json.row(l.key + l.seq + "-" + r.seq);

    static class Both implements CoGroupFunction<Event, Event, String> {
        private final boolean sorted;

        Both(boolean sorted) {
            this.sorted = sorted;
        }

        @Override
        public void coGroup(Iterable<Event> left, Iterable<Event> right, Collector<String> out) {
            String key = left.iterator().hasNext() ? left.iterator().next().key : right.iterator().next().key;
            List<Integer> ls = new ArrayList<>();
            List<Integer> rs = new ArrayList<>();
            left.forEach(e -> ls.add(e.seq));
            right.forEach(e -> rs.add(e.seq));
            if (sorted) {
                ls.sort(null);
                rs.sort(null);
            }
            out.collect(Json.row(key, ls, rs));
        }
    }

    static org.apache.flink.streaming.api.datastream.JoinedStreams.WithWindow<Event, Event, String, TimeWindow> join(
        DataStream<Event> in, WindowAssigner<Object, TimeWindow> windows) {
        return of(in, "left").join(of(in, "right"))
            .where((KeySelector<Event, String>) e -> e.key).equalTo((KeySelector<Event, String>) e -> e.key).window(windows);
    }

    static org.apache.flink.streaming.api.datastream.CoGroupedStreams.WithWindow<Event, Event, String, TimeWindow> coGroup(
        DataStream<Event> in, WindowAssigner<Object, TimeWindow> windows) {
        return of(in, "left").coGroup(of(in, "right"))
            .where((KeySelector<Event, String>) e -> e.key).equalTo((KeySelector<Event, String>) e -> e.key).window(windows);
    }

    static void register() {
        Parity.paced("interval_join", 20, (in, out) -> intervals(out,
            keyed(in, "left").intervalJoin(keyed(in, "right")).between(ofMillis(-20), ofMillis(12))));
        Parity.paced("interval_join_exclusive", 20, (in, out) -> intervals(out,
            keyed(in, "left").intervalJoin(keyed(in, "right")).between(ofMillis(-20), ofMillis(12))
                .lowerBoundExclusive().upperBoundExclusive()));
        Parity.paced("interval_join_ahead", 10, (in, out) -> intervals(out,
            keyed(in, "left").intervalJoin(keyed(in, "right")).between(ofMillis(5), ofMillis(40)).upperBoundExclusive()));
        Parity.paced("interval_join_behind", 10, (in, out) -> intervals(out,
            keyed(in, "left").intervalJoin(keyed(in, "right")).between(ofMillis(-40), ofMillis(-5))));
        Parity.paced("interval_join_order", 20, (in, out) -> out.add("untimed",
            keyed(in, "left").intervalJoin(keyed(in, "right")).between(ofMillis(-30), ofMillis(30)).process(new Latter())));
        Parity.paced("window_join_tumbling", 20, (in, out) -> out.add("main",
            join(in, TumblingEventTimeWindows.of(ofMillis(40))).apply(PAIR, Types.STRING)));
        Parity.paced("window_join_lateness", 10, (in, out) -> out.add("main",
            join(in, TumblingEventTimeWindows.of(ofMillis(40))).allowedLateness(ofMillis(30)).apply(PAIR, Types.STRING)));
        Parity.paced("window_join_sliding", 20, (in, out) -> out.add("main",
            join(in, SlidingEventTimeWindows.of(ofMillis(40), ofMillis(15))).apply(PAIR, Types.STRING)));
        Parity.paced("window_join_session", 20, (in, out) -> out.add("main",
            join(in, EventTimeSessionWindows.withGap(ofMillis(10))).apply(PAIR_AS_KEY, Types.STRING)));
        Parity.paced("window_join_flat", 20, (in, out) -> out.add("main",
            join(in, TumblingEventTimeWindows.of(ofMillis(40))).apply((FlatJoinFunction<Event, Event, String>) (l, r, c) -> {
                if (l.value > r.value) {
                    c.collect(Json.row(l.key, l.seq, r.seq));
                }
            }, Types.STRING)));
        Parity.paced("co_group_tumbling", 20, (in, out) -> out.add("main",
            coGroup(in, TumblingEventTimeWindows.of(ofMillis(30))).apply(new Both(false))));
        Parity.paced("co_group_sliding_lateness", 10, (in, out) -> out.add("main",
            coGroup(in, SlidingEventTimeWindows.of(ofMillis(40), ofMillis(20))).allowedLateness(ofMillis(40))
                .apply(new Both(false))));
        Parity.paced("co_group_session", 20, (in, out) -> out.add("main",
            coGroup(in, EventTimeSessionWindows.withGap(ofMillis(10))).allowedLateness(ofMillis(20)).apply(new Both(true))));
        Parity.paced("co_group_trigger", 20, (in, out) -> out.add("main",
            coGroup(in, TumblingEventTimeWindows.of(ofMillis(60))).trigger(CountTrigger.of(2)).apply(new Both(false))));
        Parity.paced("co_group_evictor", 20, (in, out) -> out.add("main",
            coGroup(in, TumblingEventTimeWindows.of(ofMillis(60))).evictor(CountEvictor.of(3))
                .allowedLateness(ofMillis(60)).apply(new Both(false))));
    }
}
