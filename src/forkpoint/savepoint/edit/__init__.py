"""Writing savepoints: from existing ones with changes, or from nothing."""
