"""The data folder: SQLite, the lake, files beside them."""
