"""Column-wise kernels and operators. Their state is the same, entry by entry, as that of the element-wise ones."""
