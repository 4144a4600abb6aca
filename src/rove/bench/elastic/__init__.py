"""`rove bench elastic`: matcher processes that come and go with the load."""
