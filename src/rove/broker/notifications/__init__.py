"""Who is notified of a publication, and how notifications get to clients."""
