"""Column-wise kernels and operators. Their state equals the state of the element-wise operators, entry by entry."""
