"""SQL text: statements with their positions, and the plans of queries (forkpoint.relational). It runs nothing."""
