"""A guard is left out only where a variable has to be a number.

Each program does something to `x` that only numbers can stand, and then multiplies it by a number
that no text may be multiplied by. Where `x` can be a text by then, the guard has to be there.
"""

import ast

import pytest

from rove.policy.compiling import compiled
from rove.policy.jobs import Stopped
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Arrived
from rove.policy.rewriting import Rewriter
from rove.policy.running import run
from rove.policy.whitelist import parsed

BLOW = "z = x * 5000000"

UNCERTAIN = {
    "given another value": f"x = m.n\ny = x - 1\nx = m.s\n{BLOW}",
    "unpacked into": f"x = m.n\ny = x - 1\nx, y = m.s, 1\n{BLOW}",
    "in the next round of for": f"x = m.n\ny = x - 1\nfor i in range(2):\n    {BLOW}\n    x = m.s",
    "in the next round that can end": (
        f"x = m.n\ny = x - 1\nfor i in range(2):\n    {BLOW}\n    x = m.s\n    if m.z:\n      break"
    ),
    "in the next round of while": (
        f"x = m.n\ny = x - 1\ni = 0\nwhile i < 2:\n    i += 1\n    {BLOW}\n    x = m.s"
    ),
    "in the test of while": f"x = m.n\nwhile x - x == 0:\n    x = m.s\n    break\n{BLOW}",
    "loop variable": f"x = m.n\ny = x - 1\nfor x in [m.s]:\n    {BLOW}",
    "loop variable afterwards": f"x = m.n\ny = x - 1\nfor x in [m.s]:\n    pass\n{BLOW}",
    "loop that is never entered": f"x = m.s\nfor i in []:\n    y = x - 1\n{BLOW}",
    "while that is never entered": f"x = m.s\nwhile m.z:\n    y = x - 1\n{BLOW}",
    "only if": f"x = m.s\nif m.n > 100:\n    y = x - 1\n{BLOW}",
    "only else": f"x = m.s\nif m.n < 100:\n    pass\nelse:\n    y = x - 1\n{BLOW}",
    "only elif": f"x = m.s\nif m.n < 100:\n    pass\nelif x > 1:\n    pass\n{BLOW}",
    "given in a branch": f"x = m.n\ny = x - 1\nif m.n < 100:\n    x = m.s\n{BLOW}",
    "branch that returns": f"x = m.s\nif m.z:\n    y = x - 1\n    return m\n{BLOW}",
    "second of and": f"x = m.s\nif m.z and x > 1:\n    pass\n{BLOW}",
    "second of or": f"x = m.s\nif m.n or x > 1:\n    {BLOW}",
    "not of and": f"x = m.s\nif not (m.z and x > 1):\n    {BLOW}",
    "else of and": f"x = m.s\nif m.z and x > 1:\n    pass\nelse:\n    {BLOW}",
    "conditional expression": f"x = m.s\ny = x - 1 if m.n > 100 else 0\n{BLOW}",
    "end of a chain": f"x = m.s\ny = 100 < m.n < x\n{BLOW}",
    "equal to a number": f"x = m.s\ny = x == 1\n{BLOW}",
    "in a list of numbers": f"x = m.s\ny = x in [1, 2]\n{BLOW}",
    "multiplied": f"x = m.s\ny = x * 2\n{BLOW}",
    "added to a text": f"x = m.s\ny = x + m.s\n{BLOW}",
    "compared with a text": f"x = m.s\ny = x < m.t\n{BLOW}",
    "broken off before": (
        f"x = m.s\nfor i in range(3):\n    if i == 0:\n        break\n    y = x - 1\n{BLOW}"
    ),
    "continued before": (
        f"x = m.s\nfor i in range(2):\n    if i == 0:\n        continue\n    {BLOW}\n    y = x - 1"
    ),
    "smallest with a text": f"x = m.s\ny = min(x, m.t)\n{BLOW}",
    "product of a None": 'x = m.s\ny = m.z or "5"\n' + BLOW,
    "a product that is bound": "x = m.n\nz = m.s * (x * 1000000)",
    "a product bound on the left": "x = m.n\nz = (x * 1000000) * m.s",
    "a product of two members": "z = m.s * m.k",
    "a product the other way": "z = m.k * m.s",
}  # fmt: skip


@pytest.mark.parametrize("body", UNCERTAIN.values(), ids=UNCERTAIN)
def test_the_guard_is_there(body: str) -> None:
    text = "def arrived(m, me):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    arrived = Arrived("t", b'{"n": 7, "s": "text", "t": "u", "k": 5000000}')
    result = run(compiled(text), arrived, {}, {}, 0.0, PolicyLimits())
    assert isinstance(result, Stopped), result
    assert result.kind == "memory", result


@pytest.mark.parametrize(
    "body",
    [
        "x = m.n\ny = x - 1\nz = x * x",
        "x = m.n\ny = -x\nz = x % 5",
        "x = m.n\nif x > 5:\n    z = x % 3",
        "x = m.n\nif m.k and x > 5:\n    z = x % 3",
        "for x in m.xs:\n    y = x / 2\n    z = x % 3",
        "for x in m.xs:\n    y = x * 2 + 1\n    z = x % 3",
        "x = m.n\ny = abs(x)\nfor i in range(3):\n    z = x % 3",
        "x = m.n - 1\nz = x % 3",
        "x = m.n\nif m.k:\n    y = x - 1\nelse:\n    y = x + 1\nz = x % 3",
        "x = m.n\nif m.k:\n    return m\nelse:\n    y = x - 1\nz = x % 3",
        "x = m.n\ny = clamp(x, 0, 5)\nz = x > m.k",
        "x = m.n\nwhile x > 1:\n    z = x % 3",
    ],
)
def test_the_guard_is_left_out(body: str) -> None:
    text = "def arrived(m, me):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    code = ast.unparse(Rewriter(parsed(text, 10_000)).module())
    for line in code.splitlines():
        if line.lstrip().startswith("z = "):
            assert not {"modulo", "times", "compare"} & set(line.replace("(", ".").split("."))
