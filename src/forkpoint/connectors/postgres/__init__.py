"""PostgreSQL change data capture."""
