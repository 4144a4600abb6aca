"""Rewrites the allowed syntax of a policy to the function that runs.

The result is a Python syntax tree, so it runs at Python's speed. It differs from the source as
follows: members are looked up by name, never as attributes of Python objects; operations whose
results could grow go through guards (`rove.policy.guards`); loops count steps; library functions
are ours. Its only names are the policy's own, and names that begin with `_`, which no policy can
contain. Its only attributes are those that this module writes, and `rove.policy.compiler.verify`
checks this in the bytecode.

Considered and not taken: an interpreter of our own (a hundred times slower), and Python's trace
functions to count lines (three times slower, and one long line is still one line).
"""

from __future__ import annotations

import ast
from typing import Final, Literal

from rove.policy.syntax import (
    DIRECT,
    FLOAT,
    INT,
    LIST,
    STR,
    all_true,
    any_true,
    assign,
    at,
    call_of,
    choice,
    constant_of,
    is_call_of,
    is_class,
    is_number,
    is_short,
    is_short_text,
    is_simple,
    is_text,
    may_end_early,
    name_of,
    round_cost,
    with_binding,
)
from rove.policy.whitelist import FUNCTION, ME, M, ParsedPolicy

CALL: Final = "_call"
LEFT: Final = "_left"
VALUE: Final = "_value"
Sort = Literal["float", "number", "message", "any"]
NUMBERS: Final = ("float", "number")
FINE_MAX: Final = 1 << 30
"""Integers below are compared fastest; larger ones are looked at by a guard."""

INLINED_MAX: Final = 150
"""Operators of one policy that are written out, with a test that chooses between Python's own and a
guard; later ones are guards alone. Written out, a product has some 40 pieces of syntax: Python
would take a tenth of a second to compile a text of nothing else."""

PLAIN: Final = frozenset({"clamp", "distance"})
"""Functions of ours that need to know nothing of the call."""
WITH_PLACE: Final = frozenset({"every", "changed", "summary"})
"""Functions that remember, by the place where they are called."""
RENAMED: Final = {
    "float": "real",
    "int": "whole",
    "max": "greatest",
    "min": "least",
    "round": "rounded",
    "set": "put",
    "sorted": "ordered",
    "str": "spelled",
    "sum": "total",
}
"""Functions whose names mean something else to Python, and the methods that do them."""
METHODS: Final = frozenset(
    {
        "changed", "compare", "compress", "contains", "cut", "data", "drop", "each", "ends_with",
        "every", "find", "forget", "get", "greatest", "hour", "inside", "item", "join", "keep",
        "largest", "least", "lower", "made", "member", "message", "minute", "modulo", "more", "now",
        "ordered", "power", "put", "real", "remove", "replace", "rounded", "set_data", "smallest",
        "spelled", "split", "starts_with", "store", "strip", "summary", "text", "times", "total",
        "upper", "walk", "weekday", "whole",
    }
)  # fmt: skip
"""Of the call, that the code may use."""
TEXT_ENDS: Final = {"starts_with": "startswith", "ends_with": "endswith"}
"""Functions, and the methods of a Python text that do them."""
OF_LISTS: Final = {"max": "largest", "min": "smallest"}
"""Functions of several values, and the methods that do them for those in one list."""
OF_TEXTS: Final = frozenset({"float", "int", "lower", "strip", "upper"})
"""Functions that do to a short text what Python does."""
ATTRIBUTES: Final = METHODS | set(TEXT_ENDS.values()) | {"left", "__class__"}

_SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


class Rewriter:
    """Rewrites one policy."""

    def __init__(self, parsed: ParsedPolicy) -> None:
        self._parsed = parsed
        self._body = parsed.body
        self._temporary = 0
        self._inlined = 0
        self._has_loops = any(
            isinstance(node, ast.While | ast.For) for each in self._body for node in ast.walk(each)
        )
        self._counts = any(
            isinstance(node, ast.While) or (isinstance(node, ast.For) and may_end_early(node))
            for each in self._body
            for node in ast.walk(each)
        )
        self.writes = False
        """It may change a message."""
        self.changes_state = False
        self.needs_call = False

    def module(self) -> ast.Module:
        """The whole program: one function of the message, the state and the call."""
        body = self._block(self._body)
        if self._counts:
            body = [at(assign(LEFT, ast.Constant(0)), self._body[0]), *body]
            body.append(at(self._note_left(), self._body[-1]))
        elif not body:
            body = [ast.Pass()]
        function = ast.FunctionDef(
            name=FUNCTION,
            args=ast.arguments(
                posonlyargs=[],
                args=[ast.arg(name) for name in (M, ME, CALL)],
                kwonlyargs=[],
                kw_defaults=[],
                defaults=[],
            ),
            body=body,
            decorator_list=[],
        )
        function.lineno = function.end_lineno = self._parsed.line
        function.col_offset = function.end_col_offset = 0
        for each in (*function.args.args, *body):
            at(each, function)
        return ast.Module([function], type_ignores=[])

    # --- statements ---

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [at(made, node) for node in body for made in self._statement(node)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Assign():
                return self._assignment(node.targets[0], node.value)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.Delete():
                return [self._delete(each) for each in node.targets]
            case ast.If():
                return [self._if(node)]
            case ast.While():
                return [ast.While(self._expression(node.test), self._loop(node), [])]
            case ast.For():
                return self._for(node)
            case ast.Return():
                value = self._expression(node.value) if node.value else ast.Constant(None)
                note = [self._note_left()] if self._counts else []
                return [*note, ast.Return(value)]
            case ast.Expr():
                return [ast.Expr(self._expression(node.value))]
        return [node]  # pass, break, continue

    def _assignment(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        made = self._expression(value)
        if isinstance(target, ast.Attribute | ast.Subscript):
            return [self._store(target, made)]
        return [ast.Assign([target], made)]

    def _if(self, node: ast.If) -> ast.If:
        test = self._expression(node.test)
        return ast.If(test, self._block(node.body), self._block(node.orelse))

    def _augmented(self, node: ast.AugAssign) -> list[ast.stmt]:
        """`x += y` is `x = x + y`: the operator of its own would change lists that others have."""
        read: ast.expr
        before: list[ast.stmt] = []
        match node.target:
            case ast.Name():
                read = at(name_of(node.target.id), node.target)
            case ast.Attribute():
                read = ast.Attribute(node.target.value, node.target.attr, ast.Load())
            case ast.Subscript():
                if not is_simple(node.target.slice):
                    # It is needed twice and worked out once.
                    self._temporary += 1
                    name = f"_index{self._temporary}"
                    before.append(assign(name, self._expression(node.target.slice)))
                    node.target.slice = at(name_of(name), node.target)
                read = ast.Subscript(node.target.value, node.target.slice, ast.Load())
            case _:
                raise AssertionError(node.target)
        value = at(ast.BinOp(at(read, node.target), node.op, node.value), node)
        return before + self._assignment(node.target, value)

    def _store(self, target: ast.Attribute | ast.Subscript, value: ast.expr) -> ast.stmt:
        owner, name = self._place(target)
        if owner.id == ME:
            self.changes_state = True
            return ast.Expr(self._method("put", name, value))
        self.writes = True
        return ast.Expr(self._method("store", owner, name, value))

    def _delete(self, target: ast.expr) -> ast.stmt:
        owner, name = self._place(target)
        if owner.id == ME:
            self.changes_state = True
            return ast.Expr(self._method("remove", name))
        self.writes = True
        return ast.Expr(self._method("forget", owner, name))

    def _place(self, target: ast.expr) -> tuple[ast.Name, ast.expr]:
        assert isinstance(target, ast.Attribute | ast.Subscript)
        assert isinstance(target.value, ast.Name)
        owner = target.value
        if isinstance(target, ast.Attribute):
            return owner, ast.Constant(target.attr)
        return at(name_of(owner.id), owner), self._expression(target.slice)

    def _for(self, node: ast.For) -> list[ast.stmt]:
        through = self._expression(node.iter)
        if not may_end_early(node):
            through = self._method("each", through, ast.Constant(round_cost(node)))
            body = self._block(node.body)
        else:
            if not (isinstance(node.iter, ast.Call) and is_call_of(node.iter, "range")):
                through = self._method("walk", through)
            body = self._loop(node)
        return [ast.For(node.target, through, body, [])]

    def _loop(self, node: ast.For | ast.While) -> list[ast.stmt]:
        """The body, after what counts its rounds."""
        count = ast.Assign(
            [ast.Name(LEFT, ast.Store())],
            ast.BinOp(name_of(LEFT), ast.Sub(), ast.Constant(round_cost(node))),
        )
        is_over = ast.Compare(name_of(LEFT), [ast.Lt()], [ast.Constant(0)])
        renew = assign(LEFT, self._method("more", name_of(LEFT)))
        counted: list[ast.stmt] = [count, ast.If(is_over, [renew], [])]
        return [at(each, node) for each in counted] + self._block(node.body)

    def _note_left(self) -> ast.stmt:
        target = ast.Attribute(name_of(CALL), "left", ast.Store())
        return ast.Assign([target], name_of(LEFT))

    # --- expressions ---

    def _expression(self, node: ast.expr) -> ast.expr:
        made: ast.expr = at(self._rewritten(node), node)
        return made

    def _rewritten(self, node: ast.expr) -> ast.expr:  # noqa: C901  (one branch per kind of syntax)
        match node:
            case ast.Name():
                return self._named(node)
            case ast.Attribute():
                return self._member(node.value, ast.Constant(node.attr))
            case ast.Subscript():
                return self._subscript(node)
            case ast.BinOp():
                return self._operation(node)
            case ast.UnaryOp():
                return ast.UnaryOp(node.op, self._expression(node.operand))
            case ast.BoolOp():
                return ast.BoolOp(node.op, [self._expression(each) for each in node.values])
            case ast.IfExp():
                return ast.IfExp(*map(self._expression, (node.test, node.body, node.orelse)))
            case ast.Compare():
                return self._comparison(node)
            case ast.List() | ast.Tuple():
                return type(node)([self._expression(each) for each in node.elts], ast.Load())
            case ast.Dict():
                values = [self._expression(each) for each in node.values]
                return ast.Dict(node.keys, values)
            case ast.JoinedStr():
                return self._method("text", *(self._part(each) for each in node.values))
            case ast.Call():
                return self._called(node)
        return node  # constants

    def _named(self, node: ast.Name) -> ast.expr:
        if node.id in self._parsed.constants:
            value = self._parsed.constants[node.id]
            if not isinstance(value, list | tuple):
                return constant_of(value)
        return node

    def _part(self, node: ast.expr) -> ast.expr:
        return self._expression(node.value if isinstance(node, ast.FormattedValue) else node)

    def _member(self, owner: ast.expr, name: ast.expr) -> ast.expr:
        if isinstance(owner, ast.Name) and owner.id == ME:
            return call_of(ast.Attribute(name_of(ME), "get", ast.Load()), name)
        if self._sort(owner) == "message":
            return ast.Subscript(self._expression(owner), name, ast.Load())
        return self._method("member", self._expression(owner), name)

    def _subscript(self, node: ast.Subscript) -> ast.expr:
        index = node.slice
        if isinstance(node.value, ast.Name) and node.value.id == ME:
            if isinstance(index, ast.Constant) and isinstance(index.value, str):
                return self._member(node.value, index)
            return self._method("get", self._expression(index))
        if isinstance(index, ast.Slice):
            ends = [
                self._expression(each) if each else ast.Constant(None)
                for each in (index.lower, index.upper, index.step)
            ]
            return self._method("cut", self._expression(node.value), *ends)
        folded = self._folded(node)
        if folded is not None:
            return folded
        whole, place = self._expression(node.value), self._expression(index)
        is_member = is_text(index) and self._sort(node.value) != "message"
        if (isinstance(index, ast.Constant) and not is_member) or self._sort(index) in NUMBERS:
            return ast.Subscript(whole, place, ast.Load())
        return self._method("item", whole, place)

    def _folded(self, node: ast.Subscript) -> ast.expr | None:
        """`CALM[0]` of a constant, if that is a plain value."""
        if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
            whole, index = self._parsed.constants.get(node.value.id), node.slice.value
            if isinstance(whole, tuple | list) and type(index) is int and index < len(whole):
                value = whole[index]
                return None if isinstance(value, tuple | list) else constant_of(value)
        return None

    def _sort(self, node: ast.expr) -> Sort:
        """What the text itself says of a value: of literals, constants and the message."""
        if isinstance(node, ast.Name) and node.id == M:
            return "message"
        if isinstance(node, ast.Name):
            value = self._parsed.constants.get(node.id)
        else:
            value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, float):
            return "float"
        return "number" if isinstance(value, int) else "any"

    # --- operators ---

    @property
    def _is_long(self) -> bool:
        """Whether as many operators are written out already as may be."""
        return self._inlined >= INLINED_MAX

    def _operation(self, node: ast.BinOp) -> ast.expr:
        left, right = self._expression(node.left), self._expression(node.right)
        plain = ast.BinOp(left, node.op, right)
        sorts = self._sort(node.left), self._sort(node.right)
        match node.op:
            case ast.Div() | ast.FloorDiv():
                return plain
            case ast.Add() | ast.Sub():
                return self._sum(plain, sorts)
            case ast.Mult():
                return self._product(plain, sorts)
            case ast.Mod():
                return self._remainder(plain, sorts)
        return self._power(left, right)

    def _sum(self, plain: ast.BinOp, sorts: tuple[Sort, Sort]) -> ast.expr:
        if "float" in sorts:
            # With a float it is a float or an error, whatever the other one is.
            return plain
        if isinstance(plain.op, ast.Sub) or "number" in sorts:
            return self._kept_in_bounds(plain) if self._has_loops else plain
        return self._checked(plain)

    def _power(self, left: ast.expr, right: ast.expr) -> ast.expr:
        """A power: at once if that is a small one of a float, which is a float or too large."""
        if not (isinstance(right, ast.Constant) and right.value in (2, 3)):
            return self._method("power", left, right)
        if self._is_long:
            return self._method("power", left, right)
        binding, left, right = self._bound(left, right)
        guarded = self._method("power", left, right)
        plain = ast.BinOp(left, ast.Pow(), right)
        return choice(binding, [is_class(left, FLOAT)], plain, guarded)

    def _checked(self, node: ast.expr) -> ast.expr:
        """What `node` gives, if it is a small number, else after a guard has seen it."""
        if self._is_long:
            return self._method("made", node)
        self._inlined += 1
        kept = ast.NamedExpr(ast.Name(VALUE, ast.Store()), node)
        is_integer = is_class(name_of(VALUE), INT)
        if self._has_loops:
            # Without a loop, sums are no longer than the text that they stand in.
            is_integer = all_true([is_integer, self._is_low(name_of(VALUE))])
        fits = any_true([is_class(kept, FLOAT), is_integer])
        return ast.IfExp(fits, name_of(VALUE), self._method("made", name_of(VALUE)))

    def _product(self, plain: ast.BinOp, sorts: tuple[Sort, Sort]) -> ast.expr:
        if "float" in sorts:
            return plain
        if sorts == ("number", "number"):
            return self._kept_in_bounds(plain)
        if self._is_long:
            return self._method("times", plain.left, plain.right)
        binding, left, right = self._bound(plain.left, plain.right)
        again = ast.BinOp(left, ast.Mult(), right)
        guarded = self._method("times", left, right)
        unknowns = [
            each for each, sort in zip((left, right), sorts, strict=True) if sort not in NUMBERS
        ]
        if len(unknowns) == 2 and ast.dump(left) == ast.dump(right):
            unknowns.pop()
        are_floats = [is_class(each, FLOAT) for each in unknowns]
        are_integers = all_true([is_class(each, INT) for each in unknowns])
        product = self._kept_in_bounds(again)
        return choice(binding, are_floats, again, ast.IfExp(are_integers, product, guarded))

    def _kept_in_bounds(self, node: ast.expr) -> ast.expr:
        """A number, after a guard has seen it if it is a large integer."""
        if self._is_long:
            return self._method("made", node)
        kept = ast.NamedExpr(ast.Name(VALUE, ast.Store()), node)
        is_fine = any_true([is_class(kept, FLOAT), self._is_low(name_of(VALUE))])
        return ast.IfExp(is_fine, name_of(VALUE), self._method("made", name_of(VALUE)))

    def _is_low(self, node: ast.expr) -> ast.expr:
        ends = ast.Constant(-FINE_MAX), ast.Constant(FINE_MAX)
        return ast.Compare(ends[0], [ast.Lt(), ast.Lt()], [node, ends[1]])

    def _remainder(self, plain: ast.BinOp, sorts: tuple[Sort, Sort]) -> ast.expr:
        if sorts[0] in NUMBERS:
            return plain
        if self._is_long:
            return self._method("modulo", plain.left, plain.right)
        binding, left, right = self._bound(plain.left, plain.right)
        guarded = self._method("modulo", left, right)
        again = ast.BinOp(left, ast.Mod(), right)
        return choice(binding, is_number(left), again, guarded)

    def _bound(self, left: ast.expr, right: ast.expr) -> tuple[list[ast.expr], ast.expr, ast.expr]:
        """Names for two operands, and a test that gives them their values (`_with`)."""
        self._temporary += 1
        self._inlined += 1
        taken: list[ast.expr] = []
        names: list[ast.expr] = []
        for side, each in (("left", left), ("right", right)):
            if is_simple(each):
                names.append(each)
            else:
                name = f"_{side}{self._temporary}"
                taken.append(ast.NamedExpr(ast.Name(name, ast.Store()), each))
                names.append(name_of(name))
        if len(taken) == 2:
            # Both sides of `is` are worked out, in their order, and its answer is never None.
            taken = [ast.Compare(taken[0], [ast.Is()], [taken[1]])]
        binding: list[ast.expr] = [
            ast.Compare(each, [ast.Is()], [ast.Constant(None)]) for each in taken
        ]
        return binding, names[0], names[1]

    def _comparison(self, node: ast.Compare) -> ast.expr:
        sides = [node.left, *node.comparators]
        pairs = list(zip(sides[:-1], node.ops, sides[1:], strict=True))
        if all(self._is_cheap(*pair) for pair in pairs):
            made = [self._expression(each) for each in sides]
            return ast.Compare(made[0], node.ops, made[1:])
        left = self._expression(node.left)
        tests: list[ast.expr] = []
        for index, (before, sign, after) in enumerate(pairs):
            right = self._expression(after)
            again = right
            if index + 1 < len(pairs) and not is_simple(right):
                # It is compared twice and worked out once.
                self._temporary += 1
                name = f"_between{self._temporary}"
                right, again = ast.NamedExpr(ast.Name(name, ast.Store()), right), name_of(name)
            tests.append(self._compared(before, sign, after, left, right))
            left = again
        return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)

    def _compared(
        self, before: ast.expr, sign: ast.cmpop, after: ast.expr, left: ast.expr, right: ast.expr
    ) -> ast.expr:
        plain = ast.Compare(left, [sign], [right])
        if self._is_cheap(before, sign, after):
            return plain
        if isinstance(sign, ast.In | ast.NotIn):
            inside = self._inside(left, right)
            return inside if isinstance(sign, ast.In) else ast.UnaryOp(ast.Not(), inside)
        if self._is_long:
            return self._method("compare", ast.Constant(_SIGNS[type(sign)]), left, right)
        binding, left, right = self._bound(left, right)
        guarded = self._method("compare", ast.Constant(_SIGNS[type(sign)]), left, right)
        again = ast.Compare(left, [sign], [right])
        side = right if is_simple(before) else left
        return choice(binding, is_number(side), again, guarded)

    def _inside(self, left: ast.expr, right: ast.expr) -> ast.expr:
        """`left in right`: at once if that is a number or a short text in a short list."""
        if self._is_long:
            return self._method("inside", left, right)
        binding, left, right = self._bound(left, right)
        guarded = self._method("inside", left, right)
        if isinstance(left, ast.Constant) or isinstance(right, ast.Constant):
            return with_binding(binding, guarded)
        is_plain = any_true([is_class(left, INT), is_short_text(left)])
        test = all_true([is_class(right, LIST), is_short(right), is_plain])
        plain = ast.Compare(left, [ast.In()], [right])
        return with_binding(binding, ast.IfExp(test, plain, guarded))

    def _is_cheap(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> bool:
        """Comparing them costs next to nothing, whatever they are."""
        if isinstance(sign, ast.Is | ast.IsNot):
            return True
        if isinstance(sign, ast.In | ast.NotIn):
            if isinstance(right, ast.List | ast.Tuple):
                return all(isinstance(each, ast.Constant) for each in right.elts)
            # The keys of a message are texts, and a text knows its hash.
            return isinstance(left, ast.Constant) and self._sort(right) == "message"
        either = (left, right)
        return any(self._is_scalar(each) for each in either)

    def _is_scalar(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name) and node.id in self._parsed.constants:
            return not isinstance(self._parsed.constants[node.id], list | tuple)
        if isinstance(node, ast.Subscript) and self._folded(node) is not None:
            return True
        return isinstance(node, ast.Constant)

    # --- calls ---

    def _called(self, node: ast.Call) -> ast.expr:
        arguments = [self._expression(each) for each in node.args]
        keywords = [ast.keyword(each.arg, self._expression(each.value)) for each in node.keywords]
        if isinstance(node.func, ast.Attribute):
            assert isinstance(node.func.value, ast.Name)
            owner, name = node.func.value.id, node.func.attr
            if owner != ME:
                return self._method("member", self._expression(node.func.value), *arguments,
                                    keywords=keywords)  # fmt: skip
        else:
            assert isinstance(node.func, ast.Name)
            name = node.func.id
        if name == "get" and not keywords and is_text(node.args[0]):
            return call_of(ast.Attribute(name_of(ME), "get", ast.Load()), *arguments)
        if name in DIRECT or name in PLAIN:
            made = call_of(name_of(f"_{name}"), *arguments)
            return self._kept_in_bounds(made) if name in ("ceil", "floor") else made
        if name in OF_LISTS and len(arguments) == 1:
            return self._method(OF_LISTS[name], *arguments)
        if name in OF_LISTS:
            return self._extreme(name, node, arguments)
        if name in TEXT_ENDS and len(arguments) == 2 and is_text(node.args[1]):
            return self._text_end(name, *arguments)
        if name in OF_TEXTS:
            return self._of_short_text(name, arguments[0])
        self._note(name)
        if name in WITH_PLACE:
            arguments.insert(0, ast.Constant(f"{node.lineno}:{node.col_offset + 1}"))
        return self._method(RENAMED.get(name, name), *arguments, keywords=keywords)

    def _text_end(self, name: str, text: ast.expr, end: ast.expr) -> ast.expr:
        """Whether a text begins or ends with one that is written here, and so is not long."""
        binding, text, end = self._bound(text, end)
        plain = call_of(ast.Attribute(text, TEXT_ENDS[name], ast.Load()), end)
        guarded = self._method(name, text, end)
        return choice(binding, [is_class(text, STR)], plain, guarded)

    def _of_short_text(self, name: str, text: ast.expr) -> ast.expr:
        """What Python itself does with a short text: then there is nothing to pay for."""
        method = RENAMED.get(name, name)
        if self._is_long:
            return self._method(method, text)
        binding, taken, _ = self._bound(text, ast.Constant(None))
        if method == name:
            plain = call_of(ast.Attribute(taken, name, ast.Load()))
        else:
            plain = call_of(name_of(f"_{name}"), taken)
        return choice(binding, [is_short_text(taken)], plain, self._method(method, taken))

    def _extreme(self, name: str, node: ast.Call, arguments: list[ast.expr]) -> ast.expr:
        """What is compared with a number is a number itself, or an error."""
        direct = call_of(name_of(f"_{name}"), *arguments)
        if any(self._sort(each) in NUMBERS for each in node.args):
            return direct
        if len(arguments) != 2 or self._is_long:
            return self._method(RENAMED[name], *arguments)
        binding, left, right = self._bound(*arguments)
        guarded = self._method(RENAMED[name], left, right)
        direct = call_of(name_of(f"_{name}"), left, right)
        return choice(binding, is_number(left), direct, guarded)

    def _note(self, name: str) -> None:
        if name in ("set", "remove"):
            self.changes_state = True
        elif name == "set_data":
            self.writes = True

    def _method(
        self, method: str, *arguments: ast.expr, keywords: list[ast.keyword] | None = None
    ) -> ast.expr:
        self.needs_call = True
        return ast.Call(
            ast.Attribute(name_of(CALL), method, ast.Load()), list(arguments), keywords or []
        )
