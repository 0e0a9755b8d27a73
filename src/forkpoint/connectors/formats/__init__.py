"""Formats of messages, for all systems that carry bytes: one module for each, and what they share (``batches``, ``records``,
``reading``, ``columns``). The interfaces are in ``contract.format``, the formats of files in ``connectors.files``."""
