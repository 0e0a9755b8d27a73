"""Converts Kafka's errors to forkpoint's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, OutputRefused, SystemUnavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

_REMEDIES = {
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or correct its name",
    "_UNKNOWN_TOPIC": "create the topic, or correct its name",
    "INVALID_TRANSACTION_TIMEOUT": "set transaction.timeout.ms to at most the brokers' transaction.max.timeout.ms",
}
# For records that a topic refuses in its current configuration.
_REFUSED = {
    "_UNKNOWN_PARTITION": "add partitions to the topic, or correct the partitioner",
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic and message.max.bytes of the sink, or send smaller records",
    "INVALID_TIMESTAMP": "raise message.timestamp.after.max.ms or .before.max.ms of the topic, or correct the timestamps",
    "INVALID_RECORD": "see the broker's log; a compacted topic takes no records without a key",
    "POLICY_VIOLATION": "see the broker's policies",
    "INVALID_MSG": "see the broker's log",
    "INVALID_MSG_SIZE": "raise max.message.bytes of the topic, or send smaller records",
}
_FENCED = (
    "_FENCED",
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "INVALID_PRODUCER_ID_MAPPING",
    "UNKNOWN_PRODUCER_ID",
    "TRANSACTION_COORDINATOR_FENCED",
)


def is_temporary(error: KafkaError) -> bool:
    """Whether a request may succeed later without any change."""
    from confluent_kafka import KafkaError as Codes

    return error.retriable() or error.code() in {
        Codes._TRANSPORT,
        Codes._ALL_BROKERS_DOWN,
        Codes._TIMED_OUT,
        Codes._TIMED_OUT_QUEUE,
        Codes._MSG_TIMED_OUT,
        Codes._RESOLVE,
        Codes._WAIT_COORD,
        Codes._WAIT_CACHE,
        Codes._DESTROY_BROKER,
        Codes._NODE_UPDATE,
        Codes._RETRY,
        Codes._UNKNOWN_BROKER,
        Codes._NOENT,
        Codes.REQUEST_TIMED_OUT,
        Codes.NETWORK_EXCEPTION,
        Codes.LEADER_NOT_AVAILABLE,
        Codes.NOT_LEADER_FOR_PARTITION,
        Codes.BROKER_NOT_AVAILABLE,
        Codes.REPLICA_NOT_AVAILABLE,
        Codes.LISTENER_NOT_FOUND,
        Codes.COORDINATOR_LOAD_IN_PROGRESS,
        Codes.COORDINATOR_NOT_AVAILABLE,
        Codes.NOT_COORDINATOR,
        Codes.OFFSET_NOT_AVAILABLE,
        Codes.FENCED_LEADER_EPOCH,
        Codes.UNKNOWN_LEADER_EPOCH,
        Codes.KAFKA_STORAGE_ERROR,
        Codes.UNSTABLE_OFFSET_COMMIT,
        Codes.REBALANCE_IN_PROGRESS,
        Codes.STALE_BROKER_EPOCH,
        Codes.NOT_CONTROLLER,
    }


def is_missing(error: KafkaError) -> bool:
    """Whether the broker does not know the topic or partition."""
    from confluent_kafka import KafkaError as Codes

    return error.code() in {Codes.UNKNOWN_TOPIC_OR_PART, Codes.UNKNOWN_TOPIC_ID, Codes._UNKNOWN_TOPIC, Codes._UNKNOWN_PARTITION}


def is_refused(error: KafkaError) -> bool:
    """Whether the cluster refuses this client."""
    from confluent_kafka import KafkaError as Codes

    return error.code() in {
        Codes._AUTHENTICATION,
        Codes._SSL,
        Codes.SASL_AUTHENTICATION_FAILED,
        Codes.UNSUPPORTED_SASL_MECHANISM,
        Codes.ILLEGAL_SASL_STATE,
    }


def is_fenced(error: KafkaError) -> bool:
    """Whether another producer has taken over the transactional id, or the brokers have forgotten it."""
    return error.name() in _FENCED


def is_refusal(error: KafkaError) -> bool:
    """Whether the broker refuses the record itself."""
    return error.name() in _REFUSED


def forkpoint_error(error: KafkaError | KafkaException, what: str, problems: Sequence[KafkaError] = ()) -> ForkpointError:
    """The error to raise when ``what`` failed: SystemUnavailable if a later attempt may succeed, otherwise an error with a
    remedy. ``problems``: the errors that the client's ``error_cb`` received, which often say more."""
    from confluent_kafka import KafkaException as Raised

    cause: KafkaError = error.args[0] if isinstance(error, Raised) else error
    for each in (cause, *problems):
        if is_refused(each):
            return ConfigError(
                f"{what}: {each.str()}. Correct security.protocol and the properties sasl.* and ssl.*, or the broker's"
            )
        if each.name().endswith("AUTHORIZATION_FAILED"):
            return ConfigError(f"{what}: {each.str()}. Grant this user the right on the broker (kafka-acls)")
        if (remedy := _REFUSED.get(each.name())) is not None:
            return OutputRefused(f"{what}: {each.str()}; {remedy}")
        if (remedy := _REMEDIES.get(each.name())) is not None:
            return JobFailed(f"{what}: {each.str()}; {remedy}")
    if cause.name() == "_INVALID_ARG":
        return ConfigError(f"{what}: {cause.str()}. Correct the property, or leave it out")
    reasons = "; ".join(dict.fromkeys(each.str() for each in (cause, *problems)))
    if is_temporary(cause) or is_fenced(cause) or cause.txn_requires_abort():
        return SystemUnavailable(f"{what} does not work: {reasons}")
    return JobFailed(f"{what}: {reasons} ({cause.name()})")


@contextmanager
def raising_errors(servers: str, problems: list[KafkaError] | None = None) -> Iterator[list[KafkaError]]:
    """Convert the client's errors. Yields ``problems``, to which the client's ``error_cb`` appends."""
    from confluent_kafka import KafkaException

    problems = [] if problems is None else problems
    try:
        yield problems
    except KafkaException as exception:
        raise forkpoint_error(exception, f"Kafka at {servers}", problems) from exception
