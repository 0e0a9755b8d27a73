"""The files of a savepoint: their layout, how they are written, opened and verified."""
