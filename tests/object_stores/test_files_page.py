"""The program of docs/files.md about object stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.doc_blocks import ROOT, blocks
from object_stores.buckets import Bucket

(PROGRAM,) = (block for block in blocks(ROOT / "docs" / "files.md") if block.info == "python")


def test_the_program(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.client.create_bucket(Bucket="lake")
    for day, country in (("2026-01-01", "CH"), ("2026-01-02", "AT"), ("2025-01-01", "FR")):
        bucket.client.put_object(Bucket="lake", Key=f"in/{day}/a.json", Body=json.dumps({"country": country}) + "\n")
    monkeypatch.setenv("FORKPOINT_STATE_ROOT", str(tmp_path))
    monkeypatch.setenv("FORKPOINT_ENGINE", "local")
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PROGRAM.text, PROGRAM.name, "exec", dont_inherit=True), names)
    names["env"].execute("orders")
    keys = [each["Key"] for each in bucket.client.list_objects_v2(Bucket="lake", Prefix="out/")["Contents"]]
    visible = sorted(key for key in keys if "/." not in key)
    assert [key.split("/")[1] for key in visible] == ["AT", "CH"]
    assert bucket.client.get_object(Bucket="lake", Key=visible[0])["Body"].read() == b'{"country":"AT"}\n'
