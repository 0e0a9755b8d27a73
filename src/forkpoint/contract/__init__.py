"""The interfaces that a connector implements: source, sink, format. The runtime and the driver know only these, no connector."""
