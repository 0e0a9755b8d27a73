"""What goes from the driver to the executors: its environment, settings and the program's modules."""
