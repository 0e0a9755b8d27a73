"""Control of a running job from another process.

``endpoint``: a running driver's record under the state root. ``server``: its loopback port. ``client``: calls it.
``registry``: the runs under a state root, and which of them are alive. Only ``server`` loads the web server.
"""
