"""Asking a running job from another process.

``endpoint``: the record of a running driver under the state root. ``server``: its loopback port. ``client``: talking to
it. ``registry``: what runs there are, and which of them live. Only ``server`` loads the web server.
"""
