"""Programs of patterns, as data: Flink's CEP runs them through ``src/Patterns.java``, forkpoint through its own API.

``PROGRAMS`` is a list of dicts:

- ``name``
- ``events``: ``[time_ms, key, kind, value]``, in the order of arrival; an event is known by its index
- ``pattern``: a chain, which is a list of calls of Java's ``Pattern``, in order: ``[method, argument, …]``. Where a method takes
  a stage's name, a chain in its place is a group. ``{"window_ms": n}`` as the last argument of a loop is its window
- ``skip``, optional: ``[strategy]``, ``[strategy, stage]``, or with ``"throwExceptionOnMiss"`` as its third
- ``bound_ms``, optional: a watermark is the greatest time so far, less this, less 1 ms, and comes behind each event
- ``comparator``, optional: ``"value"`` or ``"-value"`` orders events of one time

Conditions are data, too: ``["true"]``, ``["kind", "=" | "in", "ab"]``, ``["value", op, n]``, ``["and" | "or", c, c]``,
``["not", c]``; and those that look at the events that the match so far has for a stage: ``["sum", stage, op, n]`` of values with
the current event's, ``["count", stage, op, n]`` without it, ``["above_last", stage]`` and ``["same_as_first", stage]`` of values,
false where there is none, ``["since_last", stage, op, ms]``, false where there is none. ``["subtype", "Special"]`` takes events
whose kind is a capital letter.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

Call = list[Any]
Chain = list[Call]


def events(text: str) -> list[list[Any]]:
    """Events written as ``kind[value][@time][:key]``; without a time, one millisecond after the one before."""
    found: list[list[Any]] = []
    for word in text.split():
        parts = re.fullmatch(r"([A-Za-z])(\d*)(?:@(-?\d+))?(?::(\w+))?", word)
        assert parts, word
        kind, value, time, key = parts.groups()
        now = int(time) if time else found[-1][0] + 1 if found else 1
        found.append([now, key or "k", kind, int(value or 0)])
    return found


def of(kinds: str) -> Call:
    return ["kind", "=", kinds] if len(kinds) == 1 else ["kind", "in", kinds]


def stage(how: str, name: str, *calls: Any) -> Chain:
    """A stage of the events whose kind is the first letter of its name; a call without arguments may be a word."""
    return [[how, name], ["where", of(name[0].lower())], *([call] if isinstance(call, str) else call for call in calls)]


def begin(name: str, *calls: Any) -> Chain:
    return stage("begin", name, *calls)


def then(name: str, *calls: Any) -> Chain:
    return stage("followedBy", name, *calls)


def after(name: str, *calls: Any) -> Chain:
    return stage("followedByAny", name, *calls)


def next_(name: str, *calls: Any) -> Chain:
    return stage("next", name, *calls)


def not_then(name: str, *calls: Any) -> Chain:
    return stage("notFollowedBy", name, *calls)


def not_next(name: str, *calls: Any) -> Chain:
    return stage("notNext", name, *calls)


def group(how: str, chain: Chain, *calls: Any) -> Chain:
    return [[how, chain], *([call] if isinstance(call, str) else call for call in calls)]


PROGRAMS: list[dict[str, Any]] = []


def program(name: str, given: str, *parts: Chain, **options: Any) -> None:
    assert all(name != other["name"] for other in PROGRAMS), name
    PROGRAMS.append({"name": name, "events": events(given), "pattern": [call for part in parts for call in part], **options})


# fmt: off
# Contiguity between two stages.
program("follow", "a1 c2 b3 b4", begin("a"), then("b"))
program("follow_any", "a1 c2 b3 b4", begin("a"), after("b"))
program("next", "a1 c2 b3 b4", begin("a"), next_("b"))
program("next_meets", "a b a a b b", begin("a"), next_("b"))
program("any_then_any", "a1 b2 c3 b4 c5", begin("a"), after("b"), after("c"))
program("follow_then_any", "a1 b2 b3 c4 c5", begin("a"), then("b"), after("c"))
program("any_then_next", "a1 b2 b3 c4 b5 c6", begin("a"), after("b"), next_("c"))
program("many_starts", "a1 a2 b3 a4 b5", begin("a"), then("b"))
program("one_stage", "a b a a", begin("a"))
program("no_condition", "a1 b2 c3", [["begin", "x"], ["next", "y"]])
program("one_event_two_stages", "a5 a6 b7", begin("x", ["or", ["value", ">", 4]]), then("y", ["or", ["value", ">", 5]]))
program("where_and_or", "a1 a9 b9 b1 a5",
    [["begin", "x"], ["where", of("a")], ["where", ["value", ">", 3]], ["or", of("b")], ["where", ["value", "<", 9]]])
program("or_alone", "a1 b2", [["begin", "x"], ["or", of("b")]])
program("subtype", "a1 A2 B3 b4 B5", [["begin", "x"], ["subtype", "Special"], ["followedBy", "y"], ["where", of("B")]])
program("subtype_and_where", "A1 B7 A5 a7 a6 B7",
    [["begin", "x"], ["where", ["value", ">", 3]], ["subtype", "Special"], *next_("z"), ["or", ["value", "=", 7]]])

# Loops and their contiguity.
for way, calls in {"": [], "_strict": ["consecutive"], "_any": ["allowCombinations"]}.items():
    program(f"plus{way}", "a1 b1 d1 b2 d2 b3 c", begin("a"), then("b", "oneOrMore", *calls), then("c"))
    program(f"plus_after_any{way}", "a b1 d b2 b3 c", begin("a"), after("b", "oneOrMore", *calls), then("c"))
    program(f"star{way}", "c a1 a2 a3 d a4 b", begin("c"), then("a", "oneOrMore", "optional", *calls), then("b"))
    program(f"star_any_any{way}", "c a1 a2 a3 d a4 b", begin("c"), after("a", "oneOrMore", "optional", *calls), after("b"))
    program(f"plus_first{way}", "a1 d a2 a3 b", begin("a", "oneOrMore", *calls), then("b"))
    program(f"plus_first_next{way}", "a1 d a2 a3 b a4 b", begin("a", "oneOrMore", *calls), next_("b"))
    program(f"plus_last{way}", "a b1 b2 d b3", begin("a"), then("b", "oneOrMore", *calls))
    program(f"times{way}", "c a1 a2 d a3 a4 b", begin("c"), then("a", ["times", 2], *calls), then("b"))
    program(f"times_range{way}", "c a1 a2 d a3 a4 b", begin("c"), then("a", ["times", 2, 3], *calls), then("b"))
    program(f"times_or_more{way}", "c a1 a2 d a3 a4 b", begin("c"), then("a", ["timesOrMore", 2], *calls), then("b"))
    program(f"times_optional{way}", "c a1 a2 d a3 b", begin("c"), then("a", ["times", 2], "optional", *calls), then("b"))
    program(f"greedy{way}", "c a1 a2 d a3 b1 b2", begin("c"), then("a", "oneOrMore", "greedy", *calls), then("b"))
    program(f"greedy_optional{way}", "c a1 a2 d a3 b",
        begin("c"), then("a", "oneOrMore", "optional", "greedy", *calls), then("b"))
    program(f"until{way}", "c a1 a2 d a3 b a4 e", begin("c"), then("a", "oneOrMore", ["until", of("b")], *calls), then("e"))
    program(f"times_last{way}", "a1 a2 d a3 a4", begin("a", ["times", 2, 3], *calls))
    program(f"not_after_plus{way}", "a b1 b2 d b3 c1 a b1 b2 x c2",
        begin("a"), then("b", "oneOrMore", *calls), not_then("x"), then("c"))
    program(f"group_plus{way}", "c a1 b2 d a3 b4 a5 b6 e",
        begin("c"), group("followedBy", begin("a") + then("b"), "oneOrMore", *calls), then("e"))
    program(f"group_times_optional{way}", "c a1 b2 a3 d b4 e",
        begin("c"), group("followedBy", begin("a") + then("b"), ["times", 2], "optional", *calls), then("e"))
program("plus_next", "a b1 b2 d b3 c", begin("a"), next_("b", "oneOrMore"), then("c"))
program("plus_next_next", "a b1 b2 b3 c", begin("a"), next_("b", "oneOrMore", "consecutive"), next_("c"))
program("plus_next_of_all", "a b1 b2 d b3 c", begin("a"), next_("b", "oneOrMore", "allowCombinations"), next_("c"))
program("plus_in_row", "a1 a2 a3", begin("a", "oneOrMore"))
program("plus_in_row_strict", "a1 a2 d a3", begin("a", "oneOrMore", "consecutive"))
program("star_first", "a1 a2 b c b", begin("a", "oneOrMore", "optional"), then("b"))
program("star_alone", "a1 d a2", begin("a", "oneOrMore", "optional"))
program("optional_alone", "a1 d a2", begin("a", "optional"))
program("optional_first", "a1 b2 b3 a4 b5", begin("a", "optional"), then("b"))
program("optional_middle", "a b1 c d b2 c", begin("a"), then("b", "optional"), then("c"))
program("optional_middle_next", "a b c a c a d c", begin("a"), next_("b", "optional"), next_("c"))
program("optional_middle_any", "a b1 b2 c", begin("a"), after("b", "optional"), after("c"))
program("optional_last", "a b1 b2 a", begin("a"), then("b", "optional"))
program("optional_last_next", "a b1 b2 a c", begin("a"), next_("b", "optional"))
program("optionals_in_row", "a b c d", begin("a"), then("b", "optional"), then("c", "optional"), then("d"))
program("optionals_only", "a b d c", begin("a", "optional"), then("b", "optional"), then("c", "optional"))
program("optional_same_kind", "a1 a2 a3", begin("a1"), then("a2", "optional"), then("a3"))
program("star_star", "a b1 c1 b2 c2 d",
    begin("a"), then("b", "oneOrMore", "optional"), then("c", "oneOrMore", "optional"), then("d"))
program("plus_plus_same", "a1 a2 a3 a4", begin("a1", "oneOrMore"), then("a2", "oneOrMore"))
program("plus_plus_same_next", "a1 a2 a3", begin("a1", "oneOrMore", "consecutive"), next_("a2", "oneOrMore", "consecutive"))
program("times_first", "a1 a2 b a3 b", begin("a", ["times", 2]), then("b"))
program("times_first_strict", "a1 a2 b a3 b", begin("a", ["times", 2], "consecutive"), next_("b"))
program("times_one", "a1 a2 b", begin("a", ["times", 1]), then("b"))
program("times_to_same", "a1 a2 a3 b", begin("a", ["times", 2, 2]), then("b"))
program("times_from_none", "c a1 a2 b", begin("c"), then("a", ["times", 0, 2]), then("b"))
program("times_from_none_last", "c a1 a2 a3", begin("c"), then("a", ["times", 0, 2]))
program("times_greedy", "c a1 a2 a3 b", begin("c"), then("a", ["times", 2], "greedy"), then("b"))
program("times_next", "c a1 a2 a3 b", begin("c"), next_("a", ["times", 2]), next_("b"))
program("times_any_combinations", "c a1 a2 a3 b", begin("c"), after("a", ["times", 2], "allowCombinations"), after("b"))
program("times_or_more_optional", "c a1 a2 b", begin("c"), then("a", ["timesOrMore", 3], "optional"), then("b"))
program("times_or_more_last", "c a1 a2 a3 a4", begin("c"), then("a", ["timesOrMore", 2]))

# Greedy.
program("greedy_same_kind", "c a1 a2 a3 d", begin("c"), then("a", "oneOrMore", "greedy"), then("x", ["or", of("a")]), then("d"))
program("greedy_then_overlapping", "c a1 a2 a9 d",
    begin("c"), then("a", "oneOrMore", "greedy"), then("y", ["or", ["value", "=", 9]]), then("d"))
program("greedy_first", "a1 a2 d a3 b b", begin("a", "oneOrMore", "greedy"), then("b"))
program("greedy_before_any", "c a1 a2 b1 a3 b2", begin("c"), then("a", "oneOrMore", "greedy"), after("b"))
program("greedy_before_next", "c a1 a2 b1 a3 b2", begin("c"), then("a", "oneOrMore", "greedy"), next_("b"))
program("greedy_range", "c a1 a2 a3 a4 b", begin("c"), then("a", ["times", 2, 3], "greedy"), then("b"))
program("greedy_range_strict", "c a1 a2 a3 d",
    begin("c"), next_("a", ["times", 1, 2], "consecutive", "greedy"), next_("x", ["or", of("a")]), then("d"))
for count in (2, 3):
    given = " ".join(["c", *["a"] * count, "b"])
    program(f"greedy_range_of_{count}", given, begin("c"), then("a", ["times", 2, 3], "greedy"), then("b"))
program("greedy_or_more", "c a1 a2 a3 b", begin("c"), then("a", ["timesOrMore", 2], "greedy"), then("b"))
program("greedy_last", "c a1 a2 a3", begin("c"), then("a", "oneOrMore", "greedy"))
program("greedy_before_optional", "a1 a2 b a3 c", begin("a", "oneOrMore", "greedy"), then("b", "optional"), then("c"))
program("greedy_until", "c a1 a2 b a3 e", begin("c"), then("a", "oneOrMore", "greedy", ["until", of("b")]), then("e"))
program("greedy_optional_none", "c b", begin("c"), then("a", "oneOrMore", "optional", "greedy"), then("b"))
program("greedy_in_group", "c a1 a2 b a3 b e",
    begin("c"), group("followedBy", begin("a", "oneOrMore", "greedy") + then("b"), ["times", 1, 2]), then("e"))
program("greedy_before_not", "c a1 a2 d c a1 a2 b a3 d", begin("c"), then("a", "oneOrMore", "greedy"), not_then("b"), then("d"))

# Until.
program("until_first", "a1 c a2 b a3", begin("a", "oneOrMore", ["until", of("b")]))
program("until_first_strict", "a1 c a2 a3 b a4", begin("a", "oneOrMore", "consecutive", ["until", of("b")]))
program("until_first_any", "a1 c a2 a3 b a4", begin("a", "oneOrMore", "allowCombinations", ["until", of("b")]))
program("until_then", "a1 a2 b a3 c", begin("a", "oneOrMore", ["until", of("b")]), then("c"))
program("until_itself", "a1 a2 a9 a3 c", begin("a", "oneOrMore", ["until", ["value", "=", 9]]), then("c"))
program("until_is_next_stage", "c a1 a2 b a3 b", begin("c"), then("a", "oneOrMore", ["until", of("b")]), then("b"))
program("until_optional", "c a1 b a2 d", begin("c"), then("a", "oneOrMore", "optional", ["until", of("b")]), then("d"))
program("until_at_once", "c b a1 d", begin("c"), then("a", "oneOrMore", "optional", ["until", of("b")]), then("d"))
program("until_before_first", "c b a1 a2 d", begin("c"), then("a", "oneOrMore", ["until", of("b")]), then("d"))
program("until_or_more", "a1 a2 a3 b a4 a5", begin("a", ["timesOrMore", 2], ["until", of("b")]))
program("until_or_more_greedy", "c a1 a2 a3 b a4 d",
    begin("c"), then("a", ["timesOrMore", 2], "greedy", ["until", of("b")]), then("d"))
program("until_count", "a1 a2 a3 a4 b", begin("a", "oneOrMore", "consecutive", ["until", ["count", "a", ">=", 2]]), then("b"))
program("until_sum", "a3 a4 a5 a1 b", begin("a", "oneOrMore", ["until", ["sum", "a", ">", 10]]), then("b"))
program("until_of_group", "a1 b2 a3 b4 x a5 b6 c",
    group("begin", begin("a") + then("b"), "oneOrMore", ["until", of("x")]), then("c"))
program("until_of_group_last", "a1 b2 a3 x b4 a5 b6", group("begin", begin("a") + then("b"), "oneOrMore", ["until", of("x")]))

# Iterative conditions.
program("sum_below", "a30 a40 a50 a20 b", begin("a", ["where", ["sum", "a", "<", 100]], "oneOrMore"), then("b"))
program("sum_below_strict", "a30 a40 a50 a20 b",
    begin("a", ["where", ["sum", "a", "<", 100]], "oneOrMore", "consecutive"), next_("b"))
program("sum_of_other_stage", "a3 a4 b6 b7", begin("a", "oneOrMore"), then("b", ["where", ["sum", "a", ">", 12]]))
program("rising", "a1 a3 a2 a5 b", begin("s", ["or", of("a")]), then("a", ["where", ["above_last", "s"]], "oneOrMore"), then("b"))
program("rising_run", "a1 a3 a2 a5 a7 b",
    begin("s", ["or", of("a")]),
    next_("a", ["where", ["or", ["above_last", "a"], ["and", ["count", "a", "=", 0], ["above_last", "s"]]]],
        "oneOrMore", "consecutive"),
    next_("b"))
program("count_limits", "a1 a2 a3 a4 b", begin("a", ["where", ["count", "a", "<", 3]], "oneOrMore"), then("b"))
program("count_limits_any", "c a1 a2 a3 b",
    begin("c"), then("a", ["where", ["count", "a", "<", 2]], "oneOrMore", "allowCombinations"), then("b"))
program("same_value", "a1 a2 b2 b1 b2", begin("a"), after("b", ["where", ["same_as_first", "a"]]))
program("since_last", "a@1 b@4 a@5 b@7 b@9", begin("a"), after("b", ["where", ["since_last", "a", "<", 4]]))
program("looks_at_later_stage", "a1 b2 a3 b4",
    begin("a", ["where", ["count", "b", "=", 0]]), then("b", ["where", ["count", "b", "=", 0]]))
program("looks_at_optional", "a1 c3 a4 b5 c6", begin("a"), then("b", "optional"), then("c", ["where", ["count", "b", "=", 0]]))
program("iterative_not", "a5 b3 c a5 b9 c", begin("a"), not_then("b", ["where", ["above_last", "a"]]), then("c"))
program("iterative_in_group", "a1 b2 a3 b3 a4 b9 c",
    group("begin", begin("a") + then("b", ["where", ["above_last", "a"]]), ["timesOrMore", 2]), then("c"))
program("iterative_greedy", "c a5 a6 a4 a7 b",
    begin("c"), then("a", ["where", ["or", ["count", "a", "=", 0], ["above_last", "a"]]], "oneOrMore", "greedy"), then("b"))

# What must not come.
program("not_between", "a c1 a b c2 c3", begin("a"), not_then("b"), then("c"))
program("not_between_any", "a c1 b c2 a d c3 c4", begin("a"), not_then("b"), after("c"))
program("not_before_next", "a c a b c a d c", begin("a"), not_then("b"), next_("c"))
program("not_next_between", "a b c a d b c a c", begin("a"), not_next("b"), then("c"))
program("not_next_before_next", "a c a b c a d c", begin("a"), not_next("b"), next_("c"))
program("not_next_before_any", "a c1 c2 a b c3", begin("a"), not_next("b"), after("c"))
program("not_next_of_what_follows", "a c1 c2 a d c3", begin("a"), not_next("x", ["or", of("c")]), then("c"))
program("not_next_last", "a b a c a", begin("a"), not_next("b"))
program("not_next_last_within", "a@1 b@2 a@3 c@4 a@10 c@20", begin("a"), not_next("b"), [["within", 4]])
program("two_nots", "a d1 a b d2 a c d3 a e d4", begin("a"), not_then("b"), not_then("c"), then("d"))
program("not_and_not_next", "a d1 a b d2 a e c d3 a c d4", begin("a"), not_then("b"), not_next("c"), then("d"))
program("not_then_optional", "a d1 a b d2 a c b d3 a b c d4", begin("a"), not_then("b"), then("c", "optional"), then("d"))
program("not_then_optional_any", "a d1 a b d2 a c b d3 a b c d4", begin("a"), not_then("b"), after("c", "optional"), after("d"))
program("not_then_star", "a d1 a b d2 a c b d3 a b c d4",
    begin("a"), not_then("b"), then("c", "oneOrMore", "optional"), then("d"))
program("not_then_plus", "a c1 b c2 d a b c d", begin("a"), not_then("b"), then("c", "oneOrMore"), then("d"))
program("not_then_times", "a c1 c2 d a c1 b c2 d a b c c d", begin("a"), not_then("b"), then("c", ["times", 2]), then("d"))
program("not_after_times", "a1 a2 c a1 a2 b c a1 b a2 c", begin("a", ["times", 2]), not_then("b"), then("c"))
program("not_after_plus_first", "a1 a2 b a3 c", begin("a", "oneOrMore"), not_then("b"), then("c"))
program("not_next_after_plus", "a1 a2 b a3 d c", begin("a", "oneOrMore"), not_next("b"), then("c"))
program("not_next_after_strict_plus", "a1 a2 b a3 d c", begin("a", "oneOrMore", "consecutive"), not_next("b"), then("c"))
program("not_same_kind", "a1 a2 c a3 c", begin("a"), not_then("x", ["or", of("a")]), then("c"))
program("not_same_as_next", "a1 c1 c2", begin("a"), not_then("x", ["or", of("c")]), then("c"))
program("not_in_group", "a c e a b c e",
    begin("e", "optional"), group("followedBy", begin("a") + not_then("b") + then("c"), ["times", 1, 2]), then("e2"))
program("not_before_group", "a b c d a c b d a c d", begin("a"), not_then("b"), group("followedBy", begin("c") + then("d")))
program("not_after_group", "a c d a c b d", group("begin", begin("a") + then("c")), not_then("b"), then("d"))
program("not_before_group_plus", "a c d b c d e a b c d e",
    begin("a"), not_then("b"), group("followedBy", begin("c") + then("d"), "oneOrMore"), then("e"))
program("not_last_within", "a@1 b@2 a@4 c@5 b@10 a@11 b@13", begin("a"), not_then("b"), [["within", 3]])
program("not_last_at_the_edge", "a@1 b@4 a@10 b@12 a@20 c@30", begin("a"), not_then("b"), [["within", 3]])
program("not_last_after_two", "a@1 c@2 b@3 a@10 c@11 d@20 b@21 a@30 c@33 d@40",
    begin("a"), then("c"), not_then("b"), [["within", 4]])
program("not_last_after_any", "a@1 c@2 c@3 b@4 a@10 c@11 c@12 d@20", begin("a"), after("c"), not_then("b"), [["within", 4]])
program("not_last_after_plus", "a1@1 a2@2 a3@3 c@9 a4@20 b@21 c@30", begin("a", "oneOrMore"), not_then("b"), [["within", 4]])
program("not_last_after_plus_middle", "a@1 c1@2 c2@3 d@9 a@20 c3@21 b@22 c4@23 d@30",
    begin("a"), then("c", "oneOrMore"), not_then("b"), [["within", 5]])
program("not_last_after_greedy", "a@1 c1@2 c2@3 d@9 a@20 c3@21 b@22 d@30",
    begin("a"), then("c", "oneOrMore", "greedy"), not_then("b"), [["within", 5]])
program("not_last_after_times", "a1@1 a2@2 a3@3 c@9 a4@20 a5@21 b@22 c@30",
    begin("a", ["times", 2]), not_then("b"), [["within", 4]])
program("not_last_after_range", "a1@1 a2@2 a3@3 c@9 a4@20 a5@21 b@22 c@30",
    begin("a", ["times", 2, 3]), not_then("b"), [["within", 4]])
program("not_last_after_group", "a@1 c@2 d@9 a@20 c@21 b@22 d@30",
    group("begin", begin("a") + then("c")), not_then("b"), [["within", 4]])
program("two_nots_last", "a@1 b@2 a@10 c@11 a@20 d@21 d@30", begin("a"), not_then("b"), not_then("c"), [["within", 4]])
program("not_last_at_the_end", "a@1 b@2 a@10 d@11", begin("a"), not_then("b"), [["within", 5]])
program("not_last_by_gap", "a@1 c@3 b@6 a@20 c@22 d@30 b@31",
    begin("a"), then("c"), not_then("b"), [["within", 4, "PREVIOUS_AND_CURRENT"]])
program("not_last_skip_past", "a1@1 a2@2 c@9 a3@20 b@21 c@30",
    begin("a"), not_then("b"), [["within", 4]], skip=["skipPastLastEvent"])
program("not_last_keys", "a@1:x a@2:y b@3:y c@4:z b@9:x c@20:z", begin("a"), not_then("b"), [["within", 4]])
program("not_last_iterative", "a5@1 b3@2 c@9 a5@20 b9@21 c@30",
    begin("a"), not_then("b", ["where", ["above_last", "a"]]), [["within", 4]])

# Within.
program("within", "a@1 b@3 a@10 b@13 a@20 b@24", begin("a"), then("b"), [["within", 3]])
program("within_any", "a@1 b@2 b@3 b@4 b@5", begin("a"), after("b"), [["within", 3]])
program("within_first_stage", "a@1 b@3 c@5 c@9", begin("a", ["within", 5]), then("b"), after("c"))
program("within_smallest", "a@1 b@3 c@5 c@9", begin("a", ["within", 9]), then("b", ["within", 4]), after("c", ["within", 7]))
program("within_twice_on_one", "a@1 b@3 b@6", begin("a"), after("b", ["within", 3], ["within", 6]))
program("within_none", "a@1 a@1 b@1", begin("a"), then("b"), [["within", 1]])
program("within_loop", "a1@1 a2@2 a3@3 a4@5 b@6", begin("a", "oneOrMore"), then("b"), [["within", 4]])
program("within_loop_last", "a1@1 a2@2 a3@3 a4@5 a5@9", begin("a", "oneOrMore"), [["within", 3]])
program("within_loop_middle", "c@1 a@2 a@3 b@4 a@6 b@7", begin("c"), then("a", "oneOrMore"), after("b"), [["within", 5]])
program("within_optional_last", "a@1 b@3 a@10 c@20", begin("a"), then("b", "optional"), [["within", 4]])
program("within_star_last", "a@1 b1@2 b2@3 d@9", begin("a"), then("b", "oneOrMore", "optional"), [["within", 4]])
program("within_greedy", "c@1 a@2 a@3 b@9 c@10 a@11 b@12",
    begin("c"), then("a", "oneOrMore", "greedy"), then("b"), [["within", 5]])
program("within_times", "a@1 a@2 a@4 a@5 a@6 d@20", begin("a", ["times", 3]), [["within", 4]])
program("within_until", "a1@1 a2@2 x@3 b@4 a3@5 b@9", begin("a", "oneOrMore", ["until", of("x")]), then("b"), [["within", 4]])
program("within_group", "a@1 b@2 a@3 b@4 c@5 c@8",
    group("begin", begin("a") + then("b"), "oneOrMore"), after("c"), [["within", 5]])
program("within_inside_group", "a@1 b@9 c@10 a@11 b@12 c@20", group("begin", begin("a") + then("b", ["within", 4])), then("c"))
program("within_not_between", "a@1 c@3 a@10 b@11 c@12 a@20 c@25", begin("a"), not_then("b"), then("c"), [["within", 4]])
program("timed_out_at_jump", "a1@1 a2@2 b@3 c@4 d@30", begin("a"), then("b"), then("c"), then("e"), [["within", 10]])
program("timed_out_at_the_end", "a1@1 a2@2 b@3", begin("a"), then("b"), then("c"), [["within", 10]])
program("timed_out_by_another_key", "a@1:x c@3:y b@4:x a@10:x c@30:y", begin("a"), then("b"), [["within", 5]])
program("timed_out_in_order", "a1@5 a2@3 b@4 a3@6 c@7 d@30", begin("a"), after("b"), after("c"), [["within", 6]], bound_ms=3)
program("timed_out_loops", "a@1 b1@2 b2@3 b3@4 d@20", begin("a"), then("b", "oneOrMore"), then("c"), [["within", 10]])
program("timed_out_loops_any", "a@1 b1@2 b2@3 d@20",
    begin("a"), after("b", "oneOrMore", "allowCombinations"), then("c"), [["within", 10]])
program("timed_out_group", "a@1 b@2 a@3 b@4 d@20",
    group("begin", begin("a") + then("b"), "oneOrMore"), then("c"), [["within", 10]])
program("timed_out_never_without_within", "a b d", begin("a"), then("b"), then("c"))
program("gap", "a@1 b@3 c@5 a@10 b@13 c@14 a@20 b@21 c@24",
    begin("a"), then("b"), then("c"), [["within", 3, "PREVIOUS_AND_CURRENT"]])
program("gap_any", "a@1 b@2 b@3 b@5", begin("a"), after("b"), [["within", 3, "PREVIOUS_AND_CURRENT"]])
program("gap_of_one_stage", "a@1 b@6 c@7 a@10 b@11 c@14 a@20 b@25 c@26",
    begin("a"), then("b"), then("c", ["within", 3, "PREVIOUS_AND_CURRENT"]))
program("gap_first_of_two", "a@1 b@6 c@20 a@30 b@32 c@50",
    begin("a"), then("b", ["within", 3, "PREVIOUS_AND_CURRENT"]), then("c"))
program("gap_on_first", "a@1 b@9 a@20 b@21", begin("a", ["within", 3, "PREVIOUS_AND_CURRENT"]), then("b"))
program("gap_of_two_stages", "a@1 b@3 c@6 a@10 b@15 c@16 a@20 b@22 c@27",
    begin("a"), then("b", ["within", 3, "PREVIOUS_AND_CURRENT"]), then("c", ["within", 5, "PREVIOUS_AND_CURRENT"]))
program("gap_and_span", "a@1 b@3 c@5 a@10 b@12 c@14 c@17",
    begin("a"), then("b"), after("c"), [["within", 6], ["within", 3, "PREVIOUS_AND_CURRENT"]])
program("gap_and_span_short", "a@1 b@3 c@5 a@10 b@11 c@12",
    begin("a"), then("b", ["within", 4, "PREVIOUS_AND_CURRENT"]), then("c", ["within", 3]))
program("gap_loop", "a1@1 a2@3 a3@6 a4@7 b@9", begin("a", "oneOrMore"), then("b"), [["within", 3, "PREVIOUS_AND_CURRENT"]])
program("gap_loop_middle", "c@1 a1@2 a2@3 a3@6 b@7",
    begin("c"), then("a", "oneOrMore", ["within", 3, "PREVIOUS_AND_CURRENT"]), then("b"))
program("gap_optional", "a@1 c@3 a@10 b@12 c@14 a@20 b@22 c@26 a@30 c@35",
    begin("a"), then("b", "optional"), then("c"), [["within", 3, "PREVIOUS_AND_CURRENT"]])
program("gap_not_between", "a@1 c@3 a@10 b@11 c@12 a@20 c@24",
    begin("a"), not_then("b"), then("c"), [["within", 3, "PREVIOUS_AND_CURRENT"]])
program("gap_quiet", "a@1 b@3", begin("a"), then("b"), then("c"), [["within", 3, "PREVIOUS_AND_CURRENT"]])
program("gap_quiet_key", "a@1:x c@9:y", begin("a"), then("b", ["within", 3, "PREVIOUS_AND_CURRENT"]))
program("gap_loud_key", "a@1:x c@9:y c@10:x c@12:y", begin("a"), then("b", ["within", 3, "PREVIOUS_AND_CURRENT"]))
program("gap_not_last_quiet_key", "a@1:x c@9:y", begin("a"), not_then("b", ["within", 3, "PREVIOUS_AND_CURRENT"]))
program("span_quiet_key", "a@1:x c@9:y", begin("a"), then("b", ["within", 3]))
program("times_in_window", "a1@1 a2@2 a3@5 a4@6 b@20", begin("a", ["times", 2, {"window_ms": 3}]), then("b"))
program("times_in_window_middle", "c@1 a1@3 a2@6 a3@7 b@20",
    begin("c"), then("a", ["times", 2, {"window_ms": 3}], "allowCombinations"), then("b"))
program("times_range_in_window", "c@1 a1@3 a2@4 a3@7 a4@8 b@20",
    begin("c"), then("a", ["times", 2, 3, {"window_ms": 3}]), then("b"))
program("plus_in_window", "a1@1 a2@2 a3@5 a4@6 b@20", begin("a", ["oneOrMore", {"window_ms": 3}]), then("b"))
program("plus_in_window_middle", "c@1 a1@3 a2@4 a3@7 a4@8 b@20",
    begin("c"), then("a", ["oneOrMore", {"window_ms": 3}]), then("b"))
program("or_more_in_window", "c@1 a1@3 a2@4 a3@5 a4@8 b@20",
    begin("c"), then("a", ["timesOrMore", 2, {"window_ms": 3}]), then("b"))
program("plus_in_window_within", "c@1 a1@2 a2@3 a3@6 b@8",
    begin("c"), then("a", ["oneOrMore", {"window_ms": 3}]), then("b"), [["within", 7]])

# Groups.
program("group", "a b c a d b c", group("begin", begin("a") + then("b")), then("c"))
program("group_alone", "a b a b", group("begin", begin("a") + then("b")))
program("group_alone_plus", "a b a b", group("begin", begin("a") + then("b"), "oneOrMore"))
program("group_alone_times", "a b a b a b", group("begin", begin("a") + then("b"), ["times", 2]))
program("group_first_star", "a b a b c", group("begin", begin("a") + then("b"), "oneOrMore", "optional"), then("c"))
program("group_optional", "c e c a b e c a e", begin("c"), group("followedBy", begin("a") + then("b"), "optional"), then("e"))
program("group_optional_next", "c e c a b e c d a b e",
    begin("c"), group("next", begin("a") + next_("b"), "optional"), next_("e"))
program("group_optional_last", "c a b c", begin("c"), group("followedBy", begin("a") + then("b"), "optional"))
program("group_next", "c a d b c d a b", begin("c"), group("next", begin("a") + then("b")))
program("group_any", "c a1 b1 a2 b2", begin("c"), group("followedByAny", begin("a") + after("b")))
program("group_plus_next", "c a b a b d a b e",
    begin("c"), group("next", begin("a") + next_("b"), "oneOrMore", "consecutive"), then("e"))
program("group_range", "c a b a b a b e", begin("c"), group("followedBy", begin("a") + then("b"), ["times", 1, 2]), then("e"))
program("group_or_more", "c a b a b a b e",
    begin("c"), group("followedBy", begin("a") + then("b"), ["timesOrMore", 2]), then("e"))
program("group_in_group", "a b c d e", group("begin", group("begin", begin("a") + then("b")) + then("c")), then("d"))
program("group_loop_in_loop", "a b b c a b c d",
    group("begin", begin("a") + then("b", "oneOrMore") + then("c"), "oneOrMore"), then("d"))
program("group_loop_in_loop_strict", "a b b c a b c d",
    group("begin", begin("a") + next_("b", "oneOrMore", "consecutive") + next_("c"), "oneOrMore", "consecutive"), next_("d"))
program("group_in_group_loops", "a b a b c a b c d",
    group("begin", group("begin", begin("a") + then("b"), ["times", 1, 2]) + then("c"), ["times", 2]), then("d"))
program("group_after_group", "a b c d a d b c d",
    group("begin", begin("a") + then("b")), group("followedBy", begin("c") + then("d")))
program("group_plus_after_group_plus", "a b a b c d c d",
    group("begin", begin("a") + then("b"), "oneOrMore"), group("followedBy", begin("c") + then("d"), "oneOrMore"))
program("group_of_optionals", "c b d c a d c d",
    begin("c"), group("followedBy", begin("a", "optional") + then("b", "optional")), then("d"))
program("group_of_optionals_loop", "c a b a d",
    begin("c"), group("followedBy", begin("a", "optional") + then("b", "optional"), ["times", 2]), then("d"))
program("group_optional_inside", "a c a b c d",
    group("begin", begin("a") + then("b", "optional") + then("c"), ["times", 1, 2]), then("d"))
program("group_of_one", "a1 a2 b", group("begin", begin("a"), ["times", 2]), then("b"))
program("group_times_any_inside", "a b1 b2 a b3 c", group("begin", begin("a") + after("b"), ["times", 2]), then("c"))

# One event for several stages.
program("same_event_many_runs", "a1 b1 b2 b3 d1", begin("a"), after("b", "oneOrMore", "allowCombinations"), after("d"))
program("same_kind_all_over", "a1 a2 a3", begin("a1"), after("a2"), after("a3", "optional"))
program("same_kind_any_loop", "a1 a2 a3 a4", begin("a1"), after("a2", "oneOrMore", "allowCombinations", "optional"), after("a3"))
program("star_then_same_star", "a1 a2 a3 b", begin("a1", "oneOrMore", "optional"), then("a2", "oneOrMore", "optional"), then("b"))
program("any_event_loops", "a1 a2 b3", [["begin", "x"], ["oneOrMore"], ["followedBy", "y"], ["oneOrMore"], ["optional"]])
program("values_overlap", "a1 a5 a9 a5 a1",
    [["begin", "low"], ["where", ["value", "<", 6]], ["oneOrMore"], ["next", "high"], ["where", ["value", ">", 4]]])

# Skip strategies.
STRATEGIES: dict[str, list[str] | None] = {
    "": None,
    "_next": ["skipToNext"],
    "_past": ["skipPastLastEvent"],
    "_first": ["skipToFirst", "b"],
    "_last": ["skipToLast", "b"],
    "_first_a": ["skipToFirst", "a"],
    "_last_a": ["skipToLast", "a"],
}
for way, strategy in STRATEGIES.items():
    options = {"skip": strategy} if strategy else {}
    program(f"skip_plus_last{way}", "a b1 b2 b3 a b4", begin("a"), next_("b", "oneOrMore"), **options)
    program(f"skip_plus_first{way}", "a1 a2 a3 b1 c a4 b2", begin("a", "oneOrMore"), next_("b"), **options)
    program(f"skip_plus_middle{way}", "a b1 b2 b3 c a b4 c c", begin("a"), then("b", "oneOrMore"), after("c"), **options)
    program(f"skip_any{way}", "a1 b1 a2 b2 c1 c2", begin("a"), after("b"), after("c"), **options)
    program(f"skip_overlap{way}", "x1 x2 x3 x4 x5 x6 x7",
        begin("a", ["or", of("x")], ["times", 2]), next_("b", ["or", of("x")], ["times", 2]), **options)
    program(f"skip_combinations{way}", "a b1 b2 b3 c",
        begin("a"), then("b", "oneOrMore", "allowCombinations"), then("c"), **options)
    program(f"skip_group{way}", "a b a b a b c", group("begin", begin("a") + then("b"), "oneOrMore"), then("c"), **options)
    program(f"skip_optional{way}", "a1 a2 b1 c1 a3 c2 a4 b2 b3 c3", begin("a"), then("b", "optional"), then("c"), **options)
    program(f"skip_range_greedy{way}", "a a b1 b2 b3 c a b4 c",
        begin("a"), then("b", "oneOrMore", "greedy"), then("c"), **options)
    program(f"skip_timed_out{way}", "a@1 b1@2 a@3 b2@4 c@5 b3@6 d@30",
        begin("a"), then("b", "oneOrMore"), then("c"), [["within", 10]], **options)
program("skip_none", "a b1 b2", begin("a"), next_("b", "oneOrMore"), skip=["noSkip"])
program("skip_to_next_starts", "a1 a2 a3 b1 b2", begin("a"), after("b"), skip=["skipToNext"])
program("skip_past_keys", "a1:x a2:y b1:x a3:x b2:y b3:x b4:y", begin("a"), after("b"), skip=["skipPastLastEvent"])
program("skip_past_open_match", "a1 c a2 b c2", begin("a"), then("b"), then("c2"), skip=["skipPastLastEvent"])
program("skip_past_ties", "a@1 a@1 b@1 b@1 a@2 b@3", begin("a"), then("b"), skip=["skipPastLastEvent"])
program("skip_past_times", "a1 a2 a3 a4 a5 a6", begin("a", ["times", 3]), skip=["skipPastLastEvent"])
program("skip_past_optionals", "a b c a c", begin("a", "optional"), then("b", "optional"), then("c"), skip=["skipPastLastEvent"])
program("skip_past_two_at_once", "a1 b1 c1 d",
    begin("a"), then("x", ["or", of("bc")]), next_("d", ["or", of("c")]), skip=["skipPastLastEvent"])
program("skip_to_own_first", "a b1 b2", begin("a"), next_("b", "oneOrMore"), skip=["skipToFirst", "a"])
program("skip_to_own_first_strict", "a b1 b2",
    begin("a"), next_("b", "oneOrMore"), skip=["skipToFirst", "a", "throwExceptionOnMiss"])
program("skip_to_own_last_strict", "a b", begin("a"), next_("b"), skip=["skipToLast", "a", "throwExceptionOnMiss"])
program("skip_to_last_strict_ahead", "a1 a2 b a3 b",
    begin("a", "oneOrMore"), next_("b"), skip=["skipToLast", "a", "throwExceptionOnMiss"])
program("skip_to_first_missing", "a c a b c", begin("a"), then("b", "optional"), then("c"), skip=["skipToFirst", "b"])
program("skip_to_first_missing_strict", "a b c a c a b c",
    begin("a"), then("b", "optional"), then("c"), skip=["skipToFirst", "b", "throwExceptionOnMiss"])
program("skip_to_last_missing_strict", "a b c a c",
    begin("a"), then("b", "oneOrMore", "optional"), then("c"), skip=["skipToLast", "b", "throwExceptionOnMiss"])
program("skip_to_first_strict", "a1 a2 b b a b", begin("a"), after("b"), skip=["skipToFirst", "b", "throwExceptionOnMiss"])
program("skip_to_middle", "a b1 b2 c a b3 c", begin("a"), then("b", ["times", 1, 2]), then("c"), skip=["skipToLast", "b"])
program("skip_to_in_group", "a b c a b c", group("begin", begin("a") + then("b")), then("c"), skip=["skipToFirst", "b"])
SAME = ["where", ["same_as_first", "a"]]
for way, strategy in STRATEGIES.items():
    options = {"skip": strategy} if strategy else {}
    program(f"skip_held_back{way}", "a1 a2 b2 c b1 d", begin("a"), then("b", SAME), **options)
    program(f"skip_held_back_three{way}", "a1 a2 a3 b3 b2 a4 b4 b1", begin("a"), then("b", SAME), **options)
program("skip_never_released", "a1 a2 b2 a3 b3 c", begin("a"), then("b", SAME), skip=["skipPastLastEvent"])
program("skip_released_by_time", "a1@1 a2@2 b2@3 c@4 a3@5 b3@6 c@20", begin("a"), then("b", SAME), [["within", 9]],
    skip=["skipPastLastEvent"])
program("skip_released_by_not", "a1 a2 b2 x b1 c", begin("a"), not_then("x"), then("b", SAME), skip=["skipPastLastEvent"])
program("skip_in_order_of_time", "a2@3 a1@1 b1@4 b2@5 a3@9", begin("a"), after("b"), skip=["skipPastLastEvent"], bound_ms=5)

# Time, keys, ties.
program("out_of_order", "a@5 b@3 a@1 b@7 b@6 c@20", begin("a"), after("b"), bound_ms=5)
program("late", "a@5 b@3 b@6 a@4 b@5 b@9", begin("a"), after("b"))
program("late_at_the_watermark", "a@5 b@4 a@10 b@5 b@9 b@10", begin("a"), then("b"), bound_ms=0)
program("late_with_bound", "a@10 b@9 b@6 b@5 b@4 b@11 c@30", begin("a", ["or", of("b")]), next_("b2"), bound_ms=5)
program("late_for_another_key", "a@1:x a@10:y b@5:x b@11:x b@12:y", begin("a"), then("b"), [["within", 20]])
program("keys", "a1:x a2:y b3:y b4:x c5:x c6:y", begin("a"), then("b"), then("c"))
program("keys_next", "a:x a:y b:x c:y b:y b:x", begin("a"), next_("b"))
program("ties", "a1@1 b2@1 a3@1 b4@1 a5@2 b6@2", begin("a"), next_("b"))
program("ties_in_arrival_order", "b1@1 a2@1 b3@1", begin("a"), after("b"))
program("ties_by_value", "b9@1 a2@1 b1@1 b5@2 a3@2", begin("a"), after("b"), comparator="value")
program("ties_by_value_descending", "b9@1 a2@1 b1@1 b5@2 a3@2", begin("a"), after("b"), comparator="-value")
program("ties_of_equal_value", "b1@1 a1@1 b1@1 a1@2 b1@2", begin("a"), after("b"), comparator="value")
program("ties_of_keys", "a@1:x a@1:y b@1:y b@1:x", begin("a"), then("b"))
program("ties_of_loops", "a@1 a@1 a@1 b@1", begin("a", "oneOrMore"), then("b"))
program("ties_out_of_order", "a@2 b9@1 a1@1 b3@2 a2@1 b@9", begin("a"), next_("b"), bound_ms=2, comparator="value")
program("ties_within", "a@1 b@1 a@1 b@4 b@3", begin("a"), after("b"), [["within", 3]], bound_ms=5)
program("ties_skip_past", "a1@1 a2@1 b3@1 b4@1", begin("a"), after("b"), skip=["skipPastLastEvent"])
program("before_1970", "a@-20 b@-18 a@-10 b@-6 a@-1 b@1", begin("a"), then("b"), [["within", 3]])
program("comparator_without_ties", "a3@3 b1@1 b2@5", begin("a"), then("b"), bound_ms=5, comparator="value")
program("jumps", "a@1 b@1000 a@2000 b@900000", begin("a"), then("b"), [["within", 1000]])

# What Flink refuses.
program("refused_not_last", "a b", begin("a"), not_then("b"))
program("refused_not_last_of_two", "a b", begin("a"), then("b"), not_then("c"))
program("odd_not_last_in_group", "a b c d a b d", begin("a"), group("followedBy", begin("b") + not_then("c")), then("d"))
program("odd_not_last_in_group_within", "a b c d a b d",
    begin("a"), group("followedBy", begin("b") + not_then("c") + [["within", 3]]), then("d"))
program("odd_not_last_in_last_group", "a@1 b@2 c@3 d@9",
    begin("a"), group("followedBy", begin("b") + not_then("c") + [["within", 3]]))
program("refused_not_after_optional", "a b", begin("a", "optional"), not_then("b"), then("c"))
program("refused_not_next_after_optional", "a b", begin("a", "optional"), not_next("b"), then("c"))
program("refused_not_after_star", "a b", begin("a", "oneOrMore", "optional"), not_then("b"), then("c"))
program("refused_not_after_times_from_none", "a b", begin("a", ["times", 0, 2]), not_then("b"), then("c"))
program("refused_loop_of_not", "a b", begin("a"), not_then("b", "oneOrMore"), then("c"))
program("refused_times_of_not_next", "a b", begin("a"), not_next("b", ["times", 2]), then("c"))
program("refused_optional_not", "a b c", begin("a"), not_then("b", "optional"), then("c"))
program("refused_optional_not_next", "a b c", begin("a"), not_next("b", "optional"), then("c"))
program("refused_greedy_not", "a b", begin("a"), not_then("b", "greedy"), then("c"))
program("refused_until_without_loop", "a b", begin("a", ["until", of("b")]))
program("refused_until_of_times", "a b", begin("a", ["times", 2], ["until", of("b")]))
program("refused_until_of_range", "a b", begin("a", ["times", 2, 3], ["until", of("b")]))
program("refused_two_untils", "a b", begin("a", "oneOrMore", ["until", of("b")], ["until", of("c")]))
program("refused_greedy_group", "a b", begin("a"), group("followedBy", begin("b") + then("c"), "oneOrMore", "greedy"))
program("refused_greedy_alone", "a b", begin("a", "greedy"), then("b"))
program("refused_greedy_before_optional_group", "a b",
    begin("a", "oneOrMore", "greedy"), group("followedBy", begin("b") + then("c"), "optional"))
program("odd_greedy_before_range_from_none", "a a b c a c",
    begin("a", "oneOrMore", "greedy"), then("b", ["times", 0, 2]), then("c"))
program("odd_greedy_after_group", "a a b c b c d",
    begin("a", "oneOrMore", "greedy"), group("followedBy", begin("b") + then("c"), "oneOrMore"), then("d"))
program("refused_two_quantifiers", "a b", begin("a", "oneOrMore", ["times", 2]))
program("odd_quantifier_after_optional", "a b a", begin("a", "optional", "oneOrMore"), then("b"))
program("refused_optional_twice", "a b", begin("a", "optional", "optional"))
program("refused_strict_alone", "a b", begin("a", "consecutive"))
program("refused_combinations_alone", "a b", begin("a", "allowCombinations"))
program("refused_strict_and_combinations", "a b", begin("a", "oneOrMore", "consecutive", "allowCombinations"))
program("refused_combinations_and_strict", "a b", begin("a", "oneOrMore", "allowCombinations", "consecutive"))
program("refused_same_name", "a b", begin("a"), then("b"), then("a"))
program("refused_same_name_of_not", "a b", begin("a"), not_then("a"), then("b"))
program("refused_same_name_in_group", "a b", begin("a"), group("followedBy", begin("b") + then("a")))
program("refused_same_name_in_groups_group", "a b",
    begin("a"), group("followedBy", begin("b") + group("followedBy", begin("a") + then("c"))))
program("refused_where_of_group", "a b", group("begin", begin("a") + then("b")), [["where", of("a")]])
program("refused_or_of_group", "a b", group("begin", begin("a") + then("b")), [["or", of("a")]])
program("refused_subtype_of_group", "a b", group("begin", begin("a") + then("b")), [["subtype", "Special"]])
program("refused_times_none", "a b", begin("a", ["times", 0]))
program("refused_times_negative", "a b", begin("a", ["times", -1]))
program("refused_range_backwards", "a b", begin("a", ["times", 3, 2]))
program("refused_range_none", "a b", begin("a", ["times", 0, 0]), then("b"))
program("refused_or_more_none", "c b", begin("c"), then("a", ["timesOrMore", 0]), then("b"))
program("refused_skip_to_unknown", "a b", begin("a"), then("b"), skip=["skipToFirst", "z"])
program("refused_skip_to_last_unknown", "a b", begin("a"), then("b"), skip=["skipToLast", "z"])
program("odd_skip_to_not", "a c a b c", begin("a"), not_then("b"), then("c"), skip=["skipToFirst", "b"])
program("refused_end_state", "a b", begin("a"), [["followedBy", "$endState$"]])
program("odd_name_with_colon", "a b", begin("a"), [["followedBy", "b:1"], ["where", of("b")]])
program("odd_empty_name", "a b", [["begin", ""], ["where", of("a")], *then("b")])
program("odd_within_none", "a@1 b@1 b@2", begin("a"), after("b"), [["within", 0]])
program("odd_within_negative", "a@1 b@2", begin("a"), then("b"), [["within", -1]])
program("refused_window_beyond_within", "c a a b",
    begin("c"), then("a", ["times", 2, {"window_ms": 9}]), then("b"), [["within", 5]])
program("refused_gap_beyond_span", "a@1 b@3 c@4",
    begin("a"), then("b", ["within", 9, "PREVIOUS_AND_CURRENT"]), then("c", ["within", 5]))

# fmt: on
# Features in combinations that nobody would think of.

HOWS = ["followedBy", "followedBy", "followedBy", "followedByAny", "next", "notFollowedBy", "notNext"]


def drawn(r: Random) -> tuple[Chain, list[str]]:
    """A chain of two to four stages, two of which may be a group, and the stages' names."""

    def quantified(loop: bool) -> Chain:
        calls: Chain = []
        if loop:
            calls += [r.choice([["oneOrMore"], ["oneOrMore"], ["times", 2], ["times", 1, 2], ["timesOrMore", 2]])]
            calls += [[], [["consecutive"]], [["allowCombinations"]], [["greedy"]]][r.randrange(4)]
        return calls + [["optional"]] * (r.random() < 0.2)

    names = [kind + "2" * (r.random() < 0.1) for kind in "abcd"[: r.randrange(2, 5)]]
    grouped = r.randrange(len(names) - 1) if r.random() < 0.2 else -1
    parts: list[Chain] = []
    for i, name in enumerate(names):
        how = r.choice(HOWS) if parts else "begin"
        if how.startswith("not") and (i in (len(names) - 1, grouped, grouped + 1) or any(["optional"] in part for part in parts)):
            how = "followedBy"
        calls = [] if how.startswith("not") else quantified(r.random() < 0.4)
        overlapping = [["or", ["value", "=", 1]]] if r.random() < 0.3 else []
        loops = bool(calls) and calls[0][0] in ("oneOrMore", "timesOrMore")
        until = [["until", ["value", "=", 2]]] if loops and r.random() < 0.2 else []
        parts.append(stage(how, name, *overlapping, *calls, *until))
        if grouped >= 0 and i == grouped + 1:
            *before, first, second = parts
            # Not optional: Flink never ends with a loop over what may be nothing.
            inner = [["begin", first[0][1]], *first[1:], *(call for call in second if call != ["optional"])]
            outer = [call for call in quantified(r.random() < 0.6) if call != ["greedy"]]
            parts = [*before, group(first[0][0], inner, *outer)]
    return [call for part in parts for call in part], names


for seed in range(160):
    r = Random(f"pattern {seed}")
    chain, names = drawn(r)
    if r.random() < 0.4:
        chain.append(["within", r.randrange(3, 9), *["PREVIOUS_AND_CURRENT"] * (r.random() < 0.25)])
    skips = [["noSkip"], ["skipToNext"], ["skipPastLastEvent"], ["skipToFirst", r.choice(names)], ["skipToLast", r.choice(names)]]
    now, given = 0, []
    for i in range(10):
        now += r.choice([0, 1, 1, 1, 2])
        ahead = names[i * len(names) // 10][0]
        given.append(f"{r.choice([ahead, ahead, ahead, *'abcdx'])}{r.choice([0, 0, 0, 0, 1, 2])}@{now}")
    program(f"drawn_{seed}", " ".join(given), chain, **({"skip": r.choice(skips)} if r.random() < 0.5 else {}))
