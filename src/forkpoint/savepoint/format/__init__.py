"""A savepoint's files: layout, writing, opening, verification."""
