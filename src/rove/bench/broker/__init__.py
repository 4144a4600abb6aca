"""`rove bench broker` and `store`: what a broker costs."""
