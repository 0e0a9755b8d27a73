"""The operators, which process an epoch's elements."""
