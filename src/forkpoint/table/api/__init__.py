"""The Table API by PyFlink's names: environments, tables, expressions and results. ``environment`` is the entry point."""
