"""The logical job graph: transformations, uids, validation, stages. Pure."""
