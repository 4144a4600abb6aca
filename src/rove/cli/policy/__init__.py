"""`rove policy`."""
