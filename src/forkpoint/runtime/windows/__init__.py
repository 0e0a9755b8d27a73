"""Windows of keyed streams, element by element and over columns."""
