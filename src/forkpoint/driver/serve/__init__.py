"""A driver as others see it: it answers requests, and says what it does.

commands            does what requests ask for, whatever carries them
reports             metrics and situation of the run, as messages have them
endpoint_publisher  keeps a run's endpoint.json and mailbox while it runs
telemetry           sends metrics and traces to OpenTelemetry
"""
