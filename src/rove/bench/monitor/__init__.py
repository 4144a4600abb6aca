"""`rove bench monitor`: what the page weighs and what recording metrics costs."""
