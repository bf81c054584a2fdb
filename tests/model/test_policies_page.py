"""The YAML of docs/policies.md is read as it stands there, so that the page cannot promise what is refused."""

from __future__ import annotations

import re
from pathlib import Path

from linkwright.model.documents import HostConfig, LinkPolicy, Target
from linkwright.model.load import load_documents

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
HEAD = """\
apiVersion: linkwright.dev/v1alpha1
kind: LinkPolicy
metadata: {name: p}
spec:
  nicSelector: {ports: [1]}
"""


def test_every_example_is_read():
    kinds = []
    for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        text = block if block.startswith("apiVersion") else HEAD + block
        kinds += [type(d.document) for d in load_documents(text, "docs/policies.md")]
    assert set(kinds) == {LinkPolicy, Target, HostConfig}
    assert len(kinds) == 5
