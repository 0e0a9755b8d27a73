"""The kinds of types, which convert values to bytes and columns."""
