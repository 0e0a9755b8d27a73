"""What travels between tasks, and between driver and tasks: elements in batches, and control data."""
