"""From a committed epoch to a savepoint."""
