"""What readers see of expired state, and how often. Twins of ``src/Ttl.java``.

The clock stands still within an epoch, so these programs need an epoch for each element, and a pause behind it. On Flink they
pause behind each write.
"""

from __future__ import annotations

from datetime import timedelta

from java_programs import by_key, mix, register
from window_programs import Mixed

import forkpoint as fp
from forkpoint.testing import Advance

PAUSE = Advance(4)  # ms; longer than the time to live


class Expiring(fp.KeyedProcessFunction):
    def __init__(self, ttl):
        self.value_state = fp.ValueStateDescriptor("value", int).enable_time_to_live(ttl)
        self.list_state = fp.ListStateDescriptor("list", int).enable_time_to_live(ttl)
        self.map_state = fp.MapStateDescriptor("map", str, int).enable_time_to_live(ttl)
        self.reduced_state = fp.ReducingStateDescriptor("reduced", mix, int).enable_time_to_live(ttl)
        self.mixed_state = fp.AggregatingStateDescriptor("mixed", Mixed(), int).enable_time_to_live(ttl)

    def open(self, context):
        self.value = context.get_state(self.value_state)
        self.list = context.get_list_state(self.list_state)
        self.map = context.get_map_state(self.map_state)
        self.reduced = context.get_reducing_state(self.reduced_state)
        self.mixed = context.get_aggregating_state(self.mixed_state)

    def process_element(self, e, ctx):
        key, value, list_, map_ = ctx.get_current_key(), self.value, self.list, self.map
        if e.value < 4:
            value.update(e.seq)
            list_.add(e.seq)
            map_.put(e.kind, e.seq)
            self.reduced.add(e.seq)
            self.mixed.add(e)
        elif e.value < 7:
            for access in ("first", "second"):
                reads = value.value(), [*list_.get()], map_.get(e.kind), self.reduced.get(), self.mixed.get()
                yield key, e.seq, access, *reads
        elif e.value == 7:
            yield key, e.seq, "map", map_.contains(e.kind), map_.contains(e.kind), map_.get(e.kind)
        elif e.value == 8:
            list_.update([-e.seq, e.seq])
        else:
            value.clear()
            list_.clear()
            map_.remove(e.kind)
            yield key, e.seq, "clear", value.value(), [*list_.get()], map_.get(e.kind)


UPDATES = {
    "": fp.StateTtlConfig.UpdateType.OnCreateAndWrite,
    "_updated_on_read": fp.StateTtlConfig.UpdateType.OnReadAndWrite,
}
SHOWN = {
    "never_returned": fp.StateTtlConfig.StateVisibility.NeverReturnExpired,
    "returned": fp.StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp,
}
NAMES = {f"ttl{update}_{shown}" for update in UPDATES for shown in SHOWN}


def build(update, shown):
    ttl = fp.StateTtlConfig.new_builder(timedelta(milliseconds=1)).set_update_type(UPDATES[update])
    ttl = ttl.set_state_visibility(SHOWN[shown]).disable_cleanup_in_background().build()
    return lambda events: {"main": by_key(events).process(Expiring(ttl))}


for update in UPDATES:
    for shown in SHOWN:
        register(f"ttl{update}_{shown}", build(update, shown), bound=60)
