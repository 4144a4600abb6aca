"""What a subscription asks beyond intervals: from normal forms to rows and compiled functions."""
