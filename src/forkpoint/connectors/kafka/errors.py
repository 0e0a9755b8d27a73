"""Kafka's errors as forkpoint's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forkpoint.errors import ConfigError, JobFailed, SystemUnavailable

_DENIED = ("AUTHENTICATION", "AUTHORIZATION", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE")
_WRONG = {
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or correct its name",
    "_UNKNOWN_TOPIC": "create the topic, or correct its name",
    "_UNKNOWN_PARTITION": "add partitions to the topic, or correct the partitioner",
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic, or send smaller records",
    "INVALID_TRANSACTION_TIMEOUT": "set transaction.timeout.ms to at most the brokers' transaction.max.timeout.ms",
}


@contextmanager
def raising_errors(what: str) -> Iterator[list[Any]]:
    """Raise the client's errors as SystemUnavailable if they may pass, else with the remedy. ``what``: the source or sink, for
    messages. Yields the list that the client's ``error_cb`` adds to: it often knows more than the error itself."""
    from confluent_kafka import KafkaException

    problems: list[Any] = []
    try:
        yield problems
    except KafkaException as exception:
        raise _translated(what, exception.args[0], problems) from exception


def _translated(what: str, error: Any, problems: list[Any]) -> Exception:
    for each in (error, *problems):
        name = each.name()
        if any(part in name for part in _DENIED):
            return ConfigError(f"{what}: Kafka denies access: {each.str()}; correct the credentials or permissions")
        if name in _WRONG:
            return JobFailed(f"{what}: Kafka refuses: {each.str()}; {_WRONG[name]}")
    said = "; ".join(dict.fromkeys(each.str() for each in (error, *problems)))
    return SystemUnavailable(f"{what}: Kafka does not work: {said}")
