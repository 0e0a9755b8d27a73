"""Jobs below a state root: running jobs, their history, and the leftovers of dead runs."""
