"""Comparing what two versions gave."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from forkpoint.operations.versions.comparison import KeyDifference, compare_rows

ROWS = st.lists(st.fixed_dictionaries({"key": st.sampled_from("abcd"), "n": st.integers(0, 3)}), max_size=12)


@given(ROWS, ROWS)
def test_against_counting(a, b):
    found = compare_rows("out", a, b, key=["key"], samples=100)
    rows_a, rows_b = (Counter((row["key"], row["n"]) for row in rows) for rows in (a, b))
    assert (found.rows_a, found.rows_b) == (len(a), len(b))
    assert (found.only_a, found.only_b) == ((rows_a - rows_b).total(), (rows_b - rows_a).total())
    assert found.same == (rows_a == rows_b)
    keys_a, keys_b = ({key for key, _ in rows} for rows in (rows_a, rows_b))
    differing = {key for key, _ in (rows_a - rows_b) + (rows_b - rows_a)}
    assert (found.keys_only_a, found.keys_only_b) == (len(keys_a - keys_b), len(keys_b - keys_a))
    assert found.keys_different == len(differing & keys_a & keys_b)
    assert found.keys_same == len((keys_a | keys_b) - differing)
    assert [sample.key for sample in found.samples] == sorted(differing)
    assert compare_rows("out", a, a[::-1]).same


def test_keys_are_given_or_the_first_field():
    a = [{"post": 1, "kind": "view", "n": 3}, {"post": 1, "kind": "click", "n": 1}]
    b = [{"n": 3, "post": 1, "kind": "view"}, {"n": 2, "post": 1, "kind": "click"}]
    assert compare_rows("out", a, b).keys_different == 1
    by_both = compare_rows("out", a, b, key=["post", "kind"])
    assert (by_both.keys_same, by_both.keys_different, by_both.key) == (1, 1, ["post", "kind"])
    assert by_both.samples == [KeyDifference([1, "click"], [a[1]], [b[1]])]
    lists = compare_rows("out", [["x", 1]], [["x", 2], ["y", 1]])
    assert (lists.key, lists.keys_different, lists.keys_only_b) == (["0"], 1, 1)
    plain = compare_rows("out", ["x", "x", "y"], ["y", "x"])
    assert (plain.key, plain.only_a, plain.only_b, plain.samples) == (None, 1, 0, [KeyDifference("x", ["x"], [])])
