"""The page in a real Chromium, served by a real server, over real jobs on the local engine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from shop import OPERATE, Shop

from patience import PATIENCE_S
from servers.debian import debian


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """For the tests of a module: its jobs would go on beside all the tests that the process runs afterwards."""
    with tempfile.TemporaryDirectory(prefix="shop-", ignore_cleanup_errors=True) as directory:
        started = Shop(Path(directory))
        yield started
        started.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    program = debian("chromium-headless-shell", "chromium-headless-shell")  # a context takes a sixth of the time
    expect.set_options(timeout=PATIENCE_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


Open = Callable[..., Page]
TICK_MS = 250
OFTEN = f"sessionStorage.getItem('forkpoint-tick') ?? sessionStorage.setItem('forkpoint-tick', '{TICK_MS}')"
"""The page asks for news so often, not each second: most tests wait for news."""


@pytest.fixture
def open_page(chromium: Browser, shop: Shop) -> Iterator[Open]:
    """Opens the page. It must ask nobody but the server, and raise no error."""
    contexts: list[BrowserContext] = []
    asked: list[str] = []
    wrong: list[str] = []

    def begin(
        width: int = 1280, scheme: str = "light", token: str | None = OPERATE, url: str = shop.url, often: bool = True
    ) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme, locale="en-GB")
        contexts.append(context)
        context.set_default_timeout(0)
        if often:
            context.add_init_script(OFTEN)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url) if not request.url.startswith(f"{url}/") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if "Content Security Policy" in message.text else None)
        page.goto(f"{url}/" if token is None else f"{url}/#token={token}")
        return page

    yield begin
    for context in contexts:
        for page in context.pages:  # what answers a request of the page may be at work
            page.unroute_all(behavior="wait")
        context.close()
    assert asked == []
    assert wrong == []


@pytest.fixture
def shot() -> Callable[[Page, str], None]:
    """Writes a screenshot into the directory SCREENSHOTS, if that is set."""

    def take(page: Page, name: str) -> None:
        if (directory := os.environ.get("SCREENSHOTS")) is not None:
            page.mouse.move(0, 0)
            page.screenshot(path=Path(directory) / f"{name}.png")

    return take
