"""Starting programs: in this process, in the background, under a supervisor."""
