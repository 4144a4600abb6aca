"""House rules as a test, so that they need no reviewer.

Each rule is a small function from source text to complaints; below it stands the test that it
holds here, and the test that it can fail, on a tiny bad example. The rules between rooms are
not written here: they are read from the tables of docs/architecture.md, so that what people
read and what the test enforces are one thing.

Looks only at files that git tracks or would track: what lies about in a working copy is nobody's
business.
"""

import ast
import functools
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

from rove.cli import COMMANDS
from rove.cli.bench import SUITES

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 700

# What the world outside may start with: the package, its commands, and what users import.
ENTRY_POINTS = {
    "rove",
    "rove.__main__",
    "rove.cli",
    "rove.client.sync",
    "rove.lang",
    "rove.match",
    "rove.mesh.interest",  # until the broker uses it
    "rove.testing",
}
ENTRY_POINTS |= {command.module for command in COMMANDS.values()}
ENTRY_POINTS |= {suite.partition(":")[0] for suite in SUITES.values()}

# Test files that belong to no single module. Keep it short: each needs a reason.
CROSS_CUTTING_TESTS = {
    "tests/test_tidy.py",  # the house rules
    "tests/lang/test_algebra_and_oracle.py",  # judges algebra, cases, bounds and sets together
    "tests/lang/test_paper_examples.py",  # the examples that everybody knows, end to end
    "tests/lang/test_hostile.py",  # no text harms: lexer, parser, printer and errors together
    "tests/policy/test_escape.py",  # no trick gets out of a policy: all of the room together
    "tests/policy/test_fuzz.py",  # nor does a program that nobody wrote
    "tests/match/test_differential.py",  # all engines of the room against the oracle
    "tests/broker/walks.py",  # what one packet passes in the broker
    "tests/broker/test_walks.py",
    "tests/test_docs.py",  # what strangers read first, all of it run
    "tests/pages.py",  # by this
    "tests/effort.py",  # how many examples a property is tried with
    "tests/waiting.py",  # for what others do
    "tests/prepare.py",  # what `make test` makes before them
    "tests/duckdb_reader.py",  # what others read of our tables
    "tests/soak.py",  # the tests for hours, in parts
    "tests/sharing.py",
    "tests/test_sharing.py",
    "tests/test_soak.py",
    "tests/test_times.py",
    "tests/times.py",  # what each test takes
}
# ... and folders of them: a whole broker in a process, and clients that others have written; the
# monitor's page in a real browser; what the engines of `match` are compared with the oracle by.
CROSS_CUTTING_FOLDERS = ("tests/differential/", "tests/interop/", "tests/page/")

# What the last column of the tables forbids, in modules.
SOCKETS = {"asyncio", "http", "select", "selectors", "socket", "socketserver", "ssl", "urllib"}
FILES = {"fileinput", "glob", "os", "pathlib", "shutil", "sqlite3", "tempfile"}
THREADS = {"_thread", "concurrent", "multiprocessing", "queue", "subprocess", "threading"}
FORBIDDEN_MODULES: dict[str, Set[str]] = {
    "I/O": SOCKETS | FILES | THREADS | {"logging", "rich"},
    "sockets": SOCKETS,
    "files": FILES,
    "threads": THREADS,
    "clocks": {"sched", "time"},
    "NumPy": {"numba", "numpy", "pandas", "pyarrow", "scipy"},
}
# ... and in calls, spelled as the code would spell them.
FORBIDDEN_CALLS: dict[str, Set[str]] = {
    # `io` itself is no file: BytesIO is memory.
    "I/O": {"FileIO", "input", "io.FileIO", "io.open", "open", "print"},
    "files": {"FileIO", "io.FileIO", "io.open", "open"},
    "clocks": {
        f"{owner}.{method}"
        for owner in ("date", "datetime", "datetime.date", "datetime.datetime")
        for method in ("now", "today", "utcnow")
    },
}
# Words of that column that no test can check.
LEFT_TO_READERS = {"broker internals", "decisions", "logic", "matching", "server code"}

# Written so that this file does not match itself.
PACKAGE_HOSTS = re.compile(
    r"pypi[.](org|python)|pythonhosted[.]org|anaconda[.]org|npmjs[.](org|com)|unpkg[.]com"
    r"|jsdelivr[.]net|/opt[/](pypi|wheels)|--(extra-)?index[-]url|--find[-]links"
)
NEIGHBOURING_FOLDER = re.compile(r"[.][.]/shared\b|/work[/]shared\b")


# --- the files ------------------------------------------------------------------------------


@functools.cache
def project_files() -> tuple[str, ...]:
    """Every file of the project, relative to its root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        names = [name for name in listing.stdout.split("\0") if name]
    except FileNotFoundError:
        names = []
    if "pyproject.toml" not in names:  # an unpacked archive: no git, or somebody else's
        found = [path for top in ("src", "tests", "docs") for path in (ROOT / top).rglob("*")]
        found += ROOT.iterdir()
        names = [path.relative_to(ROOT).as_posix() for path in found]
    return tuple(sorted(name for name in set(names) if is_ours(name)))


def is_ours(name: str) -> bool:
    return (ROOT / name).is_file() and "__pycache__" not in name


class Module(NamedTuple):
    """One Python file: where it lies, what it is called, what it says."""

    path: str
    text: str

    @property
    def is_package(self) -> bool:
        return self.path.endswith("/__init__.py")

    @property
    def name(self) -> str:
        """`src/rove/cli/__init__.py` is `rove.cli`."""
        parts = PurePosixPath(self.path).with_suffix("").parts[1:]
        return ".".join(parts[:-1] if self.is_package else parts)


@functools.cache
def modules(top: str) -> tuple[Module, ...]:
    """The Python files below a folder of the project."""
    paths = [name for name in project_files() if re.fullmatch(rf"{top}/.*[.]py", name)]
    return tuple(Module(path, (ROOT / path).read_text(encoding="utf-8")) for path in paths)


@functools.cache
def nodes(module: Module) -> tuple[ast.AST, ...]:
    """A module's syntax, the whole first. All of it is looked at by several rules."""
    return tuple(ast.walk(ast.parse(module.text)))


def every_module() -> tuple[Module, ...]:
    return modules("src") + modules("tests")


def module_names() -> set[str]:
    return {module.name for module in modules("src")}


def test_the_project_is_found() -> None:
    assert {"Makefile", "src/rove/__init__.py", "tests/test_tidy.py"} <= set(project_files())
    assert not any(name.startswith(".venv/") for name in project_files())


# --- the rooms, as docs/architecture.md has them ----------------------------------------------


class Room(NamedTuple):
    """One row of the tables."""

    exists: bool
    may_import: frozenset[str]
    does_no: frozenset[str]


def read_rooms(page: str) -> dict[str, Room]:
    """Read every table row that begins with a name in backticks."""
    rooms = {}
    for line in page.splitlines():
        if row := re.fullmatch(r"\| `(\w+)` \|(.*)\|(.*)\|(.*)\|(.*)\|", line):
            name, exists, _, may_import, does_no = (cell.strip() for cell in row.groups())
            imports = re.findall(r"`(\w+)`", may_import)
            assert imports or may_import == "nothing of ours", f"{name}: what may it import?"
            words = frozenset(word.strip() for word in does_no.split(",") if word.strip())
            rooms[name] = Room(exists == "yes", frozenset(imports), words)
    return rooms


@functools.cache
def rooms() -> Mapping[str, Room]:
    return read_rooms((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))


def room_of(module: str) -> str:
    """The room of a dotted name: its second part, or `rove` for the package itself."""
    return module.split(".")[1] if "." in module else module


def test_the_tables_are_understood() -> None:
    assert rooms()["lang"].may_import == frozenset()
    assert rooms()["lang"].does_no == {"I/O", "clocks", "NumPy"}
    assert rooms()["match"].may_import == {"base", "lang", "errors"}
    for room in rooms().values():
        assert room.may_import <= rooms().keys()
        assert room.does_no <= FORBIDDEN_MODULES.keys() | LEFT_TO_READERS


def test_the_tables_name_exactly_the_rooms_that_exist() -> None:
    marked = {name for name, room in rooms().items() if room.exists}
    assert marked == {room_of(name) for name in module_names()}


def test_no_two_rooms_import_each_other() -> None:
    for name, room in rooms().items():
        for other in room.may_import:
            assert name not in rooms()[other].may_import, f"{name} and {other}"


# --- imports --------------------------------------------------------------------------------


@functools.cache
def calls(module: Module) -> dict[str, set[str]]:
    """What a module calls, spelled as it does, each with the first arguments that are texts."""
    found: dict[str, set[str]] = {}
    for node in nodes(module):
        if isinstance(node, ast.Call):
            texts = found.setdefault(spelled(node.func), set())
            match node.args:
                case [ast.Constant(value=str(text)), *_]:
                    texts.add(text)
    return found


def spelled(function: ast.expr) -> str:
    """`a.b.c` as it stands; what is no chain of names is called by nobody's name."""
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=name):
            return f"{spelled(inner)}.{name}"
        case _:
            return ""


def imports(module: Module, known: Set[str]) -> set[str]:
    """Every dotted name that a module imports, at any depth, relative ones resolved.

    `from a import b` is `a.b` where that is a known module, and otherwise a name out of `a`.
    """
    found = set()
    for node in nodes(module):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(names=names):
                base = absolute(node, module)
                inner = {f"{base}.{alias.name}" for alias in names}
                found |= (inner & known) | ({base} if inner - known else set())
    for function in ("__import__", "importlib.import_module"):
        found |= calls(module).get(function, set())
    return found


def absolute(node: ast.ImportFrom, module: Module) -> str:
    """The dotted name that `from ..base import x` means in a module."""
    base = node.module or ""
    if node.level == 0:
        return base
    parts = module.name.split(".")
    kept = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*kept, base] if base else kept)


def test_imports_are_found_wherever_they_stand() -> None:
    text = """
import os.path, json
from rove import lang, __version__
from . import near
from .near import thing
from ..lang.deep import tree
def late():
    import importlib
    importlib.import_module("rove.bench")
"""
    module = Module("src/rove/cli/x.py", text)
    assert imports(module, known={"rove", "rove.lang", "rove.cli.near"}) == {
        "os.path", "json", "rove.lang", "rove", "rove.cli.near", "rove.lang.deep", "importlib",
        "rove.bench",
    }  # fmt: skip
    package = Module("src/rove/cli/__init__.py", "from .near import thing\nfrom .. import lang")
    assert imports(package, known={"rove.lang"}) == {"rove.cli.near", "rove.lang"}


def forbidden_between_rooms(module: Module, known: Set[str]) -> Iterator[str]:
    here = room_of(module.name)
    allowed = rooms()[here].may_import | {here} if here in rooms() else {here}
    for name in sorted(imports(module, known)):
        if name.split(".")[0] == "rove" and room_of(name) not in allowed:
            yield f"{module.path}: `{here}` may not import `{name}` (see docs/architecture.md)"


def test_rooms_import_only_what_they_may() -> None:
    known = module_names()
    assert complaints(forbidden_between_rooms(each, known) for each in modules("src")) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/rove/lang/x.py", "from rove.errors import RoveError"),
        ("src/rove/lang/x.py", "from rove import __version__"),
        ("src/rove/match/x.py", "def late():\n    import rove.broker"),
        ("src/rove/match/x.py", "from ..bench import suite"),
        ("src/rove/nowhere/x.py", "import rove.lang"),
    ],
)
def test_a_forbidden_import_is_seen(path: str, text: str) -> None:
    assert len(list(forbidden_between_rooms(Module(path, text), set()))) == 1


def impurities(module: Module) -> Iterator[str]:
    """What a room uses although the last column of its row says it does not."""
    here = room_of(module.name)
    loaded = {name.split(".")[0] for name in imports(module, set())}
    for word in sorted(rooms()[here].does_no):
        used = (loaded & FORBIDDEN_MODULES.get(word, set())) | (
            calls(module).keys() & FORBIDDEN_CALLS.get(word, set())
        )
        yield from (f"{module.path}: `{here}` does no {word}, so no `{it}`" for it in sorted(used))


def test_rooms_keep_away_from_what_they_do_not_do() -> None:
    assert complaints(impurities(each) for each in modules("src")) == []


@pytest.mark.parametrize(
    "text",
    [
        "import numpy as np",
        "import socket",
        "from asyncio import run",
        "import os.path",
        "from pathlib import Path",
        "def late():\n    from time import monotonic",
        "from datetime import datetime\ndatetime.now()",
        "open('/etc/hosts')",
        "import io\nio.open('/etc/hosts')",
        "print('hello')",
    ],
)
def test_an_impure_language_is_seen(text: str) -> None:
    assert len(list(impurities(Module("src/rove/lang/x.py", text)))) == 1


# --- import cycles ---------------------------------------------------------------------------

# Cycles of other rooms that are still to go, one per line. The lead removes this when it is empty.
KNOWN_CYCLES: tuple[Set[str], ...] = (
    {"rove.match.patterns.automaton_kernels", "rove.match.patterns.encoding"},
    {"rove.world.people.behaviours", "rove.world.people.execution", "rove.world.runs.simulation"},
)


def cycles(source: tuple[Module, ...]) -> set[frozenset[str]]:
    """The groups of modules that import each other, wherever in a file the imports stand."""
    known = {module.name for module in source}
    leads_to = {module.name: imports(module, known) & known for module in source}
    reached = {name: reachable(name, leads_to) - {name} for name in leads_to}
    groups = (
        frozenset({name} | {each for each in others if name in reached[each]})
        for name, others in reached.items()
    )
    return {group for group in groups if len(group) > 1}


def reachable(name: str, leads_to: Mapping[str, Set[str]]) -> set[str]:
    """Everything that a module imports, directly or through others."""
    found: set[str] = set()
    waiting = {name}
    while waiting:
        new = leads_to[waiting.pop()] - found
        found |= new
        waiting |= new
    return found


def test_no_modules_import_each_other() -> None:
    found = {
        cycle for cycle in cycles(modules("src")) if not any(map(cycle.issubset, KNOWN_CYCLES))
    }
    assert found == set(), "move what both need to a module below, or merge them"


def test_an_import_cycle_is_seen_wherever_the_imports_stand() -> None:
    source = (
        Module("src/rove/egg.py", "from rove.chick import x"),
        Module("src/rove/chick.py", "def late():\n    import rove.hen"),
        Module(
            "src/rove/hen.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from rove import egg",
        ),
        Module("src/rove/fox.py", "import rove.hen"),
    )
    assert cycles(source) == {frozenset({"rove.egg", "rove.chick", "rove.hen"})}
    assert cycles(source[1:]) == set()


# --- dead files -----------------------------------------------------------------------------


def dead(source: tuple[Module, ...], entry_points: Set[str]) -> set[str]:
    """The modules that nothing leads to from the entry points."""
    by_name = {module.name: module for module in source}
    alive: set[str] = set()
    waiting = set(entry_points) & by_name.keys()
    while waiting:
        name = waiting.pop()
        alive.add(name)
        leads_to = imports(by_name[name], by_name.keys())
        leads_to |= {parent for each in leads_to for parent in parents(each)}
        waiting |= (leads_to & by_name.keys()) - alive
    return by_name.keys() - alive


def parents(name: str) -> Iterator[str]:
    """The packages that importing a module imports on the way."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def used_by_tests() -> set[str]:
    """Modules of the test kit that our own tests use: a user would import them likewise."""
    known = module_names()
    names = {name for test in modules("tests") for name in imports(test, known)}
    return {name for name in names if name.startswith("rove.testing.")}


def test_no_module_is_dead() -> None:
    assert dead(modules("src"), ENTRY_POINTS | used_by_tests()) == set()


def test_a_dead_module_is_seen_even_in_a_circle() -> None:
    source = (
        Module("src/rove/__init__.py", "from rove.used import x"),
        Module("src/rove/used.py", ""),
        Module("src/rove/egg.py", "import rove.hen"),
        Module("src/rove/hen.py", "import rove.egg"),
    )
    assert dead(source, {"rove"}) == {"rove.egg", "rove.hen"}


# --- size and docstrings --------------------------------------------------------------------


def without_docstring(module: Module) -> Iterator[str]:
    whole = nodes(module)[0]
    assert isinstance(whole, ast.Module)
    if not ast.get_docstring(whole):
        yield f"{module.path}: open with a docstring that says why the module exists"


def test_every_module_has_a_docstring() -> None:
    assert complaints(map(without_docstring, every_module())) == []


@pytest.mark.parametrize("text", ["", "x = 1", '"""   """', "# only a comment"])
def test_a_missing_docstring_is_seen(text: str) -> None:
    assert len(list(without_docstring(Module("src/x.py", text)))) == 1


def too_long(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES_MAX:
        yield f"{module.path}: {lines} lines, allowed are {MODULE_LINES_MAX}; split it"
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                where = f"{module.path}:{node.lineno}"
                yield f"{where}: `{node.name}` has {lines} lines, allowed are {FUNCTION_LINES_MAX}"


def test_nothing_is_too_long() -> None:
    assert complaints(map(too_long, every_module())) == []


def test_too_long_is_seen() -> None:
    function = "async def f():\n" + "    pass\n" * FUNCTION_LINES_MAX
    assert len(list(too_long(Module("src/x.py", function)))) == 1
    assert list(too_long(Module("src/x.py", function.replace("    pass\n", "", 1)))) == []
    assert len(list(too_long(Module("src/x.py", "x = 1\n" * (MODULE_LINES_MAX + 1))))) == 1


# --- tests have the shape of the code ---------------------------------------------------------


def expected_tests(source_paths: Set[str]) -> set[str]:
    """Where tests may stand: `tests/room/test_module.py`, `test_init` for an `__init__`."""
    found = set()
    for path in map(PurePosixPath, source_paths):
        folder = path.parent.relative_to("src/rove")
        found.add(str("tests" / folder / f"test_{path.stem.strip('_')}.py"))
    return found


def misplaced(test_paths: Set[str], source_paths: Set[str]) -> set[str]:
    """The test files that are named after no module."""
    tests = {
        path
        for path in test_paths
        if PurePosixPath(path).name not in ("conftest.py", "__init__.py")
        and not path.startswith(CROSS_CUTTING_FOLDERS)
    }
    return tests - expected_tests(source_paths) - CROSS_CUTTING_TESTS


def test_tests_mirror_the_code() -> None:
    paths = {module.path for module in modules("tests")}
    assert misplaced(paths, {module.path for module in modules("src")}) == set()
    assert paths >= CROSS_CUTTING_TESTS


def test_a_misplaced_test_is_seen() -> None:
    source = {"src/rove/lang/parser.py", "src/rove/cli/__init__.py", "src/rove/errors.py"}
    good = {"tests/lang/test_parser.py", "tests/cli/test_init.py", "tests/test_errors.py"}
    bad = {"tests/test_parser.py", "tests/lang/test_lexer.py", "tests/lang/helpers.py"}
    assert misplaced(good | bad | {"tests/lang/conftest.py"}, source) == bad


# --- what no file may name ------------------------------------------------------------------


def unwanted_names(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if PACKAGE_HOSTS.search(line):
            yield f"{path}:{number}: names a package host; the reader's own settings choose it"
        if NEIGHBOURING_FOLDER.search(line):
            yield f"{path}:{number}: names a folder outside the project"


def test_no_file_names_a_package_host_or_a_neighbour() -> None:
    texts = {name: (ROOT / name).read_bytes().decode(errors="replace") for name in project_files()}
    assert complaints(unwanted_names(name, text) for name, text in texts.items()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("https://pypi", ".org/simple"),
        ("https://files.python", "hosted.org/packages"),
        ("--index", "-url x"),
        ("--extra-index", "-url x"),
        ("--find", "-links here"),
        ("see ..", "/shared/design"),
    ],
)
def test_an_unwanted_name_is_seen(words: tuple[str, str]) -> None:
    assert len(list(unwanted_names("README.md", f"fine\n{''.join(words)}\n"))) == 1


def complaints(found: Iterable[Iterable[str]]) -> list[str]:
    return [complaint for each in found for complaint in each]
