"""`rove monitor`."""
