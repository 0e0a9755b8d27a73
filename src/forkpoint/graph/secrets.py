"""Recognises settings with credentials by name; they are not recorded with a run."""

from __future__ import annotations

import re

_SECRET = re.compile(  # Spark's own redaction pattern, and environment variables for cloud credentials
    r"secret|passw|passphrase|token|credential|(access|account|private|storage|signing|api|sas|shared)[._-]?key|connection[._-]?string"
    r"|jaas|oauthbearer[._-]config|key[._-]pem|keystore[._-]key",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a setting or environment variable with this name holds a credential."""
    return _SECRET.search(name) is not None
