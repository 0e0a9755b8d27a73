"""Ships the driver's environment, its settings and the program's modules to the executors."""
