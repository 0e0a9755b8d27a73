"""What a run starts from, and whether it may."""
