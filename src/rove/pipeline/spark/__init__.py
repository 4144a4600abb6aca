"""What surrounds Spark: sessions, Java, code on executors, file formats."""
