"""The operators: how each kind processes an epoch's elements."""
