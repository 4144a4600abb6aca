"""Tests that share what takes long to start are one unit, and come first."""

import pytest

from tests.sharing import rank, unit_of


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        ("tests/pipeline/matching/test_dataframes.py::TestSql::test_where", "spark"),
        ("tests/pipeline/jobs/test_delivery.py::test_x[1]", "spark"),  # by usefixtures
        (
            "tests/pipeline/tables/test_column_builder.py::test_x",
            "tests/pipeline/tables/test_column_builder.py",
        ),
        ("tests/page/test_frame.py::test_x", "tests/page"),
        ("tests/lang/test_parser.py::TestX::test_x", "tests/lang/test_parser.py"),
    ],
)
def test_who_is_run_together(test: str, unit: str) -> None:
    assert unit_of(test) == unit


def test_what_takes_long_comes_first() -> None:
    tests = ["tests/lang/test_parser.py::a", "tests/page/test_frame.py::a"]
    tests += [
        "tests/pipeline/matching/test_dataframes.py::b",
        "tests/pipeline/matching/test_dataframes.py::a",
    ]
    assert sorted(tests, key=rank) == [tests[2], tests[3], tests[1], tests[0]]
