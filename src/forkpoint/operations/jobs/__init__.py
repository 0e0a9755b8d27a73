"""Jobs below a state root: the running ones, their history, and what dead ones have left."""
