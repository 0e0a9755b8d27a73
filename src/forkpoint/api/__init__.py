"""The DataStream API: environment and streams."""
