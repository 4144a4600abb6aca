"""`rove bench match` and its relatives: indexes, designs, ranked lists and programs."""
