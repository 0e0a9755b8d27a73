"""When an epoch is decided, and how its output becomes visible."""
