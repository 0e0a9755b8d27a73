"""What a source may say of its elements: times of their own, and that some are for a side output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.connectors.collection import CollectionSource
from forkpoint.contract.source import JSON, SourceReader, SplitEnumerator, SplitRange
from forkpoint.runtime.exchange.batch import interleaved
from forkpoint.testing import run_local

ODD = fp.OutputTag("odd", fp.Types.TUPLE([fp.Types.LONG(), fp.Types.STRING()]))
OTHER = fp.OutputTag("other", str)
NONE = fp.MIN_WATERMARK


class Marked(fp.Source[tuple[int, str]]):
    """Numbered texts with times of their own: ``(time, text)``. Texts that begin with "odd" or "other" are for side outputs."""

    def __init__(self, *splits: list[tuple[int, str]], tags: tuple[fp.OutputTag[Any], ...] = ()) -> None:
        numbered = [[(n, time, text) for n, (time, text) in enumerate(split)] for split in splits]
        self.inner = CollectionSource(splits=numbered)
        self.side_outputs = tags

    side_outputs: tuple[fp.OutputTag[Any], ...] = ()

    def output_type(self) -> fp.TypeInformation[Any]:
        return fp.Types.TUPLE([fp.Types.LONG(), fp.Types.STRING()])

    @property
    def bounded(self) -> bool:
        return True

    def create_enumerator(self, position: JSON) -> SplitEnumerator:
        return self.inner.create_enumerator(position)

    def create_reader(self) -> SourceReader[Any]:
        return _Reader(self.inner.create_reader())


class _Reader(SourceReader[Any]):
    def __init__(self, inner: SourceReader[Any]) -> None:
        self.inner = inner

    def read(self, range: SplitRange) -> Iterator[fp.SourceBatch[Any]]:
        for run in self.inner.read(range):
            assert isinstance(run, list)
            main = [(n, time, text) for n, time, text in run if not text.startswith("o")]
            sides = []
            for tag in (ODD, OTHER):
                of_tag = [(n, time, text) for n, time, text in run if text.startswith(tag.tag_id)]
                if of_tag:
                    before = np.searchsorted([n for n, _, _ in main], [n for n, _, _ in of_tag])
                    values: list[Any] = [(n, text) if tag is ODD else text for n, _, text in of_tag]
                    sides.append(fp.SideElements(tag, values, before, np.array([time for _, time, _ in of_tag])))
            times = np.array([time for _, time, _ in main], np.int64)
            yield fp.SourceBatch([(n, text) for n, _, text in main], times, sides)


@given(st.integers(0, 100), st.integers(0, 6), st.lists(st.lists(st.integers(0, 6)), max_size=3))
def test_numbers_say_what_comes_before_what(start: int, size: int, given_sides: list[list[int]]) -> None:
    sides = [np.array(sorted(min(b, size) for b in side), np.int64) for side in given_sides]
    main, of_sides = interleaved(start, size, sides)
    everything = sorted([*main.tolist(), *(n for side in of_sides for n in side.tolist())])
    assert everything == list(range(start, start + size + sum(map(len, sides))))
    for before, numbers in zip(sides, of_sides, strict=True):
        for b, number in zip(before.tolist(), numbers.tolist(), strict=True):
            assert (main < number).sum() == b


class InOrder(fp.KeyedProcessFunction):
    """What comes, and the watermark that it sees."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (value[0], value[1], ctx.timestamp(), ctx.timer_service().current_watermark())


SPLIT = st.lists(st.tuples(st.integers(0, 50), st.sampled_from(["a", "b", "odd1", "odd2"])), max_size=25)


@given(SPLIT, st.integers(1, 30), st.integers(1, 3))
def test_side_outputs_keep_their_place_among_the_others(split: list[tuple[int, str]], epochs: int, parallelism: int) -> None:
    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps()
        stream = env.from_source(Marked(split, tags=(ODD,)), strategy, "marked")
        both = stream.union(stream.get_side_output(ODD))
        return both.key_by(lambda _: 0, int).process(InOrder())

    watermark, expected = NONE, []
    for number, (time, text) in enumerate(split):
        expected.append((number, text, time, watermark))
        if not text.startswith("o"):  # the watermark is that of the main output
            watermark = max(watermark, time - 1)
    assert run_local(build, epochs=epochs, parallelism=parallelism).output == expected


def test_several_side_outputs() -> None:
    split = [(1, "other1"), (2, "odd1"), (3, "a"), (4, "other2")]

    def build(env: fp.StreamExecutionEnvironment) -> dict[str, fp.DataStream]:
        stream = env.from_source(Marked(split, tags=(ODD, OTHER)), fp.WatermarkStrategy.no_watermarks(), "marked")
        return {"main": stream, "odd": stream.get_side_output(ODD), "other": stream.get_side_output(OTHER)}

    run = run_local(build)
    assert run.outputs == {"main": [(2, "a")], "odd": [(1, "odd1")], "other": ["other1", "other2"]}
    assert [r.timestamp for name in ("main", "odd", "other") for r in run.records[name]] == [3, 2, 1, 4]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_times_of_the_source_are_event_time(parallelism: int) -> None:
    splits = [[(1, "a"), (2, "a"), (11, "a")], [(3, "a"), (12, "a")]]

    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        stream = env.from_source(Marked(*splits), fp.WatermarkStrategy.for_monotonous_timestamps(), "marked")
        windows = stream.key_by(lambda e: e[1], str).window(fp.TumblingEventTimeWindows.of(timedelta(milliseconds=10)))
        return windows.agg(start=fp.WindowStart(), n=fp.Count())

    assert run_local(build, epochs=2, parallelism=parallelism).output == [("a", 0, 3), ("a", 10, 2)]


def test_without_watermarks_elements_keep_the_times_of_the_source() -> None:
    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        return env.from_source(Marked([(7, "a"), (NONE, "b")]), fp.WatermarkStrategy.no_watermarks(), "marked")

    assert [(r.value[1], r.timestamp) for r in run_local(build).records["output"]] == [("a", 7), ("b", None)]


def test_assigners_get_the_times_of_the_source_and_replace_them() -> None:
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, time: 10 * time + e[0])

    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        return env.from_source(Marked([(7, "a"), (8, "b")]), strategy, "marked")

    def later(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        stream = env.from_source(Marked([(7, "a"), (8, "b")]), fp.WatermarkStrategy.no_watermarks(), "marked")
        return stream.assign_timestamps_and_watermarks(strategy)

    for each in (build, later):
        assert [r.timestamp for r in run_local(each).records["output"]] == [70, 81]


class OnTime(fp.WatermarkGenerator[Any]):
    def on_event(self, value: Any, event_timestamp: int, output: fp.WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: fp.WatermarkOutput) -> None:
        pass


def test_generators_get_the_times_of_the_source() -> None:
    split = [(7, "a"), (8, "odd"), (9, "b"), (9, "odd")]

    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        strategy: Any = fp.WatermarkStrategy.for_generator(OnTime)
        stream = env.from_source(Marked(split, tags=(ODD,)), strategy, "marked")
        return stream.union(stream.get_side_output(ODD)).key_by(lambda _: 0, int).process(InOrder())

    found = run_local(build).output
    assert found == [(0, "a", 7, NONE), (1, "odd", 8, 7), (2, "b", 9, 7), (3, "odd", 9, 9)]


def test_a_side_output_that_nothing_reads_is_refused_and_so_is_one_that_is_not_there() -> None:
    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        return env.from_source(Marked([], tags=(ODD,)), fp.WatermarkStrategy.no_watermarks(), "marked").uid("in")

    with pytest.raises(fp.GraphError, match="source 'in' has the side output 'odd', which nothing reads"):
        run_local(build)
    with pytest.raises(fp.GraphError, match="source 'in' has no side output 'other'; it has 'odd'"):
        run_local(lambda env: [(stream := build(env)).get_side_output(ODD), stream.get_side_output(OTHER)])


def test_a_side_element_must_be_of_the_tags_type() -> None:
    class Wrong(Marked):
        def create_reader(self) -> SourceReader[Any]:
            class Reader(SourceReader[Any]):
                def read(self, range: SplitRange) -> Iterator[fp.SourceBatch[Any]]:
                    yield fp.SourceBatch([], sides=[fp.SideElements(OTHER, [1], np.array([0]))])

            return Reader()

    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        source = Wrong([(1, "a")], tags=(OTHER,))
        return env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in").get_side_output(OTHER)

    with pytest.raises(fp.TypeNotSupported, match="operator 'in' emits 1, which is not valid"):
        run_local(build)


OF_ARROW = {"0": pa.int64(), "1": pa.int32(), "2": pa.null()}


class Columns(Marked):
    """Each split has columns of its own type in Arrow, and a reader may say wrong things of them."""

    def __init__(self, counts: int = 1, typed: bool = True) -> None:
        super().__init__(*[[(0, "a")]] * 3)
        self.counts, self.typed = counts, typed

    def output_type(self) -> fp.TypeInformation[Any] | None:
        return fp.Types.ROW_NAMED(["n"], [fp.Types.LONG()]) if self.typed else None  # type: ignore[return-value]

    def create_reader(self) -> SourceReader[Any]:
        source = self

        class Reader(SourceReader[Any]):
            def read(self, range: SplitRange) -> Iterator[pa.RecordBatch]:
                of = OF_ARROW[range.split]
                yield pa.record_batch({"n": pa.array([None if of == pa.null() else int(range.split)], of)})

            def read_together(self, ranges: Sequence[SplitRange]) -> Iterator[Any]:
                for ((range, _),), run in super().read_together(ranges):
                    yield [(range, source.counts)], run

        return Reader()


def read_columns(source: Columns, parallelism: int = 1) -> list[Any]:
    return run_local(
        lambda env: env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in"), parallelism=parallelism
    ).output


@pytest.mark.parametrize("parallelism", [1, 3])
def test_splits_may_have_columns_that_differ_in_arrow(parallelism: int) -> None:
    assert sorted(row.n or 0 for row in read_columns(Columns(), parallelism)) == [0, 0, 1]


def test_a_reader_that_says_wrong_things_of_its_elements_is_refused() -> None:
    with pytest.raises(fp.JobFailed, match=r"operator 'in': read_together\(\) gave 1 elements, and says that they are 2"):
        read_columns(Columns(counts=2))
    with pytest.raises(fp.JobFailed, match=r"operator 'in': the reader yields columns, but the source has no output_type\(\)"):
        read_columns(Columns(typed=False))


def test_an_error_names_the_range_that_cannot_be_read() -> None:
    class Failing(Marked):
        def create_reader(self) -> SourceReader[Any]:
            class Reader(_Reader):
                def read(self, range: SplitRange) -> Iterator[fp.SourceBatch[Any]]:
                    yield from super().read(range)
                    if range.split == "1":
                        raise ValueError("broken")

            return Reader(self.inner.create_reader())

    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        return env.from_source(Failing(*[[(1, "a")]] * 3), fp.WatermarkStrategy.no_watermarks(), "in").uid("in")

    with pytest.raises(fp.UserFunctionError, match=r"broken \(element SplitRange\(split='1'"):
        run_local(build, parallelism=1)
