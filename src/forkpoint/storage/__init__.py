"""Where state is kept: the storage protocol, file systems and object stores, private files."""
