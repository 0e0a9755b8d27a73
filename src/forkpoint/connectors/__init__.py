"""Sources and sinks of forkpoint's own, one module or room for each system, and what connectors share.

The interfaces are in ``forkpoint.contract``. Nothing imports this package but the API, and programs."""
