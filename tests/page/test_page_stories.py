"""What somebody on call does with the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from shop import ORDERS, Shop

Open = Callable[..., Page]
Shot = Callable[[Page, str], None]

FAILS = '    if old.orders > 5:\n        raise ValueError(f"no price for {each.drink}")\n'
FIRST = "    old = state or Total(each.drink, 0, 0)\n"


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    """The job's program, with a mistake."""
    program = tmp_path / "orders_v2.py"
    source = ORDERS.read_text()
    assert FIRST in source
    program.write_text(
        source.replace(FIRST, FIRST + '    if old.orders > 5:\n        raise ValueError(f"no price for {each.drink}")\n')
    )
    return program


def open_job(page: Page, name: str = "orders") -> None:
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()


def turn_to(page: Page, part: str) -> None:
    page.get_by_role("navigation", name="Parts of this job").get_by_role("link", name=part).click()


def take_savepoint(page: Page, label: str) -> None:
    page.get_by_role("button", name="Take savepoint").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Label").fill(label)
    dialog.get_by_role("button", name="Take savepoint").click()
    expect(page.get_by_role("heading", level=2, name=label)).to_be_visible()


@pytest.mark.slow
def test_the_split_that_holds_the_watermark_is_found(open_page: Open, shot: Shot) -> None:
    page = open_page()
    expect(page.get_by_role("table", name="Jobs that run").get_by_role("row")).to_have_count(3)
    expect(page.get_by_role("row", name="orders")).to_contain_text("/s")
    shot(page, "page-jobs")
    open_job(page)
    expect(page.get_by_text("Split lima of source orders holds the watermark back")).to_be_visible()
    source = page.locator(".operator[data-uid=orders]")
    expect(source).to_contain_text("held by lima")
    expect(page.locator(".operator[data-uid=paid]")).not_to_contain_text("held")
    page.get_by_role("link", name="Show its splits").click()
    rows = page.get_by_role("table", name="Splits of this source").get_by_role("row")
    expect(rows).to_have_count(5)
    expect(rows.nth(1)).to_contain_text("lima")
    expect(rows.nth(1)).to_contain_text("holds the watermark back")
    expect(rows.filter(has_text="holds")).to_have_count(1)
    expect(source).to_contain_text("/s")
    shot(page, "page-graph")
    page.locator(".operator[data-uid=per-minute]").click()
    expect(page.locator(".detail")).to_contain_text("Its watermark waits for source orders, there for split lima.")
    for name in ("Busy", "Bytes in"):
        expect(page.locator(".detail dt", has_text=name)).to_be_visible()
    expect(page.locator(".head.job dt", has_text="State")).to_be_visible()


def test_each_operator_tells_how_much_state_and_how_many_timers_it_keeps(open_page: Open) -> None:
    page = open_page()
    open_job(page)
    operators = page.get_by_role("table", name="All operators")
    kept = operators.get_by_role("row").filter(has=page.get_by_role("button", name="totals"))
    expect(kept.get_by_role("cell").nth(9)).to_have_text(re.compile(r"^4 · \d\d+ B$"))  # one for each drink
    expect(kept.get_by_role("cell").nth(10)).to_have_text("0")
    page.locator(".operator[data-uid=per-minute]").click()
    detail = page.locator(".detail")
    # The split that stands still keeps all windows open.
    expect(detail.locator("dl > div", has=page.get_by_text("Event-time timers", exact=True)).locator("dd")).to_have_text(
        re.compile(r"^\d+$")
    )
    expect(detail.locator("dl > div", has=page.get_by_text("State", exact=True)).locator("dd")).to_have_text(
        re.compile(r"^[\d,]+ entries, .*B$")
    )
    page.locator(".operator[data-uid=ledger]").click()
    expect(detail.locator("dt", has_text="Keeps state")).to_be_visible()
    expect(detail.locator("dt", has_text="timers")).to_have_count(0)


QUERY = """
SET 'execution.engine' = 'local';
CREATE TABLE numbers (n BIGINT)
WITH ('connector' = 'datagen', 'rows-per-second' = '100', 'fields.n.min' = '0', 'fields.n.max' = '5');
CREATE TABLE counts (n BIGINT, times BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO counts SELECT n, COUNT(*) FROM numbers GROUP BY n;
"""


def test_a_query_tells_what_it_keeps(open_page: Open, shop: Shop, shot: Shot, tmp_path: Path) -> None:
    (tmp_path / "counts.sql").write_text(QUERY)
    shop.forkpoint("run", "-d", str(tmp_path / "counts.sql"))
    try:
        page = open_page()
        page.get_by_role("link", name="counts", exact=True).click()
        page.locator(".operator[data-uid=counts-group-by-n]").click()
        told = page.locator(".detail dl > div")
        for name, value in {
            "Result": "adds and removes rows",
            "Key": "n",
            "Keeps": "a row for each group, without limit",
            "State": re.compile(r"^[\d,]+ entries, .*B$"),
        }.items():
            expect(told.filter(has=page.get_by_text(name, exact=True)).locator("dd")).to_have_text(value)
        shot(page, "query")
        explained = {each["uid"]: each for each in shop.forkpoint("explain", "counts")["operators"]}["counts-group-by-n"]
        assert explained["properties"]["changes"] == "adds and removes rows"
        assert explained["rows_in"] > 0
        assert 0 < explained["entries"] <= 6
    finally:
        shop.forkpoint("cancel", "counts")


def test_an_upgrade_whose_trial_fails_goes_back(open_page: Open, shot: Shot, failing: Path) -> None:
    page = open_page()
    open_job(page)
    page.get_by_role("button", name="Upgrade").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("input[type=file]").set_input_files(failing)
    dialog.get_by_role("button", name="Upgrade").click()
    request = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="Upgrade · orders"))
    expect(request).to_contain_text("It went back to the old version.")
    expect(request).to_contain_text("Its trial failed")
    expect(request).to_contain_text("no price for")
    shot(page, "page-upgrade")
    page.get_by_role("link", name="Jobs").click()
    open_job(page)
    expect(page.locator(".head .state")).to_have_text("running")
    turn_to(page, "Configuration")
    runs = page.get_by_role("table", name="Runs of this job").get_by_role("row")
    expect(runs.filter(has_text="running")).to_contain_text("orders.py")
    expect(runs.filter(has=page.locator(".state.bad"))).to_contain_text("orders_v2.py")


def test_two_savepoints_are_compared(open_page: Open, shot: Shot) -> None:
    page = open_page()
    open_job(page)
    take_savepoint(page, "before the sale")
    take_savepoint(page, "after the sale")
    chosen = page.get_by_role("tree", name="History").get_by_role("treeitem", name="before the sale")
    chosen.click()
    expect(chosen).to_have_attribute("aria-selected", "true")
    page.get_by_label("Compare with").select_option(label=page.locator("option", has_text="after the sale").inner_text())
    page.get_by_role("button", name="Compare").click()
    compared = page.get_by_role("region", name="Compared")
    expect(compared).to_contain_text("states have the same types")
    expect(compared).to_contain_text("states differ")
    expect(compared).to_be_focused()
    changed = compared.get_by_role("table", name="States").get_by_role("row").filter(has_text="totals")
    expect(changed).to_contain_text("changed")
    samples = compared.get_by_role("table", name="Differences of state").get_by_role("row")
    expect(samples).to_have_count(5)
    before, after = (samples.filter(has_text="tea").get_by_role("cell").nth(i).inner_text() for i in (2, 3))
    assert '"drink": "tea"' in before
    assert before != after
    shot(page, "page-compare")


@pytest.mark.slow
def test_a_program_is_checked_against_a_savepoint(open_page: Open, shot: Shot, tmp_path: Path) -> None:
    program = tmp_path / "orders_v3.py"
    program.write_text(ORDERS.read_text().replace('.uid("totals")', '.uid("sums")'))
    page = open_page()
    open_job(page)
    take_savepoint(page, "to check")
    page.get_by_role("button", name="Check a program").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("input[type=file]").set_input_files(program)
    dialog.get_by_role("button", name="Check").click()
    expect(dialog).to_contain_text("It does not fit.")
    rows = dialog.get_by_role("table").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("refused")
    expect(rows.filter(has_text="sums").first).to_contain_text("new")
    shot(page, "page-check")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def test_what_is_kept_for_a_key_is_found(open_page: Open, shot: Shot) -> None:
    page = open_page()
    open_job(page)
    take_savepoint(page, "to look into")
    page.get_by_role("link", name="Open its state").click()
    page.get_by_role("navigation", name="States").get_by_role("link", name="totals").click()
    rows = page.get_by_role("table", name="Rows of state").get_by_role("row")
    expect(rows).to_have_count(5)
    page.get_by_label("Key (string)").fill("tea")
    page.get_by_role("button", name="Find").click()
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text('"drink": "tea"')
    shot(page, "page-state")
    page.get_by_label("Key (string)").fill("lemonade")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing is kept for the key lemonade.")).to_be_visible()
    page.get_by_label("Query").fill("SELECT count(*) AS drinks FROM totals.state")
    page.keyboard.press("Control+Enter")
    result = page.get_by_role("table", name="Result").get_by_role("row")
    expect(result.nth(1)).to_have_text("4")
    page.get_by_label("Query").fill("SELECT nonsense FROM totals.state")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert").filter(has_text="nonsense")).to_be_visible()


@pytest.mark.slow
def test_the_state_of_a_running_job_is_looked_into(open_page: Open) -> None:
    page = open_page()
    open_job(page)
    turn_to(page, "State")
    expect(page.get_by_label("State of")).to_have_value("live")
    page.get_by_role("navigation", name="States").get_by_role("link", name="totals").click()
    rows = page.get_by_role("table", name="Rows of state").get_by_role("row")
    expect(rows).to_have_count(5)
    expect(page.get_by_text("The first 4 rows, at epoch")).to_be_visible()
    page.get_by_label("Key (string)").fill("tea")
    page.get_by_role("button", name="Find").click()
    kept = page.get_by_text("Kept for the key tea at epoch")
    expect(kept).to_be_visible()
    before = kept.inner_text(), rows.nth(1).inner_text()
    expect(kept).not_to_have_text(before[0])  # the job goes on, and the page with it
    assert rows.nth(1).inner_text() != before[1]
    page.get_by_label("Query").fill("SELECT nonsense FROM totals.state")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert").filter(has_text="nonsense")).to_be_visible()
    page.get_by_label("Query").fill("SELECT count(*) AS drinks FROM totals.state")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("table", name="Result").get_by_role("row").nth(1)).to_have_text("4")


def test_the_watermark_is_found_with_the_keyboard_only(open_page: Open) -> None:
    page = open_page()

    def tab_to(what: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.locator(f"{what}:focus").count() == 1:
                return
        raise AssertionError(f"Tab does not reach {what}")

    page.get_by_role("table", name="Jobs that run").wait_for()
    page.get_by_role("link", name="orders", exact=True).wait_for()
    tab_to("a:text-is('orders')")
    page.keyboard.press("Enter")
    page.locator(".operator[data-uid=orders]").wait_for()
    tab_to(".operator[data-uid=orders]")
    for key, uid in (("Right", "paid"), ("Right", "totals"), ("Down", "per-minute"), ("Right", "dashboard")):
        page.keyboard.press(f"Arrow{key}")
        expect(page.locator(f".operator[data-uid={uid}]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".operator[data-uid=dashboard]")).to_be_focused()  # also after the redrawing
    tab_to(".detail button.link")
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="Splits of this source")).to_contain_text("holds the watermark back")


@pytest.mark.slow
def test_the_tree_is_walked_with_the_keyboard(open_page: Open) -> None:
    page = open_page()
    open_job(page)
    take_savepoint(page, "by hand")
    turn_to(page, "Savepoints")
    item = page.get_by_role("tree", name="History").get_by_role("treeitem")
    expect(item.last).to_contain_text("by hand")
    expect(item.last).to_have_attribute("aria-selected", "false")
    item.last.focus()
    page.keyboard.press("Home")
    expect(item.first).to_be_focused()
    shown = item.count()
    page.keyboard.press("ArrowLeft")
    expect(item.first).to_have_attribute("aria-expanded", "false")
    assert item.count() < shown
    page.keyboard.press("ArrowRight")
    expect(item).to_have_count(shown)
    for i in range(1, shown):
        page.keyboard.press("ArrowDown")
        expect(item.nth(i)).to_be_focused()
    page.keyboard.press("Enter")
    expect(item.last).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("heading", level=2, name="by hand")).to_be_visible()


@pytest.mark.slow
def test_what_is_wrong_is_told_at_all_jobs_and_at_the_job(open_page: Open, shot: Shot, shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    program = tmp_path / "waits.py"
    program.write_text(
        "import forkpoint as fp\n"
        "settings = {'execution.silence-alert': '1 s', 'execution.checkpointing.interval': '50 ms'}\n"
        "env = fp.StreamExecutionEnvironment.get_execution_environment(settings)\n"
        f"lines = env.from_source(fp.FileSource.text({str(tmp_path / 'in')!r}), fp.WatermarkStrategy.no_watermarks(), 'lines')\n"
        "lines.uid('lines').sink_to(fp.DiscardSink()).uid('out')\n"
        "env.execute('waits')\n"
    )
    shop.forkpoint("run", "-d", str(program))
    try:
        page = open_page()
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="waits", exact=True))
        expect(row).to_contain_text("no data: source 'lines' has read nothing for ")
        row.get_by_role("link", name="waits", exact=True).click()
        expect(page.locator(".notices.warn")).to_contain_text("no data: source 'lines' has read nothing for ")
        shot(page, "page-wrong")
    finally:
        shop.forkpoint("cancel", "waits")
