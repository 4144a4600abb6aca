"""The allowed syntax of policies; everything else is refused, by name and with a caret.

This is a list of allowed syntax, not of forbidden syntax, so new syntax of a later Python is
refused until it has been reviewed. Python's parser returns names in their normal form, so
look-alike letters are no way around. This module only checks; `rove.policy.rewriter` transforms
the allowed parts.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

from rove.policy.automatic_variables import USUAL
from rove.policy.errors import PolicyError
from rove.policy.signatures import FUNCTIONS, closest

NODES_MAX: Final = 1_500
"""Of syntax. What stands outside of loops is done at most once, so this bounds it."""
DEPTH_MAX: Final = 80
"""Of syntax: brackets in brackets, branches in branches."""
INTEGER_MAX: Final = 2**64 - 1

FUNCTION: Final = "arrived"
M: Final = "m"
ME: Final = "me"

_WHAT: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.Import: ("there is nothing to import", "all functions are there already"),
    ast.ImportFrom: ("there is nothing to import", "all functions are there already"),
    ast.ClassDef: ("there are no classes", "a policy is one function, arrived(m, me)"),
    ast.FunctionDef: ("there are no functions inside of arrived", "write it out"),
    ast.AsyncFunctionDef: ("there is no async", "write def arrived(m, me):"),
    ast.Lambda: ("there is no lambda", "write it out"),
    ast.ListComp: ("there are no comprehensions", "write a for loop, as in xs = xs + [x]"),
    ast.SetComp: ("there are no comprehensions", "write a for loop"),
    ast.DictComp: ("there are no comprehensions", "write a for loop"),
    ast.GeneratorExp: ("there are no comprehensions", "write a for loop"),
    ast.Yield: ("there is no yield", "return a list of messages"),
    ast.YieldFrom: ("there is no yield", "return a list of messages"),
    ast.Await: ("there is no await", "nothing takes time here"),
    ast.Try: ("there is no try", "an error ends the call; ask first, as in if x is not None"),
    ast.TryStar: ("there is no try", "an error ends the call; ask first"),
    ast.Raise: ("there is no raise", "return None sends nothing"),
    ast.With: ("there is no with", "nothing is opened here"),
    ast.Assert: ("there is no assert", "write if … return None"),
    ast.Global: ("there is no global", "what is to last is set in me, as in me.count = 1"),
    ast.Nonlocal: ("there is no nonlocal", "what is to last is set in me, as in me.count = 1"),
    ast.NamedExpr: ("there is no :=", "assign in a line of its own"),
    ast.Starred: ("there is no *", "name each one"),
    ast.Set: ("there are no sets", "write a list, as in [1, 2]"),
    ast.Match: ("there is no match", "write if and elif"),
    ast.AnnAssign: ("there are no annotations", "write x = …"),
    ast.Dict: ("mappings can only be written inside of message({…})", "use a message"),
    ast.Slice: ("a slice can only be read", "write x[1:2]"),
}
_OPERATORS: Final = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow,
)  # fmt: skip
_COMPARISONS: Final = (
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot,
)  # fmt: skip
_METHODS: Final = {M: ("get",), ME: ("get", "set", "remove")}


class ParsedPolicy(NamedTuple):
    """A text that is allowed."""

    body: list[ast.stmt]
    """Of `arrived`, without its docstring."""
    line: int
    constants: dict[str, object]
    uses: frozenset[str]
    """Functions of the library."""


def parsed(text: str, bytes_max: int) -> ParsedPolicy:
    """Read a policy; PolicyError if it is none."""
    return _Reader(text).read(bytes_max)


class _Reader:
    """Walks through one text and refuses what is not allowed."""

    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("\ufeff")
        self._constants: dict[str, object] = {}
        self._locals: set[str] = set()
        self._uses: set[str] = set()
        self._loops = 0

    def read(self, bytes_max: int) -> ParsedPolicy:
        tree = self._tree(bytes_max)
        function: ast.FunctionDef | None = None
        for index, statement in enumerate(tree.body):
            if isinstance(statement, ast.FunctionDef):
                if function is not None:
                    self._refuse(statement, "there is more than one function", "write one")
                function = statement
            elif isinstance(statement, ast.Assign):
                self._constant(statement)
            elif not (index == 0 and _is_docstring(statement)):
                what = "only constants and the function arrived can stand here"
                self._refuse(statement, *_WHAT.get(type(statement), (what, "as in LOW = 0.25")))
        if function is None:
            raise PolicyError("there is no function arrived", "write def arrived(m, me):")
        self._signature(function)
        body = function.body[_is_docstring(function.body[0]) :]
        self._locals.update(self._assigned(body))
        for statement in body:
            self._statement(statement)
        return ParsedPolicy(
            body,
            function.lineno,
            self._constants,
            frozenset(self._uses),
        )

    # --- the text as a whole ---

    def _tree(self, bytes_max: int) -> ast.Module:
        text = self._text
        if not text.isascii():
            try:
                size_bytes = len(text.encode())
            except UnicodeEncodeError:
                raise PolicyError(
                    "the text holds half a surrogate pair", "send valid Unicode"
                ) from None
        else:
            size_bytes = len(text)
        if size_bytes > bytes_max:
            raise PolicyError(
                f"the text has {size_bytes:,} bytes", f"at most {bytes_max:,} are allowed"
            )
        if "\0" in text:
            raise PolicyError("the text holds a null character", "leave it out")
        try:
            with warnings.catch_warnings():
                # What Python warns of is no fault of a policy.
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except SyntaxError as error:
            raise PolicyError(
                f"this is no Python: {error.msg}",
                text=text,
                line=error.lineno or 0,
                column=error.offset or 0,
            ) from None
        except (RecursionError, MemoryError):
            raise PolicyError("the text is nested too deep", "write simpler expressions") from None
        except ValueError as error:
            raise PolicyError(f"this is no Python: {error}") from None
        self._measure(tree)
        return tree

    def _measure(self, tree: ast.Module) -> None:
        """Level by level, since a tree may be deeper than Python can follow."""
        count = depth = 0
        level: list[ast.AST] = [tree]
        while level:
            count += len(level)
            depth += 1
            if count > NODES_MAX:
                raise PolicyError(
                    "the policy is too long", f"it may have {NODES_MAX:,} pieces of syntax"
                )
            if depth > DEPTH_MAX:
                self._refuse(level[0], "this is nested too deep", "use variables between")
            level = [
                child
                for node in level
                for child in ast.iter_child_nodes(node)
                if not isinstance(child, ast.expr_context | ast.operator | ast.cmpop)
            ]

    def _constant(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if len(node.targets) != 1:
            self._refuse(node.targets[1], "one = at a time", "write two lines")
        if not isinstance(target, ast.Tuple):
            self._name_constant(target, self._literal(node.value))
            return
        values = node.value.elts if isinstance(node.value, ast.Tuple) else []
        if len(values) != len(target.elts):
            self._refuse(node.value, "there is not one value for each name", "as in A, B = 1, 2")
        for each, value in zip(target.elts, values, strict=True):
            self._name_constant(each, self._literal(value))

    def _name_constant(self, target: ast.expr, value: object) -> None:
        if not isinstance(target, ast.Name):
            self._refuse(target, "a constant has a name", "as in LOW = 0.25")
        self._new_name(target, target.id)
        if target.id in self._constants:
            self._refuse(target, f"{target.id} has a value already", "a constant has one")
        self._constants[target.id] = value

    def _literal(self, node: ast.expr) -> object:
        if isinstance(node, ast.Constant):
            self._plain(node)
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._literal(node.operand)
            if isinstance(inner, int | float):
                return -inner
        if isinstance(node, ast.List):
            return [self._literal(each) for each in node.elts]
        if isinstance(node, ast.Tuple):
            return tuple(self._literal(each) for each in node.elts)
        return self._refuse(node, "a constant is written out", "as in LOW = 0.25 or WARDS = [1, 2]")

    def _signature(self, node: ast.FunctionDef) -> None:
        if node.name != FUNCTION:
            self._refuse(node, f"the function is called {node.name}", "write def arrived(m, me):")
        if node.decorator_list:
            self._refuse(node.decorator_list[0], "there are no decorators", "leave it out")
        rest = node.args
        names = [each.arg for each in rest.args]
        odd = rest.posonlyargs or rest.kwonlyargs or rest.defaults or rest.vararg or rest.kwarg
        if names != [M, ME] or odd:
            self._refuse(node, "arrived takes m and me", "write def arrived(m, me):")
        if node.returns or any(each.annotation for each in rest.args):
            self._refuse(node, "there are no annotations", "write def arrived(m, me):")

    # --- names ---

    def _assigned(self, body: list[ast.stmt]) -> Iterator[str]:
        """Every local variable, wherever it gets its value."""
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    self._new_name(node, node.id)
                    if node.id in self._constants:
                        self._refuse(node, f"{node.id} is a constant", "choose another name")
                    yield node.id

    def _new_name(self, node: ast.AST, name: str) -> None:
        self._decent(node, name)
        if name in (M, ME):
            self._refuse(node, f"{name} cannot be something else", "choose another name")
        if name in FUNCTIONS or name == FUNCTION:
            self._refuse(node, f"{name} is a function", "choose another name")

    def _decent(self, node: ast.AST, name: str) -> None:
        if name.startswith("_"):
            self._refuse(node, f"the name {name} begins with _", "choose another name")

    # --- statements ---

    def _statement(self, node: ast.stmt) -> None:
        check = getattr(self, f"_on_{type(node).__name__}", None)
        if check is None or isinstance(node, ast.expr):
            self._unknown(node)
        else:
            check(node)

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _on_Assign(self, node: ast.Assign) -> None:  # noqa: N802
        if len(node.targets) != 1:
            self._refuse(node.targets[1], "one = at a time", "write two lines")
        self._target(node.targets[0])
        self._expression(node.value)

    def _target(self, node: ast.expr, *, names_only: bool = False) -> None:
        if isinstance(node, ast.Name):
            return
        if isinstance(node, ast.Tuple) and not names_only:
            for each in node.elts:
                self._target(each, names_only=True)
        elif isinstance(node, ast.Attribute | ast.Subscript) and not names_only:
            self._place(node)
        else:
            self._refuse(node, "this cannot be given a value", "as in x = 1 or m.x = 1")

    def _place(self, node: ast.Attribute | ast.Subscript) -> None:
        """`m.x` or `m["x"]`, to be written or removed."""
        if not isinstance(node.value, ast.Name):
            self._refuse(node, "only messages can be changed", "as in m.x = 1; make a new value")
        if node.value.id != ME:
            self._expression(node.value)
        if isinstance(node, ast.Attribute):
            self._decent(node, node.attr)
            self._not_automatic(node, node.value.id, node.attr)
        elif isinstance(node.slice, ast.Slice):
            self._refuse(node, "a part cannot be replaced", "make a new value")
        else:
            self._expression(node.slice)
            if isinstance(node.slice, ast.Constant):
                self._not_automatic(node, node.value.id, node.slice.value)

    def _not_automatic(self, node: ast.AST, owner: str, name: object) -> None:
        if owner == ME and name in USUAL:
            self._refuse(
                node, f"{name} is an automatic variable", "it can be read; choose another name"
            )

    def _on_AugAssign(self, node: ast.AugAssign) -> None:  # noqa: N802
        self._operator(node, node.op)
        self._target(node.target)
        if isinstance(node.target, ast.Tuple):
            self._refuse(node.target, "this cannot be given a value", "as in x += 1")
        self._expression(node.value)

    def _on_Delete(self, node: ast.Delete) -> None:  # noqa: N802
        for target in node.targets:
            if not isinstance(target, ast.Attribute | ast.Subscript):
                self._refuse(target, "only members of messages and variables of me can be removed",
                             "as in del m.x")  # fmt: skip
            self._place(target)

    def _on_If(self, node: ast.If) -> None:  # noqa: N802
        self._expression(node.test)
        self._block(node.body)
        self._block(node.orelse)

    def _on_While(self, node: ast.While) -> None:  # noqa: N802
        self._expression(node.test)
        self._loop(node)

    def _on_For(self, node: ast.For) -> None:  # noqa: N802
        self._target(node.target)
        if isinstance(node.target, ast.Attribute | ast.Subscript):
            self._refuse(node.target, "a for loop needs a name", "as in for x in m.xs:")
        if _is_range(node.iter):
            assert isinstance(node.iter, ast.Call)
            self._call(node.iter)
        else:
            self._expression(node.iter)
        self._loop(node)

    def _loop(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            self._refuse(node.orelse[0], "a loop has no else", "use a variable")
        self._loops += 1
        self._block(node.body)
        self._loops -= 1

    def _on_Break(self, node: ast.Break) -> None:  # noqa: N802
        if not self._loops:
            self._refuse(node, "break stands in no loop", "leave it out")

    def _on_Continue(self, node: ast.Continue) -> None:  # noqa: N802
        if not self._loops:
            self._refuse(node, "continue stands in no loop", "leave it out")

    def _on_Pass(self, node: ast.Pass) -> None:  # noqa: N802
        pass

    def _on_Return(self, node: ast.Return) -> None:  # noqa: N802
        if node.value is not None:
            self._expression(node.value)

    def _on_Expr(self, node: ast.Expr) -> None:  # noqa: N802
        if not isinstance(node.value, ast.Call):
            if type(node.value) in _WHAT:
                self._unknown(node.value)
            self._refuse(node, "this does nothing", "call a function, or give it a name")
        self._expression(node.value)

    # --- expressions ---

    def _expression(self, node: ast.expr) -> None:
        check = getattr(self, f"_in_{type(node).__name__}", None)
        if check is None:
            self._unknown(node)
        else:
            check(node)

    def _in_Constant(self, node: ast.Constant) -> None:  # noqa: N802
        self._plain(node)

    def _plain(self, node: ast.Constant) -> None:
        value = node.value
        if value is not None and type(value) not in (bool, int, float, str, bytes):
            self._refuse(node, "there is no such value", "write a number or a text")
        if type(value) is int and value > INTEGER_MAX:
            self._refuse(node, "the number does not fit into 64 bits", "write a smaller one")
        if type(value) is str and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                self._refuse(node, "the text holds half a surrogate pair", "write valid Unicode")

    def _in_Name(self, node: ast.Name) -> None:  # noqa: N802
        name = node.id
        self._decent(node, name)
        if name == ME:
            self._refuse(node, "me is no value", "ask for its variables, as in me.battery")
        if name in FUNCTIONS:
            self._refuse(node, f"{name} is a function", f"write {name}(…)")
        if name != M and name not in self._locals and name not in self._constants:
            known = {*self._locals, *self._constants, M, ME}
            self._refuse(node, f"nothing is called {name}", closest(name, known))

    def _in_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802
        self._decent(node, node.attr)
        if not (isinstance(node.value, ast.Name) and node.value.id == ME):
            self._expression(node.value)

    def _in_Subscript(self, node: ast.Subscript) -> None:  # noqa: N802
        if not (isinstance(node.value, ast.Name) and node.value.id == ME):
            self._expression(node.value)
        elif isinstance(node.slice, ast.Slice):
            self._refuse(node, "me has no parts", "ask for its variables, as in me.battery")
        if isinstance(node.slice, ast.Slice):
            for each in (node.slice.lower, node.slice.upper, node.slice.step):
                if each is not None:
                    self._expression(each)
        else:
            self._expression(node.slice)

    def _in_BinOp(self, node: ast.BinOp) -> None:  # noqa: N802
        self._operator(node, node.op)
        self._expression(node.left)
        self._expression(node.right)

    def _operator(self, node: ast.AST, operator: ast.operator) -> None:
        if type(operator) not in _OPERATORS:
            self._refuse(node, "there is no such operator", "there are + - * / // % and **")

    def _in_UnaryOp(self, node: ast.UnaryOp) -> None:  # noqa: N802
        if not isinstance(node.op, ast.USub | ast.Not):
            self._refuse(node, "there is no such operator", "write - or not")
        self._expression(node.operand)

    def _in_BoolOp(self, node: ast.BoolOp) -> None:  # noqa: N802
        for each in node.values:
            self._expression(each)

    def _in_IfExp(self, node: ast.IfExp) -> None:  # noqa: N802
        self._expression(node.test)
        self._expression(node.body)
        self._expression(node.orelse)

    def _in_Compare(self, node: ast.Compare) -> None:  # noqa: N802
        self._expression(node.left)
        for sign, each in zip(node.ops, node.comparators, strict=True):
            if type(sign) not in _COMPARISONS:
                self._unknown(node)
            if isinstance(sign, ast.Is | ast.IsNot):
                if not (isinstance(each, ast.Constant) and each.value is None):
                    self._refuse(each, "is only asks for None", "write ==, or is None")
            else:
                self._expression(each)

    def _in_List(self, node: ast.List) -> None:  # noqa: N802
        for each in node.elts:
            self._expression(each)

    def _in_Tuple(self, node: ast.Tuple) -> None:  # noqa: N802
        for each in node.elts:
            self._expression(each)

    def _in_JoinedStr(self, node: ast.JoinedStr) -> None:  # noqa: N802
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                if each.conversion != -1:
                    self._refuse(each, "there is no ! in f-strings", "write {x}")
                if each.format_spec is not None:
                    self._refuse(each, "there is no : in f-strings", "write {round(x, 2)}")
                self._expression(each.value)
            else:
                self._expression(each)

    # --- calls ---

    def _in_Call(self, node: ast.Call) -> None:  # noqa: N802
        if _is_range(node):
            self._refuse(node, "range(…) is no value", "write for i in range(…):")
        self._call(node)

    def _call(self, node: ast.Call) -> None:
        name = self._function(node)
        function = FUNCTIONS[name]
        for keyword in node.keywords:
            if keyword.arg is None:
                self._refuse(keyword.value, "there is no **", "name each one")
            self._decent(keyword.value, keyword.arg)
            if function.keywords is not None and keyword.arg not in function.keywords:
                self._refuse(keyword.value, f"{name} has no {keyword.arg}=", function.usage)
        given = len(node.args) + (len(node.keywords) if function.keywords is not None else 0)
        if not function.least <= len(node.args) <= function.most or given > function.most:
            self._refuse(node, f"{name} takes other arguments", function.usage)
        self._same_twice(node, name)
        for each in (*node.args, *(keyword.value for keyword in node.keywords)):
            if name == "message":
                self._with_mappings(each)
            else:
                self._expression(each)
        if name in ("set", "remove") and isinstance(node.args[0], ast.Constant):
            self._not_automatic(node, ME, node.args[0].value)
        if name == "message" and node.args and (len(node.args) > 1 or node.keywords):
            self._refuse(node, "message takes names or one mapping", function.usage)
        if name == "compress" and len(node.args) + len(node.keywords) < 2:
            self._refuse(node, "compress is not told how far", function.usage)

    def _same_twice(self, node: ast.Call, name: str) -> None:
        positions = FUNCTIONS[name].positions[: len(node.args)]
        given: set[str | None] = set()
        for each in (*positions, *(keyword.arg for keyword in node.keywords)):
            if each in given:
                self._refuse(node, f"{name} is given {each} twice", FUNCTIONS[name].usage)
            given.add(each)

    def _function(self, node: ast.Call) -> str:
        """The library function that is called; of a method, the function that it stands for."""
        called = node.func
        if isinstance(called, ast.Name):
            self._decent(called, called.id)
            if called.id not in FUNCTIONS:
                self._refuse(
                    called, f"there is no function {called.id}", closest(called.id, FUNCTIONS)
                )
            self._uses.add(called.id)
            return called.id
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            owner = called.value.id
            self._decent(called, called.attr)
            if called.attr in _METHODS.get(owner, ("get",)):
                if owner == ME:
                    self._uses.add(called.attr)
                    return called.attr
                self._expression(called.value)
                return "get"
        return self._refuse(called, "only functions of the library can be called", _METHOD_HINT)

    def _with_mappings(self, node: ast.expr) -> None:
        """An argument of message(), in which mappings can be written."""
        if not isinstance(node, ast.Dict):
            self._expression(node)
            return
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and type(key.value) is str):
                self._refuse(key or node, "a name is a text", 'as in message({"pulse": 80})')
            self._plain(key)
            self._with_mappings(value)

    def _unknown(self, node: ast.AST) -> NoReturn:
        what = (f"there is no {type(node).__name__} in policies", "see docs/policies.md")
        self._refuse(node, *_WHAT.get(type(node), what))

    def _refuse(self, node: ast.AST, what: str, hint: str = "") -> NoReturn:
        line = getattr(node, "lineno", 0)
        column = getattr(node, "col_offset", -1) + 1
        lines = self._text.splitlines()
        if 1 <= line <= len(lines) and column:
            # The parser counts bytes.
            before = lines[line - 1].encode()[: column - 1]
            column = len(before.decode(errors="ignore")) + 1
        raise PolicyError(what, hint, text=self._text, line=line, column=column)


_METHOD_HINT: Final = "methods are get, set and remove of me and get of messages; else write f(x)"


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_range(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
    )
