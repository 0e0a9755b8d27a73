"""The kinds of types: how the values of each become bytes and columns."""
