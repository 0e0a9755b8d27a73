"""Kafka's errors as forkpoint's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forkpoint.errors import ConfigError, JobFailed, SystemUnavailable

_DENIED = ("AUTHENTICATION", "AUTHORIZATION", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE")
_FENCED = (
    "_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID",
    "TRANSACTION_COORDINATOR_FENCED",
)  # fmt: skip
_WRONG = {
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or correct its name",
    "_UNKNOWN_TOPIC": "create the topic, or correct its name",
    "_UNKNOWN_PARTITION": "add partitions to the topic, or correct the partitioner",
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic, or send smaller records",
    "INVALID_TRANSACTION_TIMEOUT": "set transaction.timeout.ms to at most the brokers' transaction.max.timeout.ms",
}


def is_fenced(exception: Any) -> bool:
    """Whether another producer has taken over the transactional id, or the brokers have forgotten it."""
    return exception.args[0].name() in _FENCED


@contextmanager
def raising_errors(servers: str, problems: list[Any] | None = None) -> Iterator[list[Any]]:
    """Raise the client's errors as SystemUnavailable if they may pass, else with the remedy. ``problems``, which it yields: what
    the client's ``error_cb`` adds to, as that often knows more than the error."""
    from confluent_kafka import KafkaException

    problems = [] if problems is None else problems
    try:
        yield problems
    except KafkaException as exception:
        raise _translated(servers, exception.args[0], problems) from exception


def _translated(servers: str, error: Any, problems: list[Any]) -> Exception:
    for each in (error, *problems):
        name = each.name()
        if any(part in name for part in _DENIED):
            return ConfigError(f"Kafka ({servers}) denies access: {each.str()}; correct the credentials or permissions")
        if name in _WRONG:
            return JobFailed(f"Kafka ({servers}) refuses: {each.str()}; {_WRONG[name]}")
    said = "; ".join(dict.fromkeys(each.str() for each in (error, *problems)))
    return SystemUnavailable(f"Kafka ({servers}) does not work: {said}")
