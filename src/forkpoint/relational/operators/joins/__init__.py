"""Operators that keep the rows of joins by key, and what they compute from them."""
