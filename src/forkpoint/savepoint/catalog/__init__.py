"""A job's savepoints: names, labels, summaries, disposal."""
