"""Operators over whole columns. What they keep is the same as what the element-wise operators keep, entry by entry."""
