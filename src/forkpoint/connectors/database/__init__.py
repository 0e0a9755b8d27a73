"""Tables of relational databases, by SQLAlchemy."""
