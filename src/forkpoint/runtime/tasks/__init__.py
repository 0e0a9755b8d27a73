"""Tasks: reading sources, running a stage over an epoch, and what a worker process keeps between them."""
