"""The error tree: its public names cannot drift by accident, and its docstring is complete."""

import inspect

import rove
from rove import errors


def error_classes() -> dict[str, type[Exception]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }


def test_every_error_is_a_rove_error() -> None:
    assert all(issubclass(kind, errors.RoveError) for kind in error_classes().values())


def test_the_tree_is_drawn_in_the_docstring() -> None:
    assert error_classes().keys() == {"RoveError", "UsageError"}
    assert all(name in (errors.__doc__ or "") for name in error_classes())


def test_the_base_is_what_the_package_exports() -> None:
    assert rove.RoveError is errors.RoveError
    assert sorted(rove.__all__) == ["RoveError", "__version__", "connect"]
