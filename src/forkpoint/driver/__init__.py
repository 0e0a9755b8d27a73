"""The epoch protocol: plan, run, commit. Knows no engine; an executor runs the tasks."""
