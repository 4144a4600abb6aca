"""Roads, vehicles and lights."""
