"""Maps, tiles and paths."""
