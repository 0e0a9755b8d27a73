"""The operators that run plans, over the columns of an epoch."""
