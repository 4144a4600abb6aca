"""Typed tables: ingestion, quality, virtual sensors, backtests."""
