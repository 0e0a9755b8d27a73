"""Windows: values, assigners, triggers, and functions of their contents."""
