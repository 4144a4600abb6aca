"""`rove world`."""
