"""From one version of a program to the next: checking, upgrading, comparing, replaying."""
