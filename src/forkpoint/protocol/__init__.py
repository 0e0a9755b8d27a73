"""The protocol of a running job."""
