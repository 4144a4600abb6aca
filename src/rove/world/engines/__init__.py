"""Engines that tell clients of a world, over the interface of a bus."""
