"""Hosts with addresses, cables and disks of their own, on this machine: network namespaces on a bridge, which only root can
make."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DISK_MIB = 320


@dataclass(frozen=True)
class Host:
    """``within``: the command that runs another one there. ``disk``: a small file system for its local files."""

    name: str
    address: str
    cable: str
    disk: Path

    @property
    def within(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def unplug(self) -> None:
        _run("ip", "link", "set", self.cable, "down")

    def plug_in(self) -> None:
        _run("ip", "link", "set", self.cable, "up")

    def fill_disk(self) -> None:
        with (self.disk / "ballast").open("ab", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    pass

    def free_disk(self) -> None:
        (self.disk / "ballast").unlink(missing_ok=True)


def unavailable() -> str | None:
    """Why there can be no such hosts here; None if there can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    probe = f"fpc{os.getpid()}p"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    _run("ip", "netns", "del", probe)
    return None


@contextmanager
def hosts(directory: Path, number: int) -> Iterator[tuple[str, list[Host]]]:
    """The address of this machine on their network, and the hosts."""
    label, net = f"fpc{os.getpid()}", f"10.{os.getpid() // 256 % 200 + 20}.{os.getpid() % 256}"
    made: list[Host] = []
    try:
        _run("ip", "link", "add", label, "type", "bridge")
        _run("ip", "address", "add", f"{net}.1/24", "dev", label)
        _run("ip", "link", "set", label, "up")
        for n in range(number):
            host = Host(f"{label}n{n}", f"{net}.{n + 11}", f"{label}v{n}", directory / f"disk{n}")
            made.append(host)
            _make(host, label, net)
        yield f"{net}.1", made
    finally:
        for host in made:
            subprocess.run(["umount", "--lazy", host.disk], capture_output=True)
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True)
            subprocess.run(["ip", "link", "del", host.cable], capture_output=True)
        subprocess.run(["ip", "link", "del", label], capture_output=True)


def _make(host: Host, bridge: str, net: str) -> None:
    inner = f"{host.cable}i"
    _run("ip", "netns", "add", host.name)
    _run("ip", "link", "add", host.cable, "type", "veth", "peer", "name", inner)
    _run("ip", "link", "set", inner, "netns", host.name)
    _run("ip", "link", "set", host.cable, "master", bridge, "up")
    for command in (
        ("address", "add", f"{host.address}/24", "dev", inner),
        ("link", "set", inner, "up"),
        ("link", "set", "lo", "up"),
    ):
        _run("ip", "-n", host.name, *command)
    host.disk.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(host.disk))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
