"""A real driver on the local engine, with its control port."""

import threading
import time

import pytest

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.serve.commands import Commands
from forkpoint.driver.serve.endpoint_publisher import EndpointPublisher
from forkpoint.protocol.endpoint import endpoints
from forkpoint.protocol.port import ControlPort
from forkpoint.storage.base import open_storage
from patience import PATIENCE_S

JOB = "odd / name"


class Control:
    """Puts a driver on record, as the command line does; ``linger_seconds`` is how long answers wait."""

    def __init__(self, storage, linger_seconds=10.0):
        self.storage = storage
        self.linger_seconds = linger_seconds
        self.driver = self.endpoint = self.server = None
        self.closed = threading.Event()

    def on_driver(self, driver):
        self.driver = driver
        commands = Commands(driver)
        self.server = ControlPort(driver.job, commands)
        publisher = EndpointPublisher(driver, commands, port=self.server.start(), token=self.server.token)
        publisher.begin()
        (self.endpoint,) = (each for each in endpoints(self.storage) if each.run == driver.run_id)

        def ended(outcome):
            publisher.end()
            self.server.close(self.linger_seconds)
            self.closed.set()

        return ended


@pytest.fixture
def storage(tmp_path):
    return open_storage(tmp_path / "root")


@pytest.fixture
def start(storage, tmp_path):
    clients = []

    def begin(linger_seconds=10.0, count=lambda number, state: (number, (state or 0) + 1)):
        control = Control(storage, linger_seconds)
        env = fp.StreamExecutionEnvironment.get_execution_environment()
        env.enable_checkpointing(10)
        numbers = env.from_source(fp.CounterSource(per_epoch=50), fp.WatermarkStrategy.no_watermarks(), "n").uid("numbers")
        numbers.key_by(lambda n: n % 5, int).map_with_state(count, int).uid("counts").sink_to(fp.DiscardSink()).uid("out")
        env.launch = Launch({"state_root": storage.url, "engine": "local"}, on_driver=control.on_driver)
        job = env.execute_async(JOB)
        clients.append((job, control))
        while control.driver.status().state == "starting":  # until its first epoch, a job does not say "running"
            time.sleep(0.005)
        return control, job

    yield begin
    for job, control in clients:
        control.linger_seconds = 0
        if not job.get_job_execution_result().done():
            job.cancel().result(PATIENCE_S)
