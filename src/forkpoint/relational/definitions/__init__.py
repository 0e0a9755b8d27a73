"""What the state of a query means: stored with the state, and compared with what a changed query needs."""
