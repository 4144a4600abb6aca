"""Conditions: from normal forms to rows of intervals, and to functions for everything else."""
