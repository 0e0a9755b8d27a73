"""OpenSearch as a sink, with its client (``opensearch-py``)."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint_opensearch.sink import OpenSearchSink

__getattr__ = loader(__name__)

__all__ = [
    "OpenSearchSink",
]
