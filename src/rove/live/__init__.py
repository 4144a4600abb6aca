"""A virtual world over a real broker: processes, connections and the clock."""
