"""The patterns of a job's operators: drawn, in words, and how far the partial matches of a key are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from payments import HOSTILE
from playwright.sync_api import Page, expect
from shop import ORDERS, Shop

Open = Callable[..., Page]
Shot = Callable[[Page, str], None]


def test_a_pattern_is_drawn_and_tells_how_far_a_key_is(open_page: Open, shop: Shop, shot: Shot, tmp_path: Path) -> None:
    (tmp_path / "payments.txt").write_text("4711 7 60000\n4711 50 90000\n4711 5 95000\n0815 80 96000\n0815 80 97000\n")
    shop.forkpoint("run", "-d", str(ORDERS.with_name("payments.py")), "--", str(tmp_path))
    try:
        page = open_page()
        page.get_by_role("link", name="payments", exact=True).click()
        drawn = page.get_by_role("region", name="States of the pattern")
        for uid, names, told in [
            ("fraud", ["small", "mid", "large", "match"], "takes an event if amount < 10 → mid"),
            ("long", ["first", "<script>alert", "repeated:1", "in:1", "out", "greedy", "match"], f"{HOSTILE}\n  takes an event"),
        ]:
            page.locator(f".operator[data-uid={uid}]").click()
            expect(page.locator(".detail pre")).to_contain_text(told)
            expect(drawn.locator(".step text:first-of-type")).to_contain_text(names)
            drawn.scroll_into_view_if_needed()
            shot(page, f"pattern-{uid}")
        page.get_by_role("navigation", name="Parts of this job").get_by_role("link", name="State").click()
        page.get_by_role("navigation", name="States").get_by_role("link", name="partial_matches fraud").click()
        page.get_by_label("Key (string)").fill("4711")
        page.keyboard.press("Enter")
        rows = page.get_by_role("table", name="Partial matches of this key").get_by_role("row")
        expect(rows).to_have_count(3)
        expect(rows.nth(1)).to_contain_text("small at 1970-01-01")
        expect(rows.nth(1)).to_contain_text("mid at 1970-01-01")
        expect(rows.nth(1)).to_contain_text("large (<lambda>(…))")
        expect(rows.nth(2)).to_contain_text("amount <= 100")
        expect(rows.nth(2).locator("time").last).to_have_attribute("datetime", "1970-01-01T01:01:35.000Z")
        shot(page, "pattern-progress")
    finally:
        shop.forkpoint("cancel", "payments")
