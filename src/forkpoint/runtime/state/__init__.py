"""State on a subtask: handles over the local store, and guards that check each value before encoding it."""
