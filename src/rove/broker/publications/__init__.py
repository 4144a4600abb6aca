"""Publications: taken, queued, retained."""
