"""The monitor's page in a real browser: a package, so that the monitor that its tests share ends
with the last of them."""
