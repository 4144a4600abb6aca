"""What sensors and devices of a world publish, and who subscribes to it."""
