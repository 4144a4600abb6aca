"""The demonstration: four subscriptions on a small city, with the monitor and Spark beside it."""
