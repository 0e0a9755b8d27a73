"""What holds for the whole page."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from shop import HOSTILE, READ, Shop

from forkpoint.protocol.endpoint import endpoints
from forkpoint.storage.base import open_storage

Open = Callable[..., Page]
Shot = Callable[[Page, str], None]
PARTS = ("Graph", "Epochs", "Savepoints", "State", "Exceptions", "Log", "Configuration")
SECONDS = float(os.environ.get("PAGE_SECONDS", "15"))  # how long it is watched whether memory stays flat


def parts_of(page: Page, name: str = "orders") -> None:
    """Show each part of a job in turn."""
    page.get_by_role("link", name=name, exact=True).click()
    for part in PARTS:
        link = page.get_by_role("navigation", name="Parts of this job").get_by_role("link", name=part)
        link.click()
        expect(link).to_have_attribute("aria-current", "page")
        expect(page.locator("section.part")).to_be_visible()
        expect(page.get_by_text("Loading …")).to_have_count(0)
        yield part


def test_it_loads_within_a_second_and_asks_its_own_server_only(open_page: Open, shop: Shop) -> None:
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    page.get_by_role("link", name="orders", exact=True).wait_for()
    assert list(parts_of(page)) == list(PARTS)
    assert len(asked) > 30
    assert {url for url in asked if not url.startswith(f"{shop.url}/")} == set()
    assert "token" not in page.url
    page.get_by_role("link", name="Jobs").first.click()
    while True:  # other tests may want the processors, too
        page.reload()
        page.get_by_role("link", name="orders", exact=True).wait_for()
        if page.evaluate("performance.now()") < 1000:
            break
    assert page.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_nothing_needs_scrolling_sideways_on_a_telephone(open_page: Open, shot: Shot, scheme: str) -> None:
    page = open_page(width=390, scheme=scheme)
    page.get_by_role("link", name="orders", exact=True).wait_for()
    too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(too_wide), "Jobs"
    for part in parts_of(page):
        assert not page.evaluate(too_wide), part
        if part == "Graph":
            page.locator(".operator").first.wait_for()
            shot(page, f"page-telephone-{scheme}")
    page.get_by_role("link", name="Requests").click()
    page.get_by_role("heading", level=1, name="Requests").wait_for()
    assert not page.evaluate(too_wide), "Requests"


def luminance(color: str) -> float:
    channels = [int(part) / 255 for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(open_page: Open, shot: Shot, scheme: str) -> None:
    page = open_page(scheme=scheme)
    page.get_by_role("link", name="orders", exact=True).click()
    page.get_by_text("holds the watermark back").first.wait_for()
    style = "element => { const s = getComputedStyle(element); return [s.color, s.backgroundColor]; }"
    _, ground = page.locator("body").evaluate(style)
    _, surface = page.locator(".operator").first.evaluate(style)
    assert (luminance(ground) < 0.05) == (scheme == "dark")
    pairs = [
        (page.locator("h1"), ground),
        (page.locator(".facts dt").first, ground),
        (page.locator(".crumbs a"), ground),
        (page.locator(".operator .uid").first, surface),
        (page.locator(".state"), ground),
        (page.locator(".tag.warn").first, None),
        (page.locator(".notices.warn"), None),
        (page.locator("button.primary"), None),
    ]
    for element, behind in pairs:
        color, own = element.evaluate(style)
        dark, light = sorted(map(luminance, (color, behind or own)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (element, color, behind or own)
    if scheme == "dark":
        shot(page, "page-dark")


def test_names_are_text(open_page: Open) -> None:
    page = open_page()
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    page.get_by_role("link", name=HOSTILE, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    page.get_by_role("link", name="Savepoints").click()
    page.get_by_role("treeitem").first.wait_for()
    assert page.locator("main img").count() == 0
    assert asked == []


def test_a_token_that_may_only_read_gets_no_actions(open_page: Open) -> None:
    page = open_page(token=READ)
    start = page.get_by_role("button", name="Start a job")
    expect(start).to_have_attribute("aria-disabled", "true")
    expect(start).to_contain_text("Your token may only read.")
    start.click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("link", name="orders", exact=True).click()
    actions = page.get_by_role("group", name="Actions").get_by_role("button")
    expect(actions).to_have_count(7)
    expect(page.locator("[aria-disabled=true]")).to_have_count(7)


def test_it_asks_for_a_token_and_says_that_one_is_wrong(open_page: Open, shop: Shop) -> None:
    page = open_page(token=None)
    page.get_by_label("Token").fill("something-else-0123")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="not, or no longer, valid")).to_be_visible()
    page.get_by_label("Token").fill(READ)
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_server_that_does_not_answer_is_reported_until_it_does(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("link", name="orders", exact=True).wait_for()
    page.context.set_offline(True)
    expect(page.get_by_role("alert").filter(has_text="The server does not answer.")).to_be_visible()
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("The server does not answer.")).to_have_count(0)


def test_a_job_serves_the_page_for_itself(open_page: Open, shop: Shop) -> None:
    (own,) = (each for each in endpoints(open_storage(str(shop.root))) if each.job == HOSTILE)
    page = open_page(url=f"http://{own.host}:{own.port}", token=own.token)
    expect(page.get_by_role("table", name="Jobs that run").get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("button", name="Start a job")).to_contain_text("Programs can be uploaded to")


def test_news_leave_focus_and_scrolling_alone(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("link", name="orders", exact=True).click()
    epoch = page.locator(".facts dd").nth(1)
    page.get_by_role("link", name="State").click()
    page.locator("section.part").wait_for()
    page.get_by_role("link", name="Log").click()
    search = page.get_by_label("Lines with")
    search.fill("nothing has this")
    expect(page.get_by_text("No line has this.")).to_be_visible()
    before = epoch.inner_text()
    expect(epoch).not_to_have_text(before)
    expect(search).to_be_focused()
    expect(search).to_have_value("nothing has this")


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_memory_stays_flat_while_it_polls(open_page: Open, shop: Shop) -> None:
    """Ten minutes with ``PAGE_SECONDS=600``; less at a faster pace otherwise."""
    page = open_page()
    page.evaluate("sessionStorage.setItem('forkpoint-tick', '50')")
    page.reload()
    page.get_by_role("link", name="orders", exact=True).click()
    page.locator(".operator").first.wait_for()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    def used() -> tuple[float, float]:
        session.send("HeapProfiler.collectGarbage")
        found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        return found["JSHeapUsedSize"], found["Nodes"]

    while len(asked) < 300:  # the browser notes the timing of the first 250
        page.wait_for_timeout(500)
    begun, found = time.monotonic(), [used()]
    asked.clear()
    for _ in range(2):
        page.wait_for_timeout(SECONDS * 500)
        found.append(used())
    assert len(asked) > 2 * (time.monotonic() - begun)
    (heap, nodes), (heap_between, _), (heap_then, nodes_then) = found
    # What is lost with each request is lost in both halves; the browser itself may need more once, such as for compiled code.
    grown = heap_between - heap, heap_then - heap_between
    assert min(grown) < 300_000, f"{heap:,.0f} bytes, then {grown} more after {len(asked)} requests"
    assert nodes_then < nodes * 1.1 + 50
