"""State as user code sees it: descriptors, handles, time to live, operator state and broadcast state."""
