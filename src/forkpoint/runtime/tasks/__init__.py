"""Tasks, which read sources or run a stage over an epoch, and the state of worker processes between tasks."""
