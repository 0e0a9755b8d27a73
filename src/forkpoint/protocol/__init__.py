"""The protocol of a running job: requests to its driver, answers, and their transport.

messages      a struct for each request and each answer
client        `RunClient`, which sends requests through a carrier
http, port    the carrier over HTTP: the client's side, and the driver's side, within the limits of `listener`
mailbox       the carrier through files below the state root, both sides
endpoint      endpoint.json: the address of a run's driver
registry      the runs below a state root, their states, and clients of their drivers
exposition    a run's metrics in Prometheus' text format

A client imports nothing of the driver; `driver.serve` executes requests. The server's REST API shows the same messages in Flink's
shapes.

A new request is a struct in `messages`, a route in `http`, a case in `driver.serve.commands`, and a method of `RunClient`. The
mailbox needs no change.
"""
