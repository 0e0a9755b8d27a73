import java.time.Duration;
import java.util.List;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.StateTtlConfig.StateVisibility;
import org.apache.flink.api.common.state.StateTtlConfig.UpdateType;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** What readers see of expired state, and how often. After each write there is a pause that is longer than the time to live. */
final class Ttl {
    private Ttl() {}

    static class Expiring extends KeyedProcessFunction<String, Event, String> {
        private final UpdateType update;
        private final StateVisibility visibility;
        private transient ValueState<Integer> value;
        private transient ListState<Integer> list;
        private transient MapState<String, Integer> map;
        private transient ReducingState<Long> reduced;
        private transient AggregatingState<Event, Long> mixed;

        Expiring(UpdateType update, StateVisibility visibility) {
            this.update = update;
            this.visibility = visibility;
        }

        @Override
        public void open(OpenContext context) {
            StateTtlConfig ttl = StateTtlConfig.newBuilder(Duration.ofMillis(1))
                .setUpdateType(update)
                .setStateVisibility(visibility)
                .disableCleanupInBackground()
                .build();
            var value = new ValueStateDescriptor<>("value", Types.INT);
            var list = new ListStateDescriptor<>("list", Types.INT);
            var map = new MapStateDescriptor<>("map", Types.STRING, Types.INT);
            var reduced = new ReducingStateDescriptor<>("reduced", (a, b) -> Windows.mix(a, b), Types.LONG);
            var mixed = new AggregatingStateDescriptor<>("mixed", new Windows.Mixed(), Types.LONG);
            value.enableTimeToLive(ttl);
            list.enableTimeToLive(ttl);
            map.enableTimeToLive(ttl);
            reduced.enableTimeToLive(ttl);
            mixed.enableTimeToLive(ttl);
            this.value = getRuntimeContext().getState(value);
            this.list = getRuntimeContext().getListState(list);
            this.map = getRuntimeContext().getMapState(map);
            this.reduced = getRuntimeContext().getReducingState(reduced);
            this.mixed = getRuntimeContext().getAggregatingState(mixed);
        }

        @Override
        public void processElement(Event e, Context ctx, Collector<String> out) throws Exception {
            String key = ctx.getCurrentKey();
            if (e.value < 4) {
                value.update(e.seq);
                list.add(e.seq);
                map.put(e.kind, e.seq);
                reduced.add((long) e.seq);
                mixed.add(e);
                Thread.sleep(4);
            } else if (e.value < 7) {
                for (String access : new String[] {"first", "second"}) {
                    out.collect(Json.row(
                        key, e.seq, access, value.value(), list.get(), map.get(e.kind), reduced.get(), mixed.get()));
                }
            } else if (e.value == 7) {
                out.collect(Json.row(key, e.seq, "map", map.contains(e.kind), map.contains(e.kind), map.get(e.kind)));
            } else if (e.value == 8) {
                list.update(List.of(-e.seq, e.seq));
                Thread.sleep(4);

            } else {
                value.clear();
                list.clear();
                map.remove(e.kind);
                out.collect(Json.row(key, e.seq, "clear", value.value(), list.get(), map.get(e.kind)));
            }
        }
    }

    static void register() {
        for (UpdateType update : new UpdateType[] {UpdateType.OnCreateAndWrite, UpdateType.OnReadAndWrite}) {
            for (StateVisibility visibility : StateVisibility.values()) {
                String name = "ttl"
                    + (update == UpdateType.OnReadAndWrite ? "_updated_on_read" : "")
                    + (visibility == StateVisibility.NeverReturnExpired ? "_never_returned" : "_returned");
                Parity.program(name, 60, (events, out) -> out.add("main",
                    Windows.byKey(events).process(new Expiring(update, visibility))));
            }
        }
    }
}
