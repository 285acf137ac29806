"""The four namespaces of a session: one method for each endpoint of the common interface."""
