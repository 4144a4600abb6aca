"""The broker's metrics: read, recorded, logged."""
