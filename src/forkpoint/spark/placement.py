"""Assigns subtasks to hosts. Local stores cache state: without fixed hosts, every host would eventually store all state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


def place(subtasks: int, cores: Mapping[str, int], before: Sequence[str] = ()) -> tuple[str, ...]:
    """A host for each subtask, in proportion to the hosts' cores; empty without hosts.

    ``before``: the hosts of the last placement. As few subtasks as possible move: those of lost hosts, and those that exceed
    a host's share.
    """
    hosts = sorted(host for host, number in cores.items() if number > 0)
    if not hosts:
        return ()
    share = _shares(subtasks, {host: cores[host] for host in hosts}, Counter(before))
    placed: list[str | None] = [None] * subtasks
    for subtask, host in enumerate(before[:subtasks]):
        if share.get(host, 0) > 0:
            share[host] -= 1
            placed[subtask] = host
    free = iter([host for host in hosts for _ in range(share[host])])
    return tuple(next(free) if host is None else host for host in placed)


def _shares(subtasks: int, cores: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """The number of subtasks for each host. The largest remainders get one more; ties go to hosts that have one more already."""
    total = sum(cores.values())
    share = {host: subtasks * number // total for host, number in cores.items()}
    order = sorted(cores, key=lambda host: (-(subtasks * cores[host] % total), share[host] - before.get(host, 0), host))
    for host in order[: subtasks - sum(share.values())]:
        share[host] += 1
    return share
