"""Connectors by the names of ``WITH ('connector' = …)``: their options, sources and sinks."""
