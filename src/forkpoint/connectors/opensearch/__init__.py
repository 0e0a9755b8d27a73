"""OpenSearch: a sink, over its client (``opensearch-py``)."""
