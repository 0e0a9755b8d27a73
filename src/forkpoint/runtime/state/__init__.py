"""State on a subtask: handles over the local store, with one guard in front of every encode."""
