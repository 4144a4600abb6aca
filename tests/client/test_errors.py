"""The client's errors: one tree, drawn completely, each saying what the broker said."""

import inspect
import pickle

from rove.client import errors
from rove.errors import RoveError
from rove.lang import TextError


def error_classes() -> dict[str, type[Exception]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, Exception)
        and value.__module__ == errors.__name__
        and not name.startswith("_")
    }


def test_all_are_rove_errors() -> None:
    assert all(issubclass(kind, errors.ClientError) for kind in error_classes().values())
    assert issubclass(errors.ClientError, RoveError)


def test_the_tree_is_drawn_in_the_docstring() -> None:
    drawn = {line.split("── ")[1].split()[0] for line in _lines() if "── " in line}
    assert drawn == error_classes().keys()


def test_it_is_drawn_as_it_is() -> None:
    above: list[str] = ["RoveError"]
    for line in _lines():
        if "── " in line:
            depth = line.index("──") // 4
            name = line.split("── ")[1].split()[0]
            above[depth:] = [name]
            parent = above[depth - 1]
            if parent != "RoveError":
                assert issubclass(error_classes()[name], error_classes()[parent]), name


def _lines() -> list[str]:
    return (errors.__doc__ or "").splitlines()


def test_reasons_in_words() -> None:
    assert errors.in_words(0x87, None) == "not authorized (0x87)"
    assert errors.in_words(0x87, "ask Ann") == "not authorized (0x87): ask Ann"
    assert errors.in_words(0xEE, None) == "a reason unknown to this version (0xEE)"


def test_an_error_with_a_reason_survives_a_pickle() -> None:
    error = pickle.loads(pickle.dumps(errors.PublishRefused("no", 0x97)))
    assert (str(error), error.reason) == ("no", 0x97)


def test_a_filter_error_is_the_languages_error_too() -> None:
    error = errors.FilterError("what", "x >", 3)
    assert isinstance(error, TextError)
    assert (error.line, error.column) == (1, 4)
    assert "^" in str(error)
