"""How long a test waits for what must come: as long as it may run at all.

Nobody knows how busy the machine is, so no wait has a limit of its own. A test that hangs is ended by pytest-timeout, which
shows where it waits.
"""

PATIENCE_S = 86_400.0
