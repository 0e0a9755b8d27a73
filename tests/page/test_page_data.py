"""Data that are hard to show: long integers, names that are equal, characters that hide others, times long ago."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from odd import HIDING, LARGE, LARGEST_KEY, PLACE
from playwright.sync_api import Page, expect
from shop import ORDERS, Shop

Open = Callable[..., Page]
Shot = Callable[[Page, str], None]
LONG_AGO_MS = 1_700_000_000_000
SHOWN = "from \\u202eright\\x1b[31m to left"


@pytest.fixture(scope="module")
def lines(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory that the odd job reads."""
    directory = tmp_path_factory.mktemp("odd") / "in"
    directory.mkdir()
    (directory / "first.txt").write_text("hello\n")
    shop.forkpoint("run", "-d", str(ORDERS.with_name("odd.py")), "--", str(directory))
    yield directory
    shop.forkpoint("cancel", "odd job")


def open_state(page: Page) -> None:
    page.get_by_role("link", name="odd job", exact=True).click()
    page.get_by_role("navigation", name="Parts of this job").get_by_role("link", name="State").click()
    page.get_by_role("navigation", name="States").wait_for()


@pytest.mark.slow
def test_integers_keep_all_of_their_digits(open_page: Open, lines: Path) -> None:
    page = open_page()
    open_state(page)
    page.get_by_role("navigation", name="States").get_by_role("link", name="first").click()
    row = page.get_by_role("table", name="Rows of state").get_by_role("row").nth(1)
    expect(row).to_contain_text(str(LARGEST_KEY))
    expect(row).to_contain_text(str(LARGE))
    page.get_by_label("Query").fill(f"SELECT {LARGE}::HUGEINT AS large, [{LARGEST_KEY}, 7] AS list, 0.5 AS half")
    page.keyboard.press("Control+Enter")
    result = page.get_by_role("table", name="Result").get_by_role("row").nth(1)
    expect(result.get_by_role("cell")).to_have_text([str(LARGE), f"[ {LARGEST_KEY}, 7 ]", "0.5"])


@pytest.mark.parametrize("parse", ["parse", pytest.param("parseWithStrings", marks=pytest.mark.slow)])
def test_only_long_integers_are_read_otherwise(open_page: Open, parse: str) -> None:
    page = open_page()
    text = (
        r'{"long": [-9223372036854775808, 12345678901234567890], "not": [9007199254740991, -1, 0.12345678901234567890, 1e300],'
        r' "text": "9223372036854775807 \" 9223372036854775807", "9223372036854775807": null}'
    )
    found = page.evaluate(
        "async ([name, text]) => { const parse = (await import('/exact.js'))[name]; const all = parse(text);"
        " return [all.long.map(String), all.long[1] > 1e19, all.not, all.text, Object.keys(all)]; }",
        [parse, text],
    )
    assert found == [
        ["-9223372036854775808", "12345678901234567890"],
        True,
        [9007199254740991, -1, 0.12345678901234568, 1e300],
        '9223372036854775807 " 9223372036854775807',
        ["long", "not", "text", "9223372036854775807"],
    ]


@pytest.mark.slow
def test_states_with_equal_names_are_listed_as_sql_takes_them(open_page: Open, lines: Path, shot: Shot) -> None:
    page = open_page()
    open_state(page)
    views = page.get_by_role("region", name="In SQL").locator("p code")
    expect(views.filter(has_text="first")).to_have_text('"first"."state"')
    expect(views.filter(has_text="second")).to_have_text('"second"."state"')
    expect(views.filter(has_text="<i>")).to_have_text('"a/b ""x"" <i>ü"."state"')
    for view in views.all_inner_texts():
        page.get_by_label("Query").fill(f"SELECT '{len(view)} characters' AS told, * FROM {view}")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("table", name="Result")).to_contain_text(f"{len(view)} characters")
    shot(page, "page-views")


def test_siblings_with_the_same_key_stay_apart(open_page: Open) -> None:
    page = open_page()
    found = page.evaluate(
        "async () => { const { h, render } = await import('/dom.js'); const box = document.createElement('ul');"
        " const draw = (...texts) => { render(box, texts.map((text) => h('li', { key: 'same' }, text)));"
        " return [...box.children].map((each) => each.textContent); };"
        " return [draw('a', 'b', 'c'), draw('b', 'c'), draw('d', 'e', 'f')]; }"
    )
    assert found == [["a", "b", "c"], ["b", "c"], ["d", "e", "f"]]


def test_each_name_is_one_segment_of_a_path(open_page: Open, lines: Path) -> None:
    page = open_page()
    open_state(page)
    with page.expect_request(lambda request: "/state/a" in request.url) as asked:
        page.get_by_role("navigation", name="States").get_by_role("link", name=PLACE).click()
    assert "/state/a%2Fb%20%22x%22%20%3Ci%3E%C3%BC/state?" in asked.value.url
    expect(page.get_by_role("heading", level=2, name=PLACE)).to_be_visible()
    expect(page.get_by_role("table", name="Rows of state").get_by_role("row")).not_to_have_count(0)


@pytest.mark.slow
def test_characters_that_hide_others_are_escaped(open_page: Open, lines: Path) -> None:
    page = open_page()
    open_state(page)
    page.get_by_label("Query").fill('SELECT * FROM "second"."state"')
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("table", name="Result")).to_contain_text(SHOWN)
    (lines / "second.txt").write_text(HIDING + "\n")
    page.get_by_role("link", name="Exceptions").click()
    expect(page.locator("section.part pre").first).to_contain_text(SHOWN)
    assert not re.search("[\u202e\x1b]", page.locator("body").inner_text())
    page.get_by_role("link", name="Log").click()
    expect(page.get_by_role("log")).to_contain_text("\\u202e")
    assert not re.search("[\u202e\x1b]", page.locator("body").inner_text())


@pytest.mark.slow
def test_a_rate_is_told_when_it_is_known(open_page: Open) -> None:
    page = open_page()
    found = page.evaluate(
        "async () => { const { Rates } = await import('/parts.js'); const rates = new Rates();"
        " return [[0, 0], [1000, 0], [2000, 60], [3000, 60], [5000, 100], [11000, 200], [21000, 200], [31000, 200]]"
        ".map(([at, n]) => { rates.note(at, { n, still: 7 }); return [rates.of('n'), rates.of('still')]; }); }"
    )
    assert found == [
        [None, None],
        [None, None],
        [None, None],
        [20, None],
        [20, None],
        [20, 0],
        [0, 0],
        [0, 0],
    ]
    page.get_by_role("link", name="orders", exact=True).click()
    rate = page.locator(".head.job dl > div", has=page.get_by_text("Rate", exact=True)).locator("dd")
    told: set[str] = set()
    while not any("/s" in each for each in told):
        told.add(rate.inner_text())
    assert "–" in told
    assert "0/s" not in told


@pytest.fixture(scope="module")
def long_ago(shop: Shop) -> Iterator[None]:
    """A job whose times are years ago, with a split that holds its watermark back."""
    shop.forkpoint("run", "-d", str(ORDERS), "--", str(LONG_AGO_MS), "long ago")
    yield
    shop.forkpoint("cancel", "long ago")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_a_watermark_of_long_ago_fits(open_page: Open, long_ago: None, shot: Shot, width: int) -> None:
    page = open_page(width=width)
    page.get_by_role("link", name="long ago", exact=True).click()
    source = page.locator(".operator[data-uid=orders]")
    expect(source).to_contain_text("held by lima")
    expect(source).to_contain_text(re.compile(r"2023-11-1\d \d\d:\d\d(?!:)"))
    expect(source.locator("[title^='Watermark: 2023-11-14T22:13']")).to_be_visible()
    shot(page, f"page-long-ago-{width}")
    cut = page.locator(".operator .line:not(.tags)").evaluate_all(
        "lines => lines.filter((line) => line.scrollWidth > line.clientWidth).map((line) => line.textContent)"
    )
    assert cut == []


@pytest.mark.slow
def test_all_parts_of_a_job_are_in_sight_on_a_telephone(open_page: Open) -> None:
    page = open_page(width=390)
    page.get_by_role("link", name="orders", exact=True).click()
    parts = page.get_by_role("navigation", name="Parts of this job").get_by_role("link")
    expect(parts).to_have_count(7)
    for part in parts.all():
        box = part.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
