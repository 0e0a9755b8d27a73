"""Sources that read systems without positions: what a broker delivers is stored, and acknowledged after the commit."""
