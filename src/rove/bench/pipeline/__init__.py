"""`rove bench pipeline`: matching, replays, rankings and streams on Spark."""
