"""Data exchanged between tasks, and between driver and tasks: batches of elements, and control data."""
