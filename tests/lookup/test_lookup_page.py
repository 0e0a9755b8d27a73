"""The example of docs/lookup.md that needs a service; the others run with the rest of the documentation."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import pytest
from service import serving

import forkpoint as fp
from examples.doc_blocks import ROOT, blocks
from forkpoint.testing import OperatorHarness

(HTTP,) = (block for block in blocks(ROOT / "docs" / "lookup.md") if block.info == "python")


class Customer(NamedTuple):
    name: str
    age: int


def test_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEOPLE_TOKEN", "right")
    with serving() as service:
        service.token = "Bearer right"
        names: dict[str, Any] = {"fp": fp, "os": os, "Customer": Customer}
        program = HTTP.text.replace("https://people.example/customers/{key}", service.url)
        exec(compile(program, HTTP.name, "exec", dont_inherit=True), names)
        with OperatorHarness(lambda s: s.lookup_join(names["people"], key=lambda k: k)) as harness:
            harness.process_element("ann")
            assert harness.output == [("ann", Customer("ann", 30))]
