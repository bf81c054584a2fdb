"""Scalars stay text, lines stay known, and YAML's surprises are errors."""

from __future__ import annotations

import pytest

from linkwright.model.errors import InvalidInput
from linkwright.model.yamltree import MAX_DEPTH, Mapping, Scalar, Sequence, from_json, read_yaml


def refusal(text: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read_yaml(text, "f.yaml")
    return caught.value


def test_every_scalar_stays_the_text_that_was_written_with_its_line():
    (tree,) = read_yaml("a: 0000:03:00.0\nb: 02:00:00:12:34:56\nc: [yes, 1e3, 0x10, ~]\nd: 'x'\n", "f.yaml")
    assert isinstance(tree, Mapping)
    assert tree.items["a"] == Scalar("0000:03:00.0", 1)
    assert tree.items["b"] == Scalar("02:00:00:12:34:56", 2)
    values = tree.items["c"]
    assert isinstance(values, Sequence)
    assert [v.value for v in values.items] == ["yes", "1e3", "0x10", "~"]
    assert [v.is_null for v in values.items] == [False, False, False, True]
    assert tree.items["d"].quoted
    assert tree.lines == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_several_documents_and_empty_ones():
    found = read_yaml("---\na: 1\n---\n---\n# nothing\n---\nb: 2\n", "f.yaml")
    assert [n.line for n in found] == [2, 7]
    assert read_yaml("", "f.yaml") == []


def test_a_key_given_twice_is_an_error_with_both_lines():
    error = refusal("a: 1\nb: 2\na: 3\n")
    assert str(error) == "f.yaml:3: a is given twice; first in line 1. Keep one of them."
    assert error.code == "duplicate-key"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!python/name:os.system x", "has the tag tag:yaml.org,2002:python/name:os.system; no tags are used "
         "here."),
        ("a: !secret x", "has the tag !secret; no tags are used here."),
        ("a: *b", "*b names an anchor that is not complete here."),
        ("a: &a [*a]", "*a names an anchor that is not complete here."),
        ("? [1]\n: 2", "a key must be a word."),
        ("a: [1", "is not valid YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream "
         "end>'."),
        ("a: \x01", "is not valid YAML: unacceptable character #x0001: special characters are not allowed."),
        ("a:\n\t- b", "is not valid YAML: while scanning for the next token, found character '\\t' that cannot "
         "start any token."),
    ],
)  # fmt: skip
def test_what_is_not_read(text, said):
    error = refusal(text)
    assert error.message == said
    assert error.where.startswith("f.yaml:")


def test_aliases_are_copied():
    (tree,) = read_yaml("a: &x {b: 1}\nc: *x\n", "f.yaml")
    assert tree.items["c"] is tree.items["a"]


def test_a_small_text_cannot_become_a_huge_tree():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    error = refusal("\n".join(lines))
    assert error.code == "too-large"
    assert "more than 50000 values" in error.message


def test_depth_and_size_are_bounded():
    assert refusal("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2)).code == "too-large"
    assert refusal("a: " + "x" * (1 << 20)).message == "is larger than 1024 KiB"
    deep: list = []
    for _ in range(MAX_DEPTH + 2):
        deep = [deep]
    with pytest.raises(InvalidInput, match="nested deeper"):
        from_json(deep)


def test_json_keeps_its_types():
    tree = from_json({"a": 1, "b": True, "c": None, "d": ["x"]})
    assert isinstance(tree, Mapping)
    assert [tree.items[k].value for k in "ab"] == [1, True]
    assert tree.items["c"].is_null
    assert tree.items["d"] == Sequence((Scalar("x", quoted=True),))
