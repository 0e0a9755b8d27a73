"""Asking a running job from another process: its record under the state root, its loopback port, and the client."""

from forkpoint.control.client import ControlClient, Unreachable
from forkpoint.control.endpoint import Endpoint, endpoints, register, withdraw
from forkpoint.control.registry import RunView, find_live, list_runs
from forkpoint.control.server import ControlServer

__all__ = [
    "ControlClient",
    "ControlServer",
    "Endpoint",
    "RunView",
    "Unreachable",
    "endpoints",
    "find_live",
    "list_runs",
    "register",
    "withdraw",
]
