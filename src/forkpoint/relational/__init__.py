"""Relational queries on streams: plans of tables and expressions, their canonical form, and the operators that run them.

A plan is data (``plan``, ``expressions``, ``types``). ``canonical`` gives plans with the same meaning the same form, by which
saved state is recognised. ``translation`` turns a plan into the operators of a job. Text becomes a plan in ``forkpoint.sql``.
"""
