"""Broadcast elements that are read ahead of the other stream take effect at their own time: the results are those of one epoch,
wherever epochs end, at any parallelism, after failures and restores. The expected ones are computed from the elements alone.
"""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import TypeNotSupported
from forkpoint.testing import ABORT, PAUSE, Eof, TestSource, run_local

RATES = fp.MapStateDescriptor("rates", str, int)
ORDER, RATE = tuple[str, int], tuple[str, int, int]


def watermarks(bound):
    return fp.WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=bound)).with_timestamp_assigner(
        lambda e, _: e[1]
    )


class Generator(fp.WatermarkGenerator):
    """As bounded ones without a bound, but what follows from a timestamp is not known beforehand."""

    def on_event(self, event, timestamp, output):
        output.emit_watermark(timestamp - 1)

    def on_periodic_emit(self, output):
        pass


class Ahead(Generator):
    """Lets its stream hold nothing back, as is usual for broadcast streams."""

    def on_event(self, event, timestamp, output):
        output.emit_watermark(fp.MAX_WATERMARK)


GENERATORS = {"generator": Generator, "ahead": Ahead}


def rates_strategy(kind, bound):
    if kind not in GENERATORS:
        return watermarks(bound)
    return fp.WatermarkStrategy.for_generator(GENERATORS[kind]).with_timestamp_assigner(lambda e, _: e[1])


class Taxed(fp.KeyedBroadcastProcessFunction):
    """Each order with the rates in effect, and how many orders its key has had since the last of them."""

    count = fp.ValueStateDescriptor("count", int, 0)

    def process_element(self, order, ctx):
        self.count.update(self.count.value() + 1)
        yield order[0], order[1], tuple(sorted(ctx.get_broadcast_state(RATES).items())), self.count.value()

    def process_broadcast_element(self, rate, ctx):
        ctx.get_broadcast_state(RATES).put(rate[0], rate[2])
        ctx.apply_to_keyed_state(self.count, lambda key, count: count.clear())
        yield "rate", rate[1], (), 0


class Plain(fp.BroadcastProcessFunction):
    def process_element(self, order, ctx):
        yield order[0], order[1], tuple(sorted(ctx.get_broadcast_state(RATES).items()))

    def process_broadcast_element(self, rate, ctx):
        ctx.get_broadcast_state(RATES).put(rate[0], rate[2])


def taxed(env, orders, rates, *, bound=0, kind="bounded", rates_bound=0, keyed=True):
    ordered = env.from_source(orders, watermarks(bound), "orders", ORDER).uid("orders")
    rated = env.from_source(rates, rates_strategy(kind, rates_bound), "rates", RATE).uid("rates").broadcast(RATES)
    if keyed:
        return ordered.key_by(lambda o: o[0], str).connect(rated).process(Taxed()).uid("taxed")
    return ordered.connect(rated).process(Plain()).uid("taxed")


def before(orders, bound):
    """The watermark just before each order of one split."""
    latest, found = None, []
    for order in orders:
        found.append(None if latest is None else latest - bound - 1)
        latest = order[1] if latest is None else max(latest, order[1])
    return found


def in_effect(rates, watermark):
    by_time = sorted(rates, key=lambda rate: rate[1])
    return [] if watermark is None else [rate for rate in by_time if rate[1] - 1 <= watermark]


def expected(orders, rates, bound):
    """What one split of orders gives, by key, each rate being read before its time."""
    counts, passed, out = {}, 0, {}
    for order, watermark in zip(orders, before(orders, bound), strict=True):
        found = in_effect(rates, watermark)
        if len(found) > passed:
            counts, passed = {}, len(found)
        counts[order[0]] = counts.get(order[0], 0) + 1
        seen = tuple(sorted({name: value for name, _, value in found}.items()))
        out.setdefault(order[0], []).append((*order, seen, counts[order[0]]))
    return out


orders = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=25)
rates = st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 70), st.integers(1, 9)), max_size=8)
marks = st.lists(st.tuples(st.integers(0, 25), st.sampled_from([PAUSE, PAUSE, ABORT])), max_size=8)


def cut(elements, marks):
    script = list(elements)
    for place, mark in sorted(marks, key=lambda m: -m[0]):
        script.insert(min(place, len(script)), mark)
    return script


@examples(7)
@given(
    orders,
    rates,
    marks,
    st.integers(0, 20),
    st.integers(1, 3),
    st.sampled_from(["bounded", "generator", "ahead"]),
    st.integers(0, 20),
)
def test_rates_read_ahead_take_effect_at_their_own_time(orders, rates, marks, bound, parallelism, kind, rates_bound):
    orders.sort(key=lambda order: order[1] + hash(order) % (bound + 1))  # none is late
    run = run_local(
        lambda env, *sources: taxed(env, *sources, bound=bound, kind=kind, rates_bound=rates_bound),
        TestSource(cut(orders, marks)),
        TestSource(rates),
        parallelism=parallelism,
    )
    found = run.by_key(lambda out: out[0])
    told = found.pop("rate", [])
    assert found == expected(orders, rates, bound)
    assert sorted(out[1] for out in told) == sorted([rate[1] for rate in rates] * parallelism)


@examples(5)
@given(st.lists(orders, min_size=2, max_size=3), rates, st.data(), st.integers(1, 3))
def test_splits_ahead_of_others_see_the_rates_up_to_their_own_time(splits, rates, data, parallelism):
    """Rates are provisional for elements ahead of the watermark, which one split holds back."""
    for split in splits:
        split.sort(key=lambda order: order[1])
    scripts = [cut(split, data.draw(marks)) for split in splits]
    run = run_local(
        lambda env, *sources: taxed(env, *sources, keyed=False),
        TestSource(*scripts),
        TestSource(rates),
        parallelism=parallelism,
    )
    wanted = [
        (*order, tuple(sorted({name: value for name, _, value in in_effect(rates, watermark)}.items())))
        for split in splits
        for order, watermark in zip(split, before(split, 0), strict=True)
    ]
    assert sorted(run.output) == sorted(wanted)


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("keyed", [True, False])
def test_waiting_rates_are_saved_and_restored_at_another_parallelism(tmp_path, after, keyed):
    def build(env, *sources):
        return taxed(env, *sources, keyed=keyed)

    script = [("a", 10), ("b", 30), Eof(savepoint=True), ("a", 50), ("b", 90), ("a", 95), ("b", 99)]
    sources = TestSource(script), TestSource([("x", 20, 1), ("x", 60, 2), ("x", 95, 3)])
    first = run_local(build, *sources, parallelism=2, state_root=tmp_path)
    second = run_local(build, *sources, parallelism=after, state_root=tmp_path, restore=first.savepoint)
    seen = [(out[1], dict(out[2]).get("x")) for out in first.output + second.output if out[0] != "rate"]
    assert sorted(seen) == [(10, None), (30, None), (50, 1), (90, 1), (95, 2), (99, 3)]


def test_elements_that_cannot_wait_are_refused():
    class Opaque:
        ts = 50

    def build(env, orders, rates):
        timed = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.ts)
        rated = env.from_source(rates, timed, "rates").broadcast(RATES)
        return env.from_source(orders, watermarks(0), "orders", ORDER).connect(rated).process(Plain()).uid("taxed")

    with pytest.raises(TypeNotSupported, match=r"operator 'taxed': the broadcast element .*Opaque.* is ahead of the other"):
        run_local(build, TestSource([("a", 10), PAUSE, ("a", 90)]), TestSource([Opaque()]))


def test_streams_without_event_time_do_not_wait():
    none = fp.WatermarkStrategy.no_watermarks()

    def build(env, orders, rates):
        rated = env.from_source(rates, watermarks(0), "rates", RATE).broadcast(RATES)
        return env.from_source(orders, none, "orders", ORDER).connect(rated).process(Plain())

    run = run_local(build, TestSource([PAUSE, ("a", 10)]), TestSource([("x", 50, 1)]))
    assert run.output == [("a", 10, (("x", 1),))]


class OfElements(Generator):
    """Watermarks from the elements themselves, which have no timestamps."""

    def on_event(self, event, timestamp, output):
        output.emit_watermark(event[1] - 1)


def test_elements_without_timestamps_take_effect_when_they_are_read():
    """Also if their own watermark is ahead of the other stream's."""

    def build(env, orders, rates):
        rated = env.from_source(rates, fp.WatermarkStrategy.for_generator(OfElements), "rates", RATE).broadcast(RATES)
        return env.from_source(orders, watermarks(0), "orders", ORDER).connect(rated).process(Plain())

    run = run_local(build, TestSource([("a", 10), PAUSE, ("a", 20)]), TestSource([("x", 50, 1), ("y", 60, 2)]))
    assert run.output[-1] == ("a", 20, (("x", 1), ("y", 2)))
