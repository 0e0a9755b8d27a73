"""Control of a running job from another process.

``commands``: what can be asked of a driver. It takes requests at its loopback port (``server``, ``client``) and as files below
the state root (``mailbox``, ``mailbox_client``). ``endpoint``: its record there; ``presence``: a run with record and mailbox.
``registry``: the runs under a state root, and which of them are alive. Only ``server`` loads the web server.
"""
