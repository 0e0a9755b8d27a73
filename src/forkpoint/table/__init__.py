"""Tables over streams, by PyFlink's names: SQL statements become jobs, and results become rows.

``environment`` is the entry point; ``connectors`` maps ``WITH (…)`` to sources and sinks; ``script`` runs a file of SQL.
"""
