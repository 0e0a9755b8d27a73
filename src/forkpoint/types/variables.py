"""The type variables of the public API, with defaults for unparametrised classes."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar

T = TypeVar("T", default=Any)
T_co = TypeVar("T_co", covariant=True, default=Any)
T_contra = TypeVar("T_contra", contravariant=True, default=Any)

K = TypeVar("K", default=Any)
K_co = TypeVar("K_co", covariant=True, default=Any)
K_contra = TypeVar("K_contra", contravariant=True, default=Any)
V = TypeVar("V", default=Any)

W = TypeVar("W", default=Any)
W_co = TypeVar("W_co", covariant=True, default=Any)
W_contra = TypeVar("W_contra", contravariant=True, default=Any)

# Inputs, accumulators and outputs of functions.
IN = TypeVar("IN", contravariant=True, default=Any)
IN1 = TypeVar("IN1", contravariant=True, default=Any)
IN2 = TypeVar("IN2", contravariant=True, default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", covariant=True, default=Any)

# The value of an empty state: None, unless its descriptor has a default.
NOTHING = TypeVar("NOTHING", covariant=True, default=None)

# For single methods.
A = TypeVar("A", default=Any)
B = TypeVar("B", default=Any)
R = TypeVar("R", default=Any)
S = TypeVar("S", default=Any)
S_co = TypeVar("S_co", covariant=True, default=Any)
