"""What people and monitors see of a run."""
