"""The commands, each group in a module that is loaded when one of them is called."""
