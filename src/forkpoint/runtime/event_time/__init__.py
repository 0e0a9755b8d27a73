"""Event time: timestamps, watermarks, timers."""
