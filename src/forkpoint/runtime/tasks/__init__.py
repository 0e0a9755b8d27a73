"""Tasks: reading a source, a stage over an epoch, and what a worker process keeps between them."""
