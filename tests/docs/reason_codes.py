"""Every reason code that the source can say, found by reading it as a syntax tree.

A code is what reaches a ``code`` or ``reason_code``: as a literal, as one branch of a condition, as a default, as
a field of a table (``Known("firmware-busy", …)``), through a local variable, or through a parameter of a function
(``_refused(group, "group-mode", …)``). Codes that are only handed on (``code=error.code``) say
nothing new.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("src/linkwright", "src/hostlab")
FIELDS = ("code", "reason_code")
WORD = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Found = dict[str, set[str]]
"""Code → where it is said, as ``path:line``."""


@cache
def codes() -> Found:
    """All codes of Linkwright and of the lab."""
    found: Found = {}
    source = _Source()
    for node in source.said():
        for code in _words(node):
            found.setdefault(code, set()).add(f"{source.module[id(node)]}:{node.lineno}")
    return found


def _tables(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Classes with a field ``code``, and its place among the fields."""
    for each in ast.walk(tree):
        if isinstance(each, ast.ClassDef):
            targets = [n.target for n in each.body if isinstance(n, ast.AnnAssign)]
            fields = [t.id for t in targets if isinstance(t, ast.Name)]
            if "code" in fields:
                yield each.name, fields.index("code")


class _Source:
    """All modules. ``module``: node → its file; ``inside``: node → the innermost function around it."""

    def __init__(self) -> None:
        self.module: dict[int, str] = {}
        self.inside: dict[int, Function] = {}
        self.calls: list[ast.Call] = []
        self.functions: list[Function] = []
        self.tables: dict[str, int] = {}
        self.kept: list[ast.AST] = []  # all of them stay, so that no node gets the id of another one
        for folder in SOURCES:
            for path in sorted((ROOT / folder).rglob("*.py")):
                self._read(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8")))

    def _read(self, name: str, tree: ast.Module) -> None:
        self.kept.append(tree)
        self.tables |= dict(_tables(tree))
        for node in ast.walk(tree):
            self.module[id(node)] = name
            if isinstance(node, ast.Call):
                self.calls.append(node)
            elif isinstance(node, Function):  # an inner function comes after the one around it
                self.functions.append(node)
                self.inside |= {id(n): node for n in ast.walk(node)}

    def said(self) -> Iterator[ast.expr]:
        """Every expression that becomes a code."""
        todo = [*self._direct()]
        traced: set[tuple[int, str]] = set()
        while todo:
            node = todo.pop()
            yield node
            function = self.inside.get(id(node))
            for name in _carried(node) if function is not None else ():
                assert function is not None
                if (id(function), name) in traced:
                    continue
                traced.add((id(function), name))
                todo += self._assigned(function, name)
                if name in _parameters(function):
                    todo += self._given(function, name, node)

    def _direct(self) -> Iterator[ast.expr]:
        for call in self.calls:
            yield from (k.value for k in call.keywords if k.arg in FIELDS)
            place = self.tables.get(_name(call.func))
            if place is not None and place < len(call.args):
                yield call.args[place]
        for function in self.functions:
            yield from (value for name, value in _defaults(function) if name in FIELDS)

    def _assigned(self, function: Function, name: str) -> Iterator[ast.expr]:
        """What the function itself stores in its variable ``name``, also as one of several at once."""
        for each in ast.walk(function):
            if isinstance(each, ast.Assign):
                for target in each.targets:
                    if isinstance(target, ast.Name) and target.id == name:
                        yield each.value
                    elif isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple):
                        pairs = zip(target.elts, each.value.elts, strict=False)
                        yield from (v for t, v in pairs if isinstance(t, ast.Name) and t.id == name)

    def _given(self, function: Function, parameter: str, into: ast.expr) -> Iterator[ast.expr]:
        """What callers give for ``parameter``; inside an f-string, with the text around it.

        A parameter ``code`` of a public function is looked for in all modules, every other one in its own."""
        names = _parameters(function)
        place = names.index(parameter) - (names[0] in ("self", "cls"))
        home = self.module[id(function)]
        everywhere = parameter in FIELDS and not function.name.startswith("_")
        for call in self.calls:
            if _name(call.func) != function.name or not (everywhere or self.module[id(call)] == home):
                continue
            given = [k.value for k in call.keywords if k.arg == parameter] or call.args[place : place + 1]
            for value in given:
                if isinstance(into, ast.JoinedStr) and isinstance(value, ast.Constant):
                    parts = [p if isinstance(p, ast.Constant) else value for p in into.values]
                    whole = ast.copy_location(ast.Constant("".join(str(p.value) for p in parts)), value)
                    self.module[id(whole)] = self.module[id(value)]
                    self.kept.append(whole)
                    yield whole
                else:
                    yield value


def _words(node: ast.expr) -> Iterator[str]:
    """The literals that the expression can be."""
    match node:
        case ast.Constant(value=str(text)) if WORD.fullmatch(text):
            yield text
        case ast.IfExp():
            yield from _words(node.body)
            yield from _words(node.orelse)
        case ast.BoolOp():
            for value in node.values:
                yield from _words(value)


def _carried(node: ast.expr) -> set[str]:
    """The variables whose value the expression can be, or holds as text."""
    match node:
        case ast.Name():
            return {node.id}
        case ast.IfExp():
            return _carried(node.body) | _carried(node.orelse)
        case ast.BoolOp():
            return set().union(*(_carried(value) for value in node.values))
        case ast.JoinedStr():
            return set().union(*(_carried(v.value) for v in node.values if isinstance(v, ast.FormattedValue)))
    return set()


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _parameters(function: Function | None) -> list[str]:
    if function is None:
        return []
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _defaults(function: Function) -> Iterator[tuple[str, ast.expr]]:
    positional = [*function.args.posonlyargs, *function.args.args]
    last = positional[len(positional) - len(function.args.defaults) :]
    for argument, default in zip(last, function.args.defaults, strict=True):
        yield argument.arg, default
    for argument, default_or_none in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if default_or_none is not None:
            yield argument.arg, default_or_none
