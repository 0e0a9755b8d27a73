"""A real Cassandra node, from Maven's jars."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servers.jars import QUICK_JVM, jars, java
from servers.process import Server, accepts, free_port

POM = Path(__file__).parent / "poms" / "cassandra.xml"
USER, PASSWORD = "cassandra", "cassandra"  # the server's own first user
_SETTINGS = """
cluster_name: tests
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
start_native_transport: true
commitlog_sync: batch
disk_failure_policy: stop
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
role_manager: CassandraRoleManager
concurrent_writes: 8
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
key_cache_size: 0MiB
file_cache_size: 32MiB
networking_cache_size: 16MiB
"""
_PACKAGES = {  # as the server's own jvm17-server.options
    "exports": (
        "java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch java.base/java.lang.ref "
        "java.base/java.lang.reflect java.base/jdk.internal.math java.base/jdk.internal.module "
        "java.base/jdk.internal.util.jar java.base/jdk.internal.perf java.management.rmi/com.sun.jmx.remote.internal.rmi "
        "java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql jdk.unsupported/sun.misc "
        "jdk.attach/sun.tools.attach jdk.compiler/com.sun.tools.javac.file"
    ),
    "opens": (
        "java.base/java.lang.module java.base/jdk.internal.loader java.base/jdk.internal.ref "
        "java.base/jdk.internal.reflect java.base/jdk.internal.math java.base/jdk.internal.module "
        "java.base/jdk.internal.util.jar java.base/sun.nio.ch java.base/java.io java.base/java.lang "
        "java.base/java.lang.reflect java.base/java.util java.base/java.util.concurrent "
        "java.base/java.util.concurrent.atomic java.base/java.nio java.base/java.net java.base/sun.nio.fs "
        "java.base/jdk.internal.misc java.rmi/sun.rmi.transport.tcp jdk.management/com.sun.management.internal "
        "jdk.compiler/com.sun.tools.javac"
    ),
}
_JVM = [
    "-Xms512m",
    "-Xmx512m",
    *QUICK_JVM,
    "-XX:MaxDirectMemorySize=256m",
    "-Xss512k",
]
_PROPERTIES = {
    "java.security.manager": "allow",
    "jdk.attach.allowAttachSelf": "true",
    "cassandra-foreground": "yes",
    "cassandra.ring_delay_ms": "0",
    "cassandra.skip_wait_for_gossip_to_settle": "0",
    "cassandra.superuser_setup_delay_ms": "0",
    "cassandra.load_ring_state": "false",
    "io.netty.tryReflectionSetAccessible": "true",
}
_LOGGING = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%msg%n%ex{3}</pattern>
</encoder></appender><root level="WARN"><appender-ref ref="out"/></root></configuration>"""


class Cassandra(Server):
    """A node with its data in ``directory``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.port, storage = free_port(), free_port()
        self._cluster: Any = None
        places = {"commitlog_directory": "commitlog", "saved_caches_directory": "caches", "hints_directory": "hints"}
        settings = [
            _SETTINGS,
            f"native_transport_port: {self.port}",
            f"storage_port: {storage}",
            f"data_file_directories: ['{directory / 'data'}']",
            *(f"{name}: '{directory / place}'" for name, place in places.items()),
            "seed_provider:",
            "  - class_name: org.apache.cassandra.locator.SimpleSeedProvider",
            f"    parameters: [{{seeds: '127.0.0.1:{storage}'}}]",
        ]
        (directory / "cassandra.yaml").write_text("\n".join(settings) + "\n")
        (directory / "logback.xml").write_text(_LOGGING)
        properties = {
            **_PROPERTIES,
            "cassandra.config": f"file://{directory}/cassandra.yaml",
            "cassandra.storagedir": str(directory),
            "logback.configurationFile": f"{directory}/logback.xml",
        }
        packages = [f"--add-{kind}={name}=ALL-UNNAMED" for kind, names in _PACKAGES.items() for name in names.split()]
        self._command = [
            java(),
            *_JVM,
            *packages,
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp",
            f"{jars('cassandra', POM)}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]
        super().__init__(directory)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        return self._command

    def serves(self) -> bool:
        if not accepts(self.port):
            return False
        try:
            self._connect()
        except Exception:  # the driver has many
            self.disconnect()
            return False
        return True

    def kill(self) -> None:
        self.disconnect()
        super().kill()

    # -- a client

    def execute(self, statement: str) -> list[Any]:
        """The rows that a statement returns."""
        return list(self._connect().execute(statement, timeout=60))

    def _connect(self) -> Any:
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import Cluster

        if self._cluster is None:
            logging.getLogger("cassandra").setLevel(logging.CRITICAL)
            provider = PlainTextAuthProvider(USER, PASSWORD)
            cluster = Cluster(["127.0.0.1"], self.port, auth_provider=provider, connect_timeout=30, protocol_version=5)
            self._cluster = cluster, cluster.connect()
        return self._cluster[1]

    def disconnect(self) -> None:
        held, self._cluster = self._cluster, None
        if held is not None:
            held[0].shutdown()
