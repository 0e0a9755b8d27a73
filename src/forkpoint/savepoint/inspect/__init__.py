"""Reading saved state: that of savepoints, and of running jobs at their last committed epoch."""
