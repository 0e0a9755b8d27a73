"""Python functions that are expressions over an element's fields, computed over columns."""
