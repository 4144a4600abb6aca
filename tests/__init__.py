"""The tests, beside the shape of the code: `tests/<room>/test_<module>.py`."""
