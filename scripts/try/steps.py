"""The five steps of the demonstration. Each types what a person would type, then looks at what became of it: at
the containers themselves, at the vendor's tool, at what the agent says.
"""

from __future__ import annotations

from typing import Any

from stage import HERE, HOST, ROOT, Stage

PF = "0000:3b:00.0"
PORT = f"{PF}/1"
HOST_FILE = "/etc/linkwright/host.yaml"
POLICY = "/srv/demo/training.yaml"
TARGET = "/srv/demo/trainer-0.yaml"
ADDRESSES = {"trainer-0": "10.9.0.1/24", "trainer-1": "10.9.0.2/24"}
LINK_TYPES = {"InfiniBand": "IB(1)", "RoCE": "ETH(2)"}


def before_any_daemon(stage: Stage) -> None:
    stage.step(
        "What is in this host, before any daemon runs",
        "An emulated host with three adapters starts. linkwright nics reads it: adapters, ports, the four\n"
        "readings of each port's link mode, and who uses what. It changes nothing.",
    )
    stage.lab("up", str(_host_file(stage, agent=False)))
    stage.host("linkwright", "nics")
    ports = _ports(stage)
    stage.check("three adapters with four ports were found", len(ports) == 4)
    vpi = ports[PORT]
    modes = {vpi["next_mode"], vpi["current_mode"], vpi["observed_mode"]}
    stage.check("firmware (read by mstconfig) and kernel agree: InfiniBand", modes == {"InfiniBand"})
    kinds = {holder["kind"] for holder in ports["0000:81:00.0/1"]["pf"]["holders"]}
    stage.check("the port under the host's default route is seen to be in use", "route" in kinds)


def first_container(stage: Stage) -> None:
    stage.step(
        "A policy and one container: it gets the port itself",
        "The host's own file allows changes, and the agent is started. One target on a port gets its PF.",
    )
    stage.put("host.yaml", HOST_FILE)
    stage.lab("down", HOST)
    stage.lab("up", str(_host_file(stage, agent=True)))
    _run_container(stage, "trainer-0")
    stage.put("training.yaml", POLICY)
    stage.put("trainer-0.yaml", TARGET)
    stage.host("linkwright", "plan", "-f", POLICY, "-f", TARGET)
    stage.host("linkwright", "apply", "-f", POLICY, "-f", TARGET, answer="y")
    stage.host("podman", "exec", "trainer-0", "ip", "-o", "address", "show", "net1")
    slots = _slots(stage)
    stage.check("trainer-0 has the PF of the port", slots == {"trainer-0": (PORT, None)})
    stage.check("net1 in the container has its address", ADDRESSES["trainer-0"] in _addresses(stage, "trainer-0"))


def second_container(stage: Stage) -> None:
    stage.step(
        "A second container on the same port: PF → VFs",
        "A port gives its PF or its VFs, never both. The plan says whom the change interrupts, and asks.",
    )
    _run_container(stage, "trainer-1")
    stage.host(
        "linkwright", "attach", "trainer-1", "--policy", "training", "--fabric", "rail-0",
        "--address", ADDRESSES["trainer-1"], "--rdma-name", "mlx5_1", answer="y",
    )  # fmt: skip
    slots = _slots(stage)
    stage.check("each has a VF of its own", sorted(slots.values(), key=str) == [(PORT, 0), (PORT, 1)])
    _talk(stage)


def to_roce(stage: Stage) -> None:
    stage.step(
        "The policy changes to RoCE: written, released, restarted, verified, given back",
        "The plan says which write, which restart and whom it interrupts. After the yes the host restarts, and\n"
        "both containers are back on the same VF with the same interface name and addresses.",
    )
    slots, boots = _slots(stage), _boots(stage)
    stage.put("training-roce.yaml", POLICY)
    stage.host("linkwright", "apply", "-f", POLICY, "--why", "little to exchange", answer="y")
    stage.machine.wait_ready(boots + 1)
    stage.until("the mode change is done, everybody is attached", lambda status: _done(status, "RoCE"))
    _verify(stage, "RoCE", slots, boots + 1)


def crash_in_the_middle(stage: Stage) -> None:
    stage.step(
        "Back to InfiniBand, and the host loses power in the middle",
        "Process 1 of the host is killed while the interfaces are taken back, and what was not on disk is lost.\n"
        "The host finishes by itself.",
    )
    slots, boots = _slots(stage), _boots(stage)
    stage.put("training.yaml", POLICY)

    def pull_the_plug() -> None:
        stage.console.print("\n[red]⚡ power loss[/red]")
        stage.machine.crash()

    stage.host(
        "linkwright", "apply", "-f", POLICY, "--why", "much to exchange", answer="y",
        at=("release", pull_the_plug), code=None,
    )  # fmt: skip
    stage.until("the mode change is done, everybody is attached", lambda status: _done(status, "InfiniBand"))
    _verify(stage, "InfiniBand", slots, boots + 1)
    stage.host("linkwright", "history")


# -- looking -----------------------------------------------------------------------------------------------------


def _host_file(stage: Stage, *, agent: bool) -> Any:
    """The host file of the demonstration; with the agent it starts at boot, as its systemd unit does."""
    stage.folder.mkdir(exist_ok=True)
    path = stage.folder / f"{HOST}.yaml"
    path.write_text((HERE / "gpu-01.yaml").read_text() + ("agent: true\n" if agent else ""))
    return path.relative_to(ROOT)


def _run_container(stage: Stage, name: str) -> None:
    """A container with a root from busybox, without any network, that comes back after a restart of the host."""
    stage.host(
        "podman", "run", "--detach", "--name", name, "--restart", "always", "--network", "none",
        "--cap-add", "NET_RAW", "--rootfs", "/srv/rootfs", "sleep", "1000000",
    )  # fmt: skip


def _ports(stage: Stage) -> dict[str, Any]:
    answer = stage.ask("linkwright", "nics")
    return {port["id"]: port for adapter in answer["inventory"]["adapters"] for port in adapter["ports"]}


def _slots(stage: Stage) -> dict[str, tuple[str, int | None]]:
    """Target → (port, VF index) of its attached net1."""
    status = stage.ask("linkwright", "status")
    return {
        target["name"]: (each["port"], each["vf_index"])
        for target in status["targets"]
        for each in target["interfaces"]
        if each["state"] == "attached"
    }


def _addresses(stage: Stage, name: str) -> str:
    return stage.run("podman", "exec", name, "ip", "-o", "address", "show", "net1")


def _boots(stage: Stage) -> int:
    return int(stage.machine.status()["boots"])


def _talk(stage: Stage) -> None:
    peer = ADDRESSES["trainer-1"].partition("/")[0]
    said = stage.host("podman", "exec", "trainer-0", "ping", "-c", "2", "-W", "3", peer)
    stage.check("the containers talk to each other", " 0% packet loss" in said)


def _done(status: Any, mode: str) -> bool:
    """Is the newest mode change over (a failed one ends the waiting too), and is every target attached?"""
    change = next((change for change in status["changes"] if change["policy"] == "training"), None)
    if change is None or change["wanted"] != mode:
        return False
    if change["phase"] in ("failed", "waiting"):
        return True
    return change["phase"] == "done" and all(target["state"] == "attached" for target in status["targets"])


def _verify(stage: Stage, mode: str, slots: dict[str, tuple[str, int | None]], boots: int) -> None:
    stage.host("linkwright", "status")
    stage.host("mstconfig", "-d", PF, "-e", "query", "LINK_TYPE_P1")
    port = _ports(stage)[PORT]
    modes = {port["next_mode"], port["current_mode"], port["observed_mode"]}
    stage.check(f"next, current and observed are {mode}", modes == {mode})
    stage.check("the host restarted exactly once", _boots(stage) == boots)
    stage.check("both are on the same port and VF as before", len(slots) == 2 and _slots(stage) == slots)
    same = all(address in _addresses(stage, name) for name, address in ADDRESSES.items())
    stage.check("net1 has the same addresses", same)
    _talk(stage)
