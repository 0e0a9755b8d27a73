"""Formats of messages, shared by all systems that carry bytes: the interfaces (``base``), and one module for each format."""
