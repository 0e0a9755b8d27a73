"""The page when something is wrong: a long error, an operator that is slow, fifty jobs; and what mends it."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from shop import Shop

from forkpoint.protocol.endpoint import endpoints
from forkpoint.storage.base import open_storage

Open = Callable[..., Page]
Shot = Callable[[Page, str], None]
PROGRAM = Path(__file__).with_name("trouble.py")
NARROW = (390, *(pytest.param(width, marks=pytest.mark.slow) for width in (1280, 1920)))
WIDE = (1920, *(pytest.param(width, marks=pytest.mark.slow) for width in (390, 1280)))
TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
ACTIONS = ("Take savepoint", "Upgrade", "Fork", "Rescale", "Stop", "Cancel", "Start again")
ERROR = "the price list has no entry for this drink"


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A job with a slow operator, and one that fails with a long error."""
    directory = tmp_path_factory.mktemp("trouble")
    files = directory / "files"
    files.mkdir()
    for n in range(300):
        (files / f"{n:03}.txt").write_text("".join(f"order {n * 1000 + i}\n" for i in range(1000)))
    made = Shop(directory, [("slow", PROGRAM, "slow", str(files)), ("fails", PROGRAM, "fails", str(directory / "out"))])
    yield made
    made.close()


def open_job(page: Page, name: str) -> None:
    page.locator(".jobs").get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()


def places(page: Page) -> list[Any]:
    """Where the buttons and tabs are."""
    parts = [page.get_by_role("group", name="Actions").get_by_role("button", name=name) for name in ACTIONS]
    parts.append(page.get_by_role("navigation", name="Parts of this job"))
    parts.append(page.locator("section.part"))
    return [part.bounding_box() for part in parts]


@pytest.mark.parametrize("width", NARROW)
def test_a_long_error_is_clamped_below_the_buttons_and_shown_once(open_page: Open, trouble: Shop, shot: Shot, width: int) -> None:
    page = open_page(width=width, url=trouble.url)
    open_job(page, "fails")
    expect(page.locator(".head .state")).to_have_text("failed")
    notice = page.locator(".notices")
    expect(notice).to_contain_text(ERROR)
    reason = trouble.forkpoint("list", "-a")["jobs"]
    said = next(each["reason"] for each in reason if each["job"] == "fails").count(ERROR)
    assert said >= 38
    assert page.locator("main").inner_text().count(ERROR) == said
    *buttons, tabs, part = places(page)
    assert all(box["y"] + box["height"] <= tabs["y"] for box in buttons)
    assert tabs["y"] + tabs["height"] <= notice.bounding_box()["y"]
    assert part["y"] < 860  # of what is seen without scrolling
    assert not page.evaluate(TOO_WIDE)
    expect(page.locator(".operator[data-uid=numbers]")).to_contain_text("200")
    shot(page, f"page-error-{width}")
    page.get_by_role("button", name="Show all").click()
    assert [box["y"] for box in places(page)[:-1]] == [box["y"] for box in (*buttons, tabs)]
    assert notice.locator(".told").inner_text().count(ERROR) == said
    assert not page.evaluate(TOO_WIDE)
    shot(page, f"page-error-open-{width}")


@pytest.mark.parametrize("width", NARROW)
def test_what_comes_and_goes_moves_no_button(open_page: Open, trouble: Shop, width: int) -> None:
    page = open_page(width=width, url=trouble.url)
    wrong: list[dict[str, Any]] = []

    def with_problems(route: Route) -> None:
        answer = route.fetch()
        details = answer.json()
        details["overview"]["problems"] = wrong
        route.fulfill(response=answer, body=json.dumps(details))

    page.route(re.compile("/v1/jobs/[0-9a-f]{32}$"), with_problems)
    open_job(page, "slow")
    expect(page.locator(".notices")).to_contain_text("Nothing is wrong.")
    page.locator(".operator").first.wait_for()
    before = places(page)
    for severity in ("warning", "critical"):
        wrong[:] = [
            {"severity": severity, "kind": f"kind-{n}", "uid": None, "text": f"{severity} {n}: {ERROR}. " * 9} for n in range(5)
        ]
        expect(page.locator(".notices")).to_contain_text(severity)
        assert places(page) == before
    page.unroute_all(behavior="wait")
    page.context.set_offline(True)
    expect(page.get_by_role("alert").filter(has_text="The server does not answer.")).to_be_visible()
    assert places(page) == before
    page.context.set_offline(False)
    expect(page.locator(".notices")).to_contain_text("Nothing is wrong.")
    assert places(page) == before


@pytest.mark.parametrize("width", WIDE)
def test_the_operator_that_is_slow_is_seen_without_a_click(open_page: Open, trouble: Shop, shot: Shot, width: int) -> None:
    page = open_page(width=width, url=trouble.url)
    open_job(page, "slow")
    slowest, source = page.locator(".operator[data-uid=prices]"), page.locator(".operator[data-uid=lines]")
    expect(slowest).to_have_class(re.compile(r"\bslow\b"))
    expect(slowest).to_contain_text("slowest")
    expect(slowest).to_contain_text(re.compile(r"busy\s*<?\d+ %"))
    expect(source).to_have_class(re.compile(r"\bheld\b"))
    expect(source).to_contain_text(re.compile(r"back pressure <?\d+ %"))
    expect(source).to_contain_text("backlog")
    expect(page.get_by_role("list", name="What the colours of operators mean")).to_contain_text("slowest")
    row = page.get_by_role("table", name="All operators").get_by_role("row").filter(has_text="prices")
    expect(row.get_by_role("cell").nth(4)).to_have_text(re.compile(r"^<?\d+ %$"))
    assert not page.evaluate(TOO_WIDE)
    shot(page, f"page-slow-{width}")


def fifty(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many jobs, like the two that there are."""
    states = [("RUNNING", "running")] * 2 + [
        ("FAILED", "failed"),
        ("RESTARTING", "restarting"),
        ("FINISHED", "stopped"),
    ]
    found = []
    for n in range(50):
        state, own = states[n % 5]
        wrong = {"severity": "critical", "kind": "failed", "uid": None, "text": f"{own}: {ERROR} {n}. " * 6}
        told = {"state": state, "forkpoint-state": own, "reason": None, "problems": [wrong] if n % 5 in (2, 3) else []}
        counts = {
            "epoch": 7 * n,
            "records-read": 1_234_567 * (n * 7 % 50),
            "restarts": n % 4,
            "late-records-dropped": 0,
        }
        named = {"jid": f"{n:032x}", "run": "a", "name": f"orders of town number {n}", "duration": 3_600_000 * n}
        found.append(jobs[0] | told | counts | named)
    return found


@pytest.mark.parametrize("width", WIDE)
def test_fifty_jobs_are_searched_sorted_and_filtered(open_page: Open, trouble: Shop, shot: Shot, width: int) -> None:
    page = open_page(width=width, url=trouble.url)

    def many(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=json.dumps({"jobs": fifty(answer.json()["jobs"])}))

    page.route("**/v1/jobs/overview", many)
    names = page.locator(".jobs th[scope=row] a.strong")
    expect(names).to_have_count(50)
    assert not page.evaluate(TOO_WIDE)
    shot(page, f"page-fifty-{width}")
    if width > 1020:
        assert {box["height"] for box in (name.bounding_box() for name in names.all())} == {names.first.bounding_box()["height"]}
        card = page.locator(".card:has(.jobs)").first
        assert not card.evaluate("card => card.scrollWidth > card.clientWidth")
        why = page.locator(".jobs .why:not(.none)").first.bounding_box()
        assert why["width"] > 270
        page.get_by_role("button", name="Records").first.click()
        expect(page.locator("th[aria-sort=descending]").first).to_contain_text("Records")
    else:
        page.get_by_label("Sort by").select_option("records")
    expect(names.first).to_have_text("orders of town number 21")
    page.get_by_role("group", name="Show").get_by_role("button", name="Failed").click()
    expect(names).to_have_count(10)
    page.get_by_label("Search").fill("number 2")
    expect(names).to_have_count(6)  # all words are looked for: 2, 12, 22, 27, 32, 42
    assert "show=failed" in page.url
    assert "q=number+2" in page.url
    assert "sort=records" in page.url
    kept = names.all_inner_texts()
    page.reload()
    expect(names).to_have_text(kept)
    expect(page.get_by_label("Search")).to_have_value("number 2")
    page.get_by_label("Search").fill("nowhere")
    page.get_by_role("button", name="Show all").click()
    expect(names).to_have_count(50)


ALL = (
    "%",
    "%E0%A4%A",
    "%00",
    "..",
    "a/b/c/d/e/f/%",
    "../config",
    "..%2F..",
    "/",
    "__proto__",
    "constructor/constructor",
)
PARTS = (
    "graph/%",
    "graph/..",
    "epochs/%",
    "savepoints/%",
    "savepoints/../with/%",
    "savepoints/%/with/%",
    "state/%",
    "state/../..",
    "state/live/../config",
    "state/live/%/%",
    "exceptions/%",
    "log/%",
    "configuration/%",
    "constructor",
    "?%",
)
OTHERS = (
    "#/%",
    "#%",
    "#/jobs?q=%&sort=%zz&show=__proto__&down=x",
    "#/jobs?%",
    "#/requests/%",
    "#/requests/..",
    "#token=%",
    "#\u202e",
)
LONG = ["#" + "/" * 5000, "#/jobs/" + "%F0" * 500]
HOSTILE = [*(f"#/jobs/{each}" for each in ALL), *(f"#/JOB/{each}" for each in PARTS), *OTHERS, *LONG]


def test_no_address_breaks_the_page(open_page: Open, trouble: Shop) -> None:
    """``open_page`` fails if anything is raised. The page always has something to say."""
    page = open_page(url=trouble.url, often=False)  # its network is idle in between
    page.locator(".jobs").get_by_role("link", name="fails", exact=True).click()
    page.locator(".operator").first.wait_for()
    job = re.search("#/(jobs/[0-9a-f]{32})", page.url)
    assert job is not None
    token = page.evaluate("sessionStorage.getItem('forkpoint-token')")
    for hostile in HOSTILE:
        page.evaluate("hash => { location.hash = hash; }", hostile.replace("JOB", job[1]))
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(60)
        assert page.locator("main").inner_text().strip(), hostile
        page.evaluate("token => sessionStorage.setItem('forkpoint-token', token)", token)
    page.evaluate("location.hash = '#/jobs'")
    expect(page.get_by_role("link", name="fails", exact=True)).to_be_visible()


def written(out: Path) -> list[str]:
    files = (file for file in out.rglob("part*") if file.is_file())
    return sorted((line for file in files for line in file.read_text().splitlines()), key=lambda line: int(line.split()[0]))


def test_a_job_that_failed_and_was_then_killed_starts_again_from_the_page(open_page: Open, trouble: Shop, shot: Shot) -> None:
    """No record is lost or repeated. It is the last test of this module: others look at the failed job."""
    out = trouble.root.parent / "out"
    page = open_page(url=trouble.url)
    open_job(page, "fails")
    (out.parent / "MENDED").touch()

    def start_again() -> None:
        page.get_by_role("button", name="Start again").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("trouble.py")
        shot(page, "page-restart")
        dialog.get_by_role("button", name="Start again").click()
        expect(dialog).to_have_count(0)
        expect(page.locator(".head .state")).to_have_text("running")

    start_again()
    expect(page.get_by_role("button", name="Start again")).to_have_attribute("aria-disabled", "true")
    (own,) = (each for each in endpoints(open_storage(str(trouble.root))) if each.job == "fails")
    os.kill(own.pid, signal.SIGKILL)
    expect(page.locator(".head .state")).to_have_text("lost")
    start_again()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop with savepoint").click()
    expect(page.locator(".head .state")).to_have_text("stopped")
    lines = written(out)
    assert lines == [f"{n} {n}" for n in range(len(lines))]
    assert len(lines) > 200
