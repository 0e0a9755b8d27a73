"""Event time on a subtask: timestamps, watermarks, timers."""
