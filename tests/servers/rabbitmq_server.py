"""A real RabbitMQ broker."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
from pika.exceptions import AMQPError

from servers.debian import debian
from servers.process import Server, free_port

_PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_SETTINGS = """
listeners.tcp.default = {port}
loopback_users = none
vm_memory_high_watermark.relative = 0.9
disk_free_limit.absolute = 10MB
log.console = true
log.console.level = warning
log.file = false
"""


class RabbitMQ(Server):
    """A broker, and user guest with password guest. Its data are in a directory of its own: it does not run as root, and only
    root has access to pytest's."""

    def __init__(self) -> None:
        self._server = debian("rabbitmq-server", _PROGRAM)
        self.directory = directory = Path(tempfile.mkdtemp(prefix="forkpoint-rabbitmq-"))
        self.port, self._epmd, self._distribution = free_port(), free_port(), free_port()
        self._node = f"forkpoint{uuid.uuid4().hex[:8]}@localhost"
        self._queues: set[str] = set()
        (directory / "rabbitmq.conf").write_text(_SETTINGS.format(port=self.port))
        (directory / "enabled_plugins").write_text("[].")
        if os.getuid() == 0:
            self.user = "rabbitmq"
            shutil.chown(directory, "rabbitmq", "rabbitmq")
        try:
            super().__init__(directory)
        except BaseException:
            self.stop()
            raise

    def command(self) -> list[str]:
        return [self._server]

    def environment(self) -> Mapping[str, str]:
        d = self.directory
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(d),
            "LANG": "C.UTF-8",
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_MNESIA_BASE": str(d / "mnesia"),
            "RABBITMQ_LOG_BASE": str(d),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(d / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(d / "enabled_plugins"),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",  # else it is not to be stopped right after its node was killed
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none +S 2 "
            "-mnesia dump_log_write_threshold 1",
            "RABBITMQ_CONF_ENV_FILE": str(d / "none"),
            "RABBITMQ_PID_FILE": str(d / "pid"),
        }

    def serves(self) -> bool:
        with suppress(AMQPError, OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            self.connect().close()
            return True
        return False

    def kill(self) -> None:
        """Kill it once its queues are in their table: a killed broker can lose those that are only in Mnesia's log."""
        while not all(map(self._is_stored, self._queues)):
            time.sleep(0.02)
        super().kill()

    def _is_stored(self, queue: str) -> bool:
        for table in (self.directory / "mnesia" / self._node).glob("rabbit_durable_queue.DC?"):
            with suppress(FileNotFoundError):  # it is being replaced
                if queue.encode() in table.read_bytes():
                    return True
        return False

    def stop(self) -> None:
        self._queues.clear()
        super().stop()
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["epmd", "-kill"], env=self.environment(), capture_output=True, timeout=10)
        shutil.rmtree(self.directory, ignore_errors=True)

    def connect(self, user: str = "guest", password: str = "guest") -> pika.BlockingConnection:
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.port, credentials=pika.PlainCredentials(user, password), socket_timeout=5)
        )

    def on_channel(self, work: Callable[[Any], Any]) -> Any:
        connection = self.connect()
        try:
            return work(connection.channel())
        finally:
            connection.close()

    # -- queues

    def create_queue(self, name: str | None = None, **arguments: Any) -> str:
        queue = name or f"queue-{uuid.uuid4().hex[:12]}"
        self.on_channel(lambda channel: channel.queue_declare(queue, durable=True, arguments=arguments))
        self._queues.add(queue)
        return queue

    def delete_queue(self, queue: str) -> None:
        self.on_channel(lambda channel: channel.queue_delete(queue))
        self._queues.discard(queue)

    def depth(self, queue: str) -> int:
        """How many messages are ready: not delivered to anyone."""
        return int(self.on_channel(lambda channel: channel.queue_declare(queue, passive=True).method.message_count))

    def publish(self, queue: str, messages: Iterable[str | bytes], *, ids: bool = True) -> None:
        """Publish persistent messages. Each has its text as its correlation and message id, with ``ids``."""

        def work(channel: Any) -> None:
            channel.tx_select()
            for message in messages:
                body = message.encode() if isinstance(message, str) else message
                id = body.decode(errors="replace")[:200] if ids else None
                channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, correlation_id=id, message_id=id))
            channel.tx_commit()

        self.on_channel(work)

    def read(self, queue: str) -> list[tuple[str, pika.BasicProperties]]:
        """All messages, which stay where they are."""

        def work(channel: Any) -> list[tuple[str, pika.BasicProperties]]:
            found = []
            while (got := channel.basic_get(queue))[0] is not None:
                found.append((got[2].decode(), got[1]))
            return found

        result: list[tuple[str, pika.BasicProperties]] = self.on_channel(work)
        return result

    def values(self, queue: str) -> list[str]:
        return [body for body, _ in self.read(queue)]
