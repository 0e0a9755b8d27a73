"""Restores a job's state from a savepoint: compatibility, evolution, import."""
