"""What a connector implements: sources, sinks, formats. The runtime and the driver know these, and no connector."""
