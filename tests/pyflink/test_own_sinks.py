"""PyFlink's sinks that forkpoint has in another form are refused with the name of that form, not with a detour."""

import importlib

import pytest

import forkpoint as fp
from forkpoint.pyflink import install

OURS = {
    "jdbc.JdbcSink": "DatabaseSink",
    "cassandra.CassandraSink": "CassandraSink",
    "elasticsearch.Elasticsearch7SinkBuilder": "OpenSearchSink",
}


@pytest.mark.parametrize(("name", "ours"), OURS.items(), ids=OURS.keys())
def test_a_sink_of_pyflink_names_ours(name, ours):
    install()
    module, attribute = name.split(".")
    theirs = getattr(importlib.import_module(f"pyflink.datastream.connectors.{module}"), attribute)
    with pytest.raises(fp.GraphError, match=rf"{attribute} is not supported: .*write .*{ours}\("):
        theirs()
    assert hasattr(fp, ours)
