"""State on a subtask: handles over the local store, with a guard that checks each value before it is encoded."""
