"""Checkpoints and savepoints on storage: paths, manifests, history and garbage collection. Pure."""
