"""forkpoint's sources and sinks, one module or package per system, and their shared code.

The interfaces are in ``forkpoint.contract``. Only the API and programs import this package."""
