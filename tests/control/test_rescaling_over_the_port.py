"""A rescaling is requested over the control port."""

import httpx
import pytest

from forkpoint.errors import JobFailed
from forkpoint.protocol.http import over_http
from forkpoint.protocol.port import HOST


def test_a_job_is_rescaled(start):
    control, _ = start()
    with over_http(control.endpoint) as client:
        before = client.status()
        epoch = client.wait_epoch(client.rescale(before.parallelism + 1), "rescaled")
        after = client.status()
        assert after.parallelism == before.parallelism + 1
        assert after.rescaling_to is None
        assert after.restarts == 0
        assert after.epoch >= epoch > before.epoch


def test_a_refusal_says_why(start):
    control, _ = start()
    with over_http(control.endpoint) as client:
        with pytest.raises(JobFailed, match=r"was not rescaled: .*parallelism 1000 is above its max parallelism of 128"):
            client.wait_epoch(client.rescale(1000), "rescaled")
        assert client.status().state == "running"


def test_a_body_without_a_parallelism_is_refused(start):
    control, _ = start()
    headers = {"authorization": f"Bearer {control.endpoint.token}"}
    with httpx.Client(base_url=f"http://{HOST}:{control.endpoint.port}", trust_env=False, headers=headers) as http:
        reply = http.post("/v1/rescale", json={})
        assert reply.status_code == 400
        assert reply.json()["error"]["message"] == "parallelism: Field required. It takes parallelism"
