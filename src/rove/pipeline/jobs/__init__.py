"""Jobs that run for long: the streaming match, delivery, metrics; their status."""
