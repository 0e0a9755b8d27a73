"""The driver's side of the protocol: answers requests and reports the run's state.

commands            executes requests, independent of the transport
reports             the metrics message and the run's situation
endpoint_publisher  keeps a run's endpoint.json and mailbox while it runs
telemetry           sends metrics and traces to OpenTelemetry
"""
