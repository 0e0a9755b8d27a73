"""Tables over streams, by PyFlink's names: SQL statements become jobs, and results become rows.

``api`` is what programs use; ``connectors`` maps ``WITH (…)`` to sources and sinks; ``script`` runs a file of SQL.
"""
