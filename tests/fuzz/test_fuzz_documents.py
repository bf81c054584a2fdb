"""Any text and any JSON as policies: either documents or an InvalidInput that says where; never another error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from linkwright.model import load
from linkwright.model.errors import InvalidInput

T = TypeVar("T")

POLICY: dict[str, Any] = {
    "apiVersion": "linkwright.dev/v1alpha1",
    "kind": "LinkPolicy",
    "metadata": {"name": "training"},
    "spec": {
        "nicSelector": {"pciAddresses": ["0000:3b:00.0"], "ports": [1]},
        "linkMode": "RoCE",
        "functions": {"assign": "Auto", "numVfs": 8},
        "activation": {"approval": "Manual", "timeout": "10m"},
        "roce": {"mtu": 9000},
    },
}
TARGET: dict[str, Any] = {
    "apiVersion": "linkwright.dev/v1alpha1",
    "kind": "Target",
    "metadata": {"name": "trainer-0"},
    "spec": {
        "container": {"runtime": "podman", "name": "trainer-0"},
        "policy": "training",
        "interfaces": [{"name": "net1", "addresses": ["10.9.0.1/24"], "routes": [{"to": "10.8.0.0/16"}]}],
    },
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
# What breaks readers of YAML: tags, anchors that grow, tabs, control characters, other encodings' marks.
PIECES = st.sampled_from(
    ["---\n", "a: &a [x]\n", "b: *a\n", "<<: *a\n", "!!python/object:os.system x\n", "\t", "\x00", "\ufeff", "- ",
     ": ", "{", "}", "[", "]", "|\n", ">\n", "? ", "'", '"', "kind: LinkPolicy\n", "0000:03:00.0",
     "metadata: {name: a}\n", "1e999", "0x1f", "null", "~", "\u2028", "\ud7ff"]
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A valid document with one place changed: removed, replaced, or with an unknown neighbour."""
    document = _copy(draw(st.sampled_from([POLICY, TARGET])))
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
            break
        place = inner
    action = draw(st.sampled_from(["remove", "replace", "add"]))
    if action == "remove":
        del place[key]
    elif action == "replace" or isinstance(place, list):
        place[key] = draw(JSON)
    else:
        place[draw(st.text(max_size=8))] = draw(JSON)
    return document


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list) else value


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES | st.text(max_size=12), max_size=12).map("".join))
@example("a: [" * 3000)
@example("&a [*a]")
def test_any_text(text: str) -> None:
    found = outcome(lambda: load.load_documents(text, "fuzz.yaml"))
    if isinstance(found, InvalidInput):
        assert found.code
        assert str(found)
    else:
        assert all(each.line > 0 for each in found)


def outcome(call: Callable[[], list[T]]) -> list[T] | InvalidInput:
    """What it returns, or the refusal; any other error is the test's failure."""
    try:
        return call()
    except InvalidInput as error:
        return error


@settings(max_examples=200, deadline=None)
@given(st.lists(mutated() | JSON, max_size=3))
def test_any_json(objects: list[Any]) -> None:
    found = outcome(lambda: load.documents_from_json(objects))
    if isinstance(found, InvalidInput):
        assert found.code
        return
    again = load.documents_from_json([load.to_builtins(each) for each in found])
    assert again == found, "what was read reads the same again"


@pytest.mark.parametrize("document", [POLICY, TARGET])
def test_the_unchanged_ones_are_valid(document: Any) -> None:
    assert load.documents_from_json([document])
