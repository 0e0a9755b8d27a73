"""Redis: a sink, over redis-py."""
