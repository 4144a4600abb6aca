"""The broker's lake as Spark reads it: publications, subscription versions, states."""
