"""`rove bench policy`: what policies cost and what they are good for."""
