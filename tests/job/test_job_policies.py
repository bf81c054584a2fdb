"""Policies in real life on one emulated host: containers that come and go, names, deletion, the way back.

One host and one story: each test goes on where the one before ended. The host's cards begin in InfiniBand mode.
"""

from __future__ import annotations

import pytest
from managed import PF, PORT, Managed, policy, target

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("job-policies")]

SINGLE = "0000:5e:00.0"
SECOND = "0000:3b:00.1"


def reason(job: Managed, name: str) -> str:
    return next(str(t["reason"]) for t in job.status()["targets"] if t["name"] == name)


def until_reason(job: Managed, name: str, part: str) -> None:
    def look(status: dict) -> bool:
        return any(t["name"] == name and part in t["reason"] for t in status["targets"])

    job.until(f"{name}: {part}", look)


def in_namespace(name: str, path: str, *, policy: str, interface: str = "net1", extra: str = "") -> str:
    return f"""
apiVersion: linkwright.dev/v1alpha1
kind: Target
metadata: {{name: {name}}}
spec:
  container: {{netns: {path}}}
  policy: {policy}
  interfaces:
  - {{name: {interface}{extra}}}
"""


def policies(job: Managed) -> list[str]:
    return [p["name"] for p in job.status()["policies"]]


# -- before there is anything ----------------------------------------------------------------------------------


def test_explain_names_the_policy_of_each_port_and_the_fields(job: Managed) -> None:
    job.host.write("/run/documents/p.yaml", policy("InfiniBand"))
    said = job.run("linkwright", "plan", "-f", "/run/documents/p.yaml", "--explain")
    assert f"✔ policy training: named by pciAddresses {PF}" in said
    assert f"✖ policy training: not named: pciAddresses wants {PF}, it has {SINGLE}" in said


def test_a_target_declared_before_its_container_gets_its_interface_when_it_starts(job: Managed) -> None:
    job.apply(policy("InfiniBand"), target("early", "10.9.0.1/24", extra=", rdmaName: mlx5_0"), code=4)
    assert reason(job, "early") == "container does not run (podman knows no container early)"
    job.container("early")
    job.all_attached()
    assert job.slots() == {"early net1": (PORT, None)}


# -- containers that change under their name -------------------------------------------------------------------


def test_a_renamed_container_keeps_its_interface(job: Managed) -> None:
    job.run("podman", "rename", "early", "late")
    job.until("said", lambda s: any(p["code"] == "container-renamed" for p in s["problems"]))
    assert "10.9.0.1/24" in job.inside("late", "ip", "-o", "address", "show", "net1")
    job.run("podman", "rename", "late", "early")
    job.until("quiet", lambda s: not any(p["code"] == "container-renamed" for p in s["problems"]))
    assert job.slots() == {"early net1": (PORT, None)}


def test_a_removed_container_gives_its_function_back_and_the_next_of_its_name_gets_it(job: Managed) -> None:
    job.run("podman", "rm", "--force", "--time", "0", "early")
    job.until("released", lambda s: job.slots() == {})
    assert job.port()["pf"]["netdev"]["alias"] == ""
    job.container("early")
    job.until("given again", lambda s: job.slots() == {"early net1": (PORT, None)})


def test_two_containers_that_share_a_namespace(job: Managed) -> None:
    """One name is refused with both named; with another name both have an interface there."""
    job.container("side", "--network", "container:early")
    second = policy("InfiniBand", name="second", pf=SECOND)
    said = job.apply(second, target("side", "10.9.1.2/24", policy="second"), code=3)
    assert "side net1 and early net1 are in one network namespace, which has room for one net1." in said
    job.apply(second, target("side", "10.9.1.2/24", policy="second", interface="net2"))
    job.all_attached()
    shown = job.inside("early", "ip", "-o", "address")
    assert "10.9.0.1/24" in shown
    assert "10.9.1.2/24" in shown


def test_one_rdma_name_for_two_is_refused_before_anything_is_stored(job: Managed) -> None:
    said = job.apply(target("other", "10.9.0.9/24", extra=", rdmaName: mlx5_0"), code=3)
    assert "other net1 and early net1 ask for the same rdmaName mlx5_0" in said
    assert "other" not in [t["name"] for t in job.status()["targets"]]


def test_a_container_on_the_hosts_network_is_refused(job: Managed) -> None:
    job.container("hosty", "--network", "host")
    said = job.apply(policy("InfiniBand", name="single", pf=SINGLE), code=0)
    said = job.apply(target("hosty", "10.9.0.9/24", policy="single"), code=3)
    assert "there is nothing to move net1 into" in said
    job.run("podman", "rm", "--force", "--time", "0", "hosty")


def test_two_attaches_of_one_target_at_once_are_one(job: Managed) -> None:
    job.container("twice")
    once = "linkwright attach twice --policy single --address 10.9.0.7/24 --yes"
    job.run("sh", "-c", f"{once} >/run/1 2>&1 & a=$!; {once} >/run/2 2>&1; b=$?; wait $a && exit $b")
    job.all_attached()
    assert job.slots()["twice net1"] == (f"{SINGLE}/1", None)
    job.run("linkwright", "detach", "twice")


# -- namespaces by path ----------------------------------------------------------------------------------------


def test_a_namespace_that_is_deleted_and_made_anew_under_its_path_gets_the_interface_again(job: Managed) -> None:
    """Also: the namespace has an eth0 of its own, and so has the host's function; it was destroyed undetached."""
    job.run("ip", "netns", "add", "box")
    job.run("ip", "-n", "box", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
    name = job.port(f"{SINGLE}/1")["pf"]["netdev"]["name"]
    job.run("ip", "link", "set", name, "down")
    job.run("ip", "link", "set", name, "name", "eth0")
    job.apply(in_namespace("box", "/run/netns/box", policy="single", extra=', addresses: ["fd00:9::1/64"]'))
    job.all_attached()
    shown = job.run("ip", "-n", "box", "-o", "address")
    assert "fd00:9::1/64" in shown
    assert "eth0" in shown or "eth0" in job.run("ip", "-n", "box", "-o", "link")
    job.run("ip", "netns", "delete", "box")
    job.until("released", lambda s: "box net1" not in job.slots())
    job.run("ip", "netns", "add", "box")
    job.run("linkwright", "attach", "box", "--policy", "single", "--netns", "/run/netns/box", code=None)
    job.until("given again", lambda s: "box net1" in job.slots())
    job.run("linkwright", "detach", "box")
    assert job.port(f"{SINGLE}/1")["pf"]["netdev"]["name"] == "eth0"
    job.run("ip", "netns", "delete", "box")


def test_an_address_that_the_kernel_refuses_leaves_the_function_as_it_was(job: Managed) -> None:
    job.run("ip", "netns", "add", "v4")
    job.run("ip", "netns", "exec", "v4", "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
    job.run("ip", "netns", "exec", "v4", "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
    job.apply(
        in_namespace("v4", "/run/netns/v4", policy="single", extra=', addresses: ["fd00:9::1/64"]'), code=None
    )
    until_reason(job, "v4", "fd00:9::1/64")
    pf = job.port(f"{SINGLE}/1")["pf"]
    assert pf["netdev"]["alias"] == ""
    assert "net1" not in job.run("ip", "-n", "v4", "-o", "link")
    job.run("linkwright", "detach", "v4")
    job.run("ip", "netns", "delete", "v4")


# -- deletion --------------------------------------------------------------------------------------------------


def test_a_deleted_policy_leaves_the_vfs_of_somebody_else(job: Managed) -> None:
    """onDelete: Keep, the default: what is there stays, and that is said."""
    job.apply(policy("InfiniBand", name="single", pf=SINGLE, extra="  functions: {assign: VF, numVfs: 2}"))
    job.run("ip", "netns", "add", "theirs")
    name = job.port(f"{SINGLE}/1")["vfs"][1]["netdev"]["name"]
    job.run("ip", "link", "set", name, "netns", "theirs")
    said = job.run("linkwright", "delete", "policy/single")
    assert f"{SINGLE} p1 stays InfiniBand with 2 VFs" in said
    assert name in job.run("ip", "-n", "theirs", "-o", "link")
    assert job.port(f"{SINGLE}/1")["num_vfs"] == 2
    said = job.run("linkwright", "uninstall")
    assert "its VFs stay 2 instead of 0" in said
    assert "uses a function of this port" in said
    job.run("ip", "netns", "delete", "theirs")
    job.until("home", lambda s: job.port(f"{SINGLE}/1")["vfs"][1]["netdev"] is not None)


def test_restore_is_an_ordinary_change_that_waits_for_its_yes(job: Managed) -> None:
    for name in ("side", "early"):
        job.run("linkwright", "detach", name, code=None)
    boots = job.host.status()["boots"]
    extra = "  functions: {assign: VF, numVfs: 2}\n  onDelete: Restore"
    job.apply(policy("RoCE", extra=extra), code=None)
    job.host.wait_ready(boots + 1)
    job.phase_reached("done")
    job.until("VFs", lambda s: job.port()["num_vfs"] == 2)
    kept = job.run("cat", f"/var/lib/linkwright/backup/{PF.replace(':', '-')}.txt")
    assert kept.startswith("MLNX_RAW_TLV_FILE")  # the whole configuration, from before the first write
    said = job.run("linkwright", "delete", "policy/training", code=4)
    assert f"goes back to InfiniBand, 0 VFs: {PF}" in said
    assert next(p for p in job.status()["policies"] if p["name"] == "training")["link_mode"] == "InfiniBand"
    assert job.port()["current_mode"] == "RoCE"


def test_after_the_yes_it_is_as_before_and_the_policy_is_gone(job: Managed) -> None:
    boots = job.host.status()["boots"]
    job.run("linkwright", "approve", "training", "--yes", code=None)
    job.host.wait_ready(boots + 1)
    job.until("gone", lambda s: "training" not in policies(job))
    port = job.port()
    assert {port["next_mode"], port["current_mode"], port["observed_mode"]} == {"InfiniBand"}
    assert port["num_vfs"] == 0
    assert job.host.status()["boots"] == boots + 1


def test_history_says_who_with_what_when_why_before_and_after(job: Managed) -> None:
    history = job.ask("history")["history"]
    applied = next(h for h in history if h["what"] == "apply LinkPolicy training generation 2")
    assert applied["who"].startswith("uid 0 (")
    assert "pid " in applied["who"]
    assert applied["why"] == "test"
    assert '"InfiniBand"' in applied["before"]
    assert '"RoCE"' in applied["after"]
    gone = next(h for h in history if h["what"] == "LinkPolicy training is gone")
    assert (gone["who"], gone["why"]) == ("agent", "onDelete: Restore is done")
    assert "linkMode InfiniBand → RoCE" in job.run("linkwright", "history")


# -- uninstall -------------------------------------------------------------------------------------------------


def test_uninstall_restores_what_was_found(job: Managed) -> None:
    """Somebody had staged RoCE on the second port: that is what was found, so that is what it gets back."""
    job.run("mstconfig", "-y", "-d", PF, "set", "LINK_TYPE_P2=2")
    job.apply(policy("InfiniBand", name="second", pf=SECOND, extra="  functions: {assign: VF, numVfs: 3}"))
    job.container("leaver")
    job.apply(target("leaver", "10.9.0.1/24", policy="second"))
    job.until("put right", lambda s: job.port(f"{SECOND}/2")["next_mode"] == "InfiniBand")
    assert job.slots() == {"leaver net1": (f"{SECOND}/2", 0)}
    said = job.run("linkwright", "uninstall")
    assert "Deletes policy second, target leaver." in said
    assert "Releases leaver." in said
    assert f"mstconfig -y -d {SECOND} set LINK_TYPE_P2=2" in said
    assert job.slots(), "only shown"
    said = job.run("linkwright", "uninstall", "--restore", code=4)
    assert "this needs a yes" in said
    said = job.run("linkwright", "uninstall", "--restore", "--yes", "--why", "host leaves")
    assert "This host is as it was found." in said
    port = job.port(f"{SECOND}/2")
    assert (port["num_vfs"], port["next_mode"], port["current_mode"]) == (0, "RoCE", "InfiniBand")
    assert job.port(f"{SINGLE}/1")["num_vfs"] == 0
    assert (job.status()["policies"], job.status()["targets"]) == ([], [])
    assert "net1" not in job.inside("leaver", "ip", "-o", "link")
    what = [h["what"] for h in job.ask("history")["history"]]
    assert {"uninstall --restore", "this host is as it was found"} <= set(what)
    assert "This host is as it was found." in job.run("linkwright", "uninstall")
