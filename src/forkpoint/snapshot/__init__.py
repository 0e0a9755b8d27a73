"""Checkpoints and savepoints on storage: the storage protocol, paths, manifests, history and garbage collection.

`storage` and `object_storage` do the input and output; everything else here is pure.
"""
