"""Converts RabbitMQ's errors to forkpoint's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable
from forkpoint_rabbitmq.config import RabbitMQConnectionConfig

_NOT_FOUND, _ACCESS_REFUSED, _LOCKED, _PRECONDITION, _NOT_ALLOWED = 404, 403, 405, 406, 530


def forkpoint_error(error: BaseException, config: RabbitMQConnectionConfig, used: str) -> ForkpointError:
    """The error to raise: SystemUnavailable if a retry may succeed, otherwise an error with a remedy. ``used``: the queue or
    exchange in use, for messages."""
    from pika import exceptions
    from pika.adapters.utils.connection_workflow import AMQPConnectorException

    at = f"RabbitMQ at {config.place}"
    text = str(error) or type(error).__name__
    refused = (exceptions.AuthenticationError, exceptions.ProbableAuthenticationError)
    if isinstance(error, refused) or "ACCESS_REFUSED - Login" in text:
        return ConfigError(f"{at}: user {config.user_name!r} is refused; correct set_user_name and set_password")
    code = getattr(error, "reply_code", None)
    if isinstance(error, exceptions.ProbableAccessDeniedError) or code == _NOT_ALLOWED:
        return ConfigError(
            f"{at}: user {config.user_name!r} may not use this virtual host, or it does not exist; correct set_virtual_host, or "
            f"run: rabbitmqctl add_vhost, rabbitmqctl set_permissions"
        )
    if code == _NOT_FOUND:
        return ConfigError(f"{at}: {used} does not exist; create it, or correct its name")
    if code == _ACCESS_REFUSED:
        return ConfigError(
            f"{at}: user {config.user_name!r} has no right to {used}; grant it with: rabbitmqctl set_permissions ({text})"
        )
    if code == _LOCKED:
        return ConfigError(f"{at}: {used} is exclusive to another connection; use another queue")
    if isinstance(error, exceptions.AMQPError | AMQPConnectorException | OSError) or code == _PRECONDITION:
        return SystemUnavailable(f"{at} does not work: {_reason(error)}")
    return JobFailed(f"{at}: {text}")


def _reason(error: BaseException) -> str:
    """The reason of a failure. pika wraps the reason of a failed connection."""
    for inner in (*getattr(error, "exceptions", ()), getattr(error, "exception", None), *error.args):
        if isinstance(inner, BaseException):
            return _reason(inner)
    return str(error) or type(error).__name__


@contextmanager
def raising_errors(config: RabbitMQConnectionConfig, used: str) -> Iterator[None]:
    """Convert pika's errors to forkpoint's."""
    from pika.adapters.utils.connection_workflow import AMQPConnectorException  # not an AMQPError
    from pika.exceptions import AMQPError

    try:
        yield
    except (AMQPError, AMQPConnectorException, OSError) as error:
        raise forkpoint_error(error, config, used) from error
