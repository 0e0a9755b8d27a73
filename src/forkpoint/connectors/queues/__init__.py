"""Sources for systems without positions: they store the broker's messages, and acknowledge them after the commit."""
