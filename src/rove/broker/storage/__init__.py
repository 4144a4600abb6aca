"""What the broker keeps on disk: rows, logs, and the way back from them."""
