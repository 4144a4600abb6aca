"""The monitor's own process: a package, so that the one that its tests share ends with the last of
them."""
