"""Creates AWS clients from Flink's properties.

``boto3`` and ``botocore`` are optional, so modules import them inside functions.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from forkpoint.errors import ConfigError
from forkpoint_kinesis.errors import raising_errors

REGION = "aws.region"
ENDPOINT = "aws.endpoint"
PROVIDER = "aws.credentials.provider"
_BASIC = f"{PROVIDER}.basic"
KEY_ID, SECRET, TOKEN = f"{_BASIC}.accesskeyid", f"{_BASIC}.secretkey", f"{_BASIC}.sessiontoken"
PROFILE = f"{PROVIDER}.profile.name"
_TRUST_ALL = "aws.trust.all.certificates"
KNOWN = frozenset({REGION, ENDPOINT, PROVIDER, KEY_ID, SECRET, TOKEN, PROFILE, _TRUST_ALL})
_IGNORED = ("aws.http", "aws.http-client.", "aws.kinesis.", "aws.firehose.")  # of Java's HTTP client
_PROVIDERS = ("AUTO", "ENV_VAR", "BASIC", "PROFILE")

CONNECT_S = 5.0
ANSWER_S = 20.0

Service = Literal["kinesis", "firehose"]


@dataclass(frozen=True, repr=False)
class AwsClient:
    """The connection to AWS: the user's properties, under Flink's names. The environment supplies the rest, as for all AWS
    tools."""

    properties: Mapping[str, str]

    def __post_init__(self) -> None:
        unknown = sorted(n for n in self.properties if n not in KNOWN and not n.startswith(_IGNORED))
        if unknown:
            raise ConfigError(
                f"Kinesis: unknown properties {', '.join(unknown)}; known are {', '.join(sorted(KNOWN))} and the source's"
            )
        provider = self.properties.get(PROVIDER, "AUTO").upper()
        if provider not in _PROVIDERS:
            raise ConfigError(
                f"Kinesis: {PROVIDER} is {provider!r}; give one of {', '.join(_PROVIDERS)}. For a role, name it in a profile "
                "(role_arn) or in AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN_FILE"
            )
        if (KEY_ID in self.properties) != (SECRET in self.properties):
            raise ConfigError(f"Kinesis: set both {KEY_ID} and {SECRET}, or neither")

    def __hash__(self) -> int:
        return hash(frozenset(self.properties.items()))

    def __repr__(self) -> str:
        return f"AwsClient({self.place})"

    @property
    def place(self) -> str:
        """The region and endpoint, for messages."""
        region, endpoint = self.properties.get(REGION), self.properties.get(ENDPOINT)
        named = f"region {region!r}" if region else "the default region"
        return f"{named} at {endpoint}" if endpoint else named

    def connect(self, service: Service, what: str) -> Any:
        """Create a boto3 client, which threads may share. Raises ConfigError if the properties or the environment are wrong."""
        import boto3
        from botocore.config import Config

        given = self.properties
        with _connect_lock, raising_errors(what, self.place, "create it"):
            session = boto3.session.Session(
                aws_access_key_id=given.get(KEY_ID),
                aws_secret_access_key=given.get(SECRET),
                aws_session_token=given.get(TOKEN),
                region_name=given.get(REGION),
                profile_name=given.get(PROFILE),
            )
            # No retries in the client: callers retry, limit the attempts, and can be stopped in between.
            config = Config(
                connect_timeout=CONNECT_S,
                read_timeout=ANSWER_S,
                retries={"total_max_attempts": 1},
                max_pool_connections=32,
                user_agent_extra="forkpoint",
            )
            verify = False if given.get(_TRUST_ALL, "").lower() == "true" else None
            return session.client(service, endpoint_url=given.get(ENDPOINT), config=config, verify=verify)


@dataclass(frozen=True)
class Stream:
    """A stream's name and, if given, its ARN."""

    name: str
    arn: str | None = None

    @classmethod
    def of_arn(cls, arn: str) -> Stream:
        parts = arn.split(":", 5)
        if len(parts) != 6 or parts[2] not in ("kinesis", "firehose") or "/" not in parts[5]:
            raise ConfigError(
                f"Kinesis: {arn!r} is not a stream's ARN, such as arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
            )
        return cls(parts[5].partition("/")[2], arn)

    @property
    def region(self) -> str | None:
        return None if self.arn is None else self.arn.split(":")[3]

    @property
    def named(self) -> dict[str, str]:
        """The request parameters that name the stream."""
        return {"StreamName": self.name} if self.arn is None else {"StreamARN": self.arn}


_connect_lock = threading.Lock()  # creating a client is not thread-safe


def _after_fork() -> None:
    global _connect_lock
    _connect_lock = threading.Lock()  # another thread may have held the parent's lock


os.register_at_fork(after_in_child=_after_fork)


# Clients of this process. Creating a client takes a tenth of a second.
_clients: dict[tuple[int, Service, AwsClient], Any] = {}


def connected(client: AwsClient, service: Service, what: str) -> Any:
    """A client cached by this process. A forked process creates its own, because connections cannot be shared."""
    key = (os.getpid(), service, client)
    if key not in _clients:
        _clients[key] = client.connect(service, what)
    return _clients[key]
