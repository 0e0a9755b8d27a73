"""The protocol of a running job: what its driver can be asked, what it answers, and the ways there and back.

messages      a struct for each request and each answer
client        `RunClient`, which sends requests by a carrier
http, port    the carrier over HTTP: its paths and the caller's end; the driver's end, within the limits of `listening`
mailbox       the carrier through files below the state root, both ends
endpoint      endpoint.json: where a run's driver is
registry      the runs below a state root: which of them are alive, and a client of a job's driver
exposition    a run's metrics in Prometheus' text format

A client imports nothing of the driver. What the driver does when it is asked is in `driver.serve`. The server's REST shows the
same messages in Flink's shapes.

A new request is a struct in `messages`, a route in `http`, a case in `driver.serve.commands`, and a method of `RunClient`. The
mailbox needs no change.
"""
