"""Documents from files and JSON: the values read, round trips, and every refusal with its place and words."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkwright.model.documents import Allow, HostConfig, LinkPolicy, Target
from linkwright.model.errors import InvalidInput
from linkwright.model.load import (
    documents_from_json,
    host_config,
    json_schema,
    load_documents,
    load_files,
    to_builtins,
)
from linkwright.model.values import LinkMode

WHOLE = """\
# the examples of docs/policies.md, all fields
apiVersion: linkwright.dev/v1alpha1
kind: LinkPolicy
metadata: {name: training, labels: {team: llm}}
spec:
  nicSelector: {pciAddresses: [0000:3B:00.0, 5e:00.0], ports: [1], deviceIDs: [0x101B]}
  nodeSelector: {matchLabels: {pool: gpu}}
  linkMode: InfiniBand
  functions: {assign: Auto, numVfs: 8}
  activation:
    method: Auto
    approval: Manual
    drain: Detach
    timeout: 10m
    windows: [{schedule: 0 2 * * 6, duration: 4h, timeZone: UTC}]
    onFailure: Hold
  infiniband: {pkey: {value: 0x10, membership: Full}}
  onDelete: Keep
---
apiVersion: linkwright.dev/v1alpha1
kind: Target
metadata: {name: trainer-0}
spec:
  container: {runtime: podman, name: trainer-0}
  policy: training
  group: job-7
  interfaces:
  - name: net1
    fabric: rail-0
    rdmaName: mlx5_0
    addresses: [10.9.0.1/24, "fd00::1/64"]
    routes: [{to: 10.0.0.0/8, via: 10.9.0.254}, {to: default, via: 10.9.0.1}]
    mtu: 4092
    mac: 02-00-00-12-34-56
---
apiVersion: linkwright.dev/v1alpha1
kind: HostConfig
spec:
  allow: {firmware: true, functions: true, reset: false, restart: true}
  protect: [0000:81:00.0, eno1, 0000:82:00.0/2]
  fabrics: {rail-0: {linkModes: [InfiniBand, RoCE], ports: ["0000:3b:00.0/1"]}}
  resetProven: [{psid: MT_0000000223, firmware: 20.43.*}]
  subnetManagerTimeout: 90s
"""


def policy(spec: str) -> str:
    return f"apiVersion: linkwright.dev/v1alpha1\nkind: LinkPolicy\nmetadata: {{name: p}}\nspec:\n{spec}"


def target(spec: str) -> str:
    return f"apiVersion: linkwright.dev/v1alpha1\nkind: Target\nmetadata: {{name: t}}\nspec:\n{spec}"


def host(spec: str) -> str:
    return f"apiVersion: linkwright.dev/v1alpha1\nkind: HostConfig\nspec:\n{spec}"


def refusal(text: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        load_documents(text, "f.yaml")
    return caught.value


def test_every_field_is_read_and_spelt_the_normal_way():
    first, second, third = load_documents(WHOLE, "all.yaml")
    assert [(d.line, d.index) for d in (first, second, third)] == [(2, 0), (20, 1), (36, 2)]
    made = first.document
    assert isinstance(made, LinkPolicy)
    assert made.spec.nic_selector.pci_addresses == ("0000:3b:00.0", "0000:5e:00.0")
    assert made.spec.nic_selector.ports == (1,)
    assert made.spec.nic_selector.device_ids == ("101b",)
    assert made.spec.link_mode is LinkMode.INFINIBAND
    assert made.spec.functions.num_vfs == 8
    assert made.spec.activation.windows[0].schedule == "0 2 * * 6"
    assert made.spec.infiniband.pkey.value == "0x10"
    wants = second.document
    assert isinstance(wants, Target)
    assert wants.spec.interfaces[0].mac == "02:00:00:12:34:56"
    assert wants.spec.interfaces[0].addresses == ("10.9.0.1/24", "fd00::1/64")
    own = third.document
    assert isinstance(own, HostConfig)
    assert own.spec.allow == Allow(firmware=True, functions=True, reset=False, restart=True)
    assert own.spec.protect == ("0000:81:00.0", "eno1", "0000:82:00.0/2")
    assert own.spec.fabrics["rail-0"].ports == ("0000:3b:00.0/1",)


def test_json_objects_are_read_by_the_same_rules_and_back():
    documents = [d.document for d in load_documents(WHOLE, "all.yaml")]
    objects = json.loads(json.dumps([to_builtins(d) for d in documents]))
    assert documents_from_json(objects) == documents
    assert [d.document for d in load_documents(json.dumps(objects[0]), "one.json")] == documents[:1]


P = "  nicSelector: {ports: [1]}\n  linkMode: InfiniBand\n"
R = "  nicSelector: {ports: [1]}\n  linkMode: RoCE\n"
T = "  policy: p\n  container: {name: c}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (policy("  nicSelector: {ports: [1]}\n  linkmode: RoCE\n"),
         "f.yaml:6: spec.linkmode: no such field; did you mean linkMode?"),
        (policy(P + "  zzz: 1\n"),
         "f.yaml:7: spec.zzz: no such field; there are activation, functions, infiniband, linkMode, nicSelector, "
         "nodeSelector, onDelete, roce."),
        (policy("  nicSelector: {ports: [1]}\n"), "f.yaml:4: spec.linkMode: is missing."),
        (policy("  nicSelector: {ports: [1]}\n  linkMode: Ethernet\n"),
         'f.yaml:6: spec.linkMode: "Ethernet" is not one of InfiniBand, RoCE.'),
        (policy("  nicSelector: {ports: [1]}\n  linkMode: infiniband\n"),
         'f.yaml:6: spec.linkMode: "infiniband" is not one of InfiniBand, RoCE. Did you mean InfiniBand?'),
        (policy("  nicSelector: {}\n  linkMode: RoCE\n"),
         "f.yaml:5: spec.nicSelector: names no port. Give at least one field, for example: nicSelector: "
         '{pciAddresses: ["0000:3b:00.0"]}'),
        (policy("  nicSelector: {pciAddresses: [3b.00.0]}\n  linkMode: RoCE\n"),
         'f.yaml:5: spec.nicSelector.pciAddresses[0]: "3b.00.0" is not a PCI address like 0000:3b:00.0.'),
        (policy("  nicSelector: {pciAddresses: 0000:3b:00.0}\n  linkMode: RoCE\n"),
         'f.yaml:5: spec.nicSelector.pciAddresses: must be a list, not "0000:3b:00.0". Write it in brackets: '
         "[0000:3b:00.0]"),
        (policy("  nicSelector: {ports: [0]}\n  linkMode: RoCE\n"),
         "f.yaml:5: spec.nicSelector.ports[0]: 0 is not a port number; the ports of a card count from 1."),
        (policy(P + "  functions: {numVfs: many}\n"),
         'f.yaml:7: spec.functions.numVfs: must be a whole number, not "many".'),
        (policy(P + "  functions: {numVfs: 0}\n"), "f.yaml:7: spec.functions.numVfs: 0 is outside 1 to 65535."),
        (policy(P + "  functions: {assign: PF, numVfs: 4}\n"),
         "f.yaml:7: spec.functions.numVfs: has no meaning with assign: PF, which gives no VFs. Remove it, or set "
         "assign to Auto or VF."),
        (policy(P + "  activation: {timeout: soon}\n"),
         'f.yaml:7: spec.activation.timeout: "soon" is not a duration like 90s, 10m or 4h.'),
        (policy(P + "  activation: {windows: [{schedule: 0 25 * * *, duration: 4h}]}\n"),
         'f.yaml:7: spec.activation.windows[0].schedule: "0 25 * * *": 25 is outside 0 to 23.'),
        (policy(P + "  activation: {windows: [{schedule: daily, duration: 4h}]}\n"),
         'f.yaml:7: spec.activation.windows[0].schedule: "daily" is not a schedule of five cron fields, like '
         '"0 2 * * 6" (Saturdays at 02:00).'),
        (policy(P + "  activation: {windows: [{schedule: 0 2 * * *, duration: 4h, timeZone: Mars/Base}]}\n"),
         'f.yaml:7: spec.activation.windows[0].timeZone: "Mars/Base" is not a time zone that this host knows, '
         "like Europe/Berlin."),
        (policy(P + "  roce: {mtu: 9000}\n"),
         "f.yaml:7: spec.roce: mtu belongs to RoCE, but linkMode is InfiniBand. Remove the block, or set linkMode "
         "to RoCE."),
        (policy(R + "  infiniband: {pkey: {value: 0x10}}\n"),
         "f.yaml:7: spec.infiniband: pkey belongs to InfiniBand, but linkMode is RoCE. Remove the block, or set "
         "linkMode to InfiniBand."),
        (policy(R + "  roce: {pfc: [8]}\n"), "f.yaml:7: spec.roce.pfc[0]: 8 is not a priority from 0 to 7."),
        (policy(R + "  roce: {vlan: 4095}\n"), "f.yaml:7: spec.roce.vlan: 4095 is outside 1 to 4094."),
        (policy(P + "  infiniband: {pkey: {value: 0x8010}}\n"),
         'f.yaml:7: spec.infiniband.pkey.value: "0x8010" is outside 0x1 to 0x7fff; full or limited membership is '
         "said by membership."),
        (target(T + "  interfaces: [{name: training-network-1}]\n"),
         'f.yaml:7: spec.interfaces[0].name: "training-network-1" has 18 characters; Linux allows 15.'),
        (target(T + "  interfaces: [{name: a/b}]\n"),
         'f.yaml:7: spec.interfaces[0].name: "a/b" holds a character that Linux does not allow in an interface '
         "name."),
        (target(T + "  interfaces:\n  - {name: net1}\n  - {name: net1}\n"),
         'f.yaml:9: spec.interfaces[1].name: "net1" names a second interface of this target (first: '
         "spec.interfaces[0].name)."),
        (target(T + "  interfaces: []\n"),
         "f.yaml:7: spec.interfaces: is empty; a target has at least one interface."),
        (target(T + "  interfaces: [{name: net1, addresses: [10.9.0.1]}]\n"),
         'f.yaml:7: spec.interfaces[0].addresses[0]: "10.9.0.1" has no prefix length; write it like 10.9.0.1/24.'),
        (target(T + "  interfaces: [{name: net1, addresses: [10.9.0.300/24]}]\n"),
         'f.yaml:7: spec.interfaces[0].addresses[0]: "10.9.0.300/24" is not an IP address with its prefix, like '
         "10.9.0.1/24."),
        (target(T + "  interfaces: [{name: net1, routes: [{to: 10.0.0.1/8, via: 10.9.0.1}]}]\n"),
         'f.yaml:7: spec.interfaces[0].routes[0].to: "10.0.0.1/8" is not a network like 10.0.0.0/8, nor default. '
         "Did you mean 10.0.0.0/8?"),
        (target(T + "  interfaces: [{name: net1, routes: [{to: 10.0.0.0/8, via: 'fd00::1'}]}]\n"),
         "f.yaml:7: spec.interfaces[0].routes[0].via: fd00::1 is of another IP version than 10.0.0.0/8."),
        (target(T + "  interfaces: [{name: net1, routes: [{to: default}]}]\n"),
         "f.yaml:7: spec.interfaces[0].routes[0].via: is missing; the default route needs a gateway."),
        (target(T + "  interfaces: [{name: net1, mac: 01:00:5e:00:00:01}]\n"),
         "f.yaml:7: spec.interfaces[0].mac: \"01:00:5e:00:00:01\" cannot be an interface's own address: it is a "
         "group address or zero."),
        (target("  policy: p\n  container: {name: c, netns: /run/netns/c}\n  interfaces: [{name: net1}]\n"),
         "f.yaml:6: spec.container: has both name and netns. Give one of them: the runtime's name, or the path of "
         "the network namespace."),
        (target("  policy: p\n  container: {}\n  interfaces: [{name: net1}]\n"),
         "f.yaml:6: spec.container: has neither name nor netns. Give one of them: the runtime's name, or the path "
         "of the network namespace."),
        (target("  policy: p\n  interfaces: [{name: net1}]\n"),
         "f.yaml:4: spec.container: is missing; a target is a container. Write container: {name: NAME}, or "
         "container: {netns: /run/netns/NAME}."),
        (target("  policy: p\n  container: {netns: netns/c}\n  interfaces: [{name: net1}]\n"),
         'f.yaml:6: spec.container.netns: "netns/c" is not the full path of a network namespace, as in '
         "/run/netns/NAME."),
        (host("  allow: {firmware: yes}\n"), 'f.yaml:4: spec.allow.firmware: must be true or false, not "yes".'),
        (host("  protect: [0000:zz:00.0]\n"),
         'f.yaml:4: spec.protect[0]: "0000:zz:00.0" is not a PCI address like 0000:3b:00.0.'),
        (host("  fabrics: {rail-0: {linkModes: []}}\n"),
         "f.yaml:4: spec.fabrics.rail-0.linkModes: is empty; a fabric carries at least one mode."),
        (host("  fabrics:\n    a: {linkModes: [RoCE], ports: [0000:3b:00.0/1]}\n"
              "    b: {linkModes: [RoCE], ports: [3b:00.0 p1]}\n"),
         'f.yaml:6: spec.fabrics.b.ports[0]: "0000:3b:00.0/1" is on two fabrics (first: '
         "spec.fabrics.a.ports[0])."),
        (host("  fabrics: {a: {linkModes: [RoCE], ports: [eno1]}}\n"),
         'f.yaml:4: spec.fabrics.a.ports[0]: "eno1" is not a port like 0000:3b:00.0/1 (address of its PF, '
         "number)."),
        ("apiVersion: linkwright.dev/v1\nkind: HostConfig\n",
         'f.yaml:1: apiVersion: "linkwright.dev/v1" is not known here; this version reads '
         "linkwright.dev/v1alpha1."),
        ("kind: LinkPolisy\n",
         'f.yaml:1: kind: "LinkPolisy" is not one of LinkPolicy, Target, HostConfig. Did you mean LinkPolicy?'),
        ("metadata: {name: x}\n", "f.yaml:1: kind: is missing; one of LinkPolicy, Target, HostConfig."),
        ("- a\n", "f.yaml:1: is not a document: it must begin with apiVersion, kind and metadata."),
        (policy(P).replace("{name: p}", "{name: Trainer_0}"),
         'f.yaml:3: metadata.name: "Trainer_0" is not a name: small letters, digits, "-" and "."; at most 253 '
         "characters."),
        (policy(P) + "---\n" + policy(P),
         "f.yaml:8: metadata.name: LinkPolicy p is given twice; first at f.yaml:1. Keep one of them, or rename "
         "one."),
    ],
)  # fmt: skip
def test_refusals_say_where_what_and_what_is_right(text, said):
    error = refusal(text)
    assert str(error) == said
    assert error.exit_code == 2
    assert error.problems == (error.problems[0],)
    assert error.field == error.problems[0].field


def test_all_problems_of_a_file_are_said_at_once_in_the_order_of_its_lines():
    error = refusal(
        policy("  nicSelector: {}\n  linkMode: IB\n  functions: {numVfs: x}\n")
        + "---\n"
        + target("  policy: p\n  container: {}\n  interfaces: [{name: x y}]\n")
    )
    assert [p.where for p in error.problems] == ["f.yaml:5", "f.yaml:6", "f.yaml:7", "f.yaml:14", "f.yaml:15"]
    assert error.message == (
        "spec.nicSelector: names no port. And 4 more problems:\n"
        '  f.yaml:6: spec.linkMode: "IB" is not one of InfiniBand, RoCE.\n'
        '  f.yaml:7: spec.functions.numVfs: must be a whole number, not "x".\n'
        "  f.yaml:14: spec.container: has neither name nor netns.\n"
        '  f.yaml:15: spec.interfaces[0].name: "x y" holds a character that Linux does not allow in an interface '
        "name."
    )
    assert len(error.to_json()["problems"]) == 5


def test_json_objects_are_counted_where_there_are_no_lines():
    with pytest.raises(InvalidInput) as caught:
        documents_from_json([to_builtins(HostConfig()), {"kind": "Target", "metadata": {"name": "t"}, "spec": {}}])
    assert caught.value.where == "document 2"
    assert [p.message for p in caught.value.problems] == [
        "spec.policy: is missing.",
        "spec.interfaces: is missing.",
        "spec.container: is missing; a target is a container.",
    ]


def test_numbers_as_text_are_refused_in_json_as_well():
    document = to_builtins(load_documents(WHOLE, "all.yaml")[0].document)
    document["spec"]["functions"]["numVfs"] = "8"
    with pytest.raises(InvalidInput, match='must be a whole number, not "8"'):
        documents_from_json([document])


def test_the_hosts_file_is_optional_and_a_missing_one_allows_nothing(tmp_path: Path):
    assert host_config(tmp_path / "host.yaml") == HostConfig()
    assert host_config(tmp_path / "host.yaml").spec.allow == Allow()
    file = tmp_path / "host.yaml"
    file.write_text("")
    assert host_config(file) == HostConfig()
    file.write_text(host("  allow: {functions: true}\n"))
    assert host_config(file).spec.allow == Allow(functions=True)
    file.write_text(policy(P))
    with pytest.raises(InvalidInput, match="kind: LinkPolicy does not belong into the host's own file"):
        host_config(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="is not UTF-8 text"):
        host_config(file)


def test_several_files_and_a_name_that_stands_in_two(tmp_path: Path):
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(policy(P))
    two.write_text(target(T + "  interfaces: [{name: net1}]\n"))
    assert [type(d.document).__name__ for d in load_files([one, two])] == ["LinkPolicy", "Target"]
    two.write_text(policy(R))
    with pytest.raises(InvalidInput, match=f"LinkPolicy p is given twice; first at {one}:1"):
        load_files([one, two])


def test_the_schema_names_every_kind():
    schema = json_schema()
    assert {"LinkPolicy", "Target", "HostConfig"} <= set(schema["$defs"])
    assert schema["$defs"]["LinkPolicySpec"]["additionalProperties"] is False


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_damaged_document_is_an_error_or_a_document_and_never_a_crash(data):
    document = to_builtins(data.draw(st.sampled_from([d.document for d in load_documents(WHOLE, "all.yaml")])))
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list | tuple) and place[key] and data.draw(st.booleans()):
            if isinstance(place[key], tuple):
                place[key] = list(place[key])
            place = place[key]
            continue
        place[key] = data.draw(json_values)
        break
    with suppress(InvalidInput):
        (read,) = documents_from_json([document])
        assert documents_from_json([to_builtins(read)]) == [read]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=60) | st.integers(0, len(WHOLE)).map(lambda n: WHOLE[:n]), st.text(max_size=4))
def test_any_text_is_an_error_or_documents_and_never_a_crash(text, more):
    with suppress(InvalidInput):
        found = load_documents(text + more, "f.yaml")
        assert all(msgspec.json.encode(d.document) for d in found)
