"""The main job on a real kernel: functions to containers, traffic, a mode change with the guest's own restart.

The tests build on each other, in this order, since a boot takes a minute.
"""

from __future__ import annotations

import pytest
import real_words as words
from real_words import CARD, PLAIN, apply, container, has_link, inside, link, linkwright, policy, target

from hostlab.real.machine import RealHost, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]
TRAINERS = ("trainer-0", "trainer-1", "trainer-2")

SOFT_ROCE = """
set -e
modprobe rdma_rxe
here=$(podman inspect -f '{{.State.Pid}}' "$1"); there=$(podman inspect -f '{{.State.Pid}}' "$2")
nsenter -t "$here" -n rdma link add rxe0 type rxe netdev net1
nsenter -t "$there" -n rdma link add rxe1 type rxe netdev net1
trap 'rdma link delete rxe0; rdma link delete rxe1' EXIT
for command in 'ibv_rc_pingpong -g 1 -n 50' 'ib_send_lat -x 1 -n 100'; do
    nsenter -t "$there" -n $command -d rxe1 </dev/null >/dev/null 2>&1 &
    until nsenter -t "$there" -n ss -Hltn | grep -q ':18515 '; do sleep 0.5; done
    timeout 120 nsenter -t "$here" -n $command -d rxe0 "$3"
    wait
done
"""


@pytest.fixture(scope="module", autouse=True)
def allowed(host: RealHost) -> None:
    host.channel.put("/etc/linkwright/host.yaml", words.HOST)
    ready = wait_until(
        lambda: host.channel.exec(["systemctl", "is-active", "linkwright"], check=False).returncode == 0, 300
    )
    assert ready


def training(mode: str = "RoCE") -> str:
    return policy("training", CARD, mode=mode, functions="assign: VF, numVfs: 3") + "".join(
        target(name, "training", f"10.9.0.{number}") for number, name in enumerate(TRAINERS, 1)
    )


def test_the_units_of_the_project_came_up_at_boot(host: RealHost) -> None:
    for unit in ("hostlab-cards", "linkwright-boot", "linkwright"):
        assert host.channel.exec(["systemctl", "is-active", unit]).stdout.strip() == "active"
    assert host.channel.exec(["systemctl", "list-units", "--failed", "--no-legend"]).stdout == ""


def test_mstconfig_sees_a_connectx_where_an_igb_is(host: RealHost) -> None:
    said = host.channel.exec(["mstconfig", "-d", CARD, "-e", "query", "LINK_TYPE_P1"], timeout_s=600).stdout
    assert "ConnectX7" in said
    assert "ETH(2)" in said
    driver = host.channel.exec(["readlink", f"/sys/bus/pci/devices/{CARD}/driver"]).stdout.strip()
    assert driver.endswith("/igb")


def test_a_pf_goes_to_a_container(host: RealHost) -> None:
    container(host, "web")
    apply(host, policy("office", PLAIN, functions="assign: PF") + target("web", "office", "10.0.0.1"))
    assert has_link(host, "web")
    found = link(host, "web")
    assert found is not None
    assert found["parentdev"] == PLAIN
    assert "10.0.0.1" in {address["local"] for address in found["addr_info"]}
    assert host.channel.exec(["ls", f"/sys/bus/pci/devices/{PLAIN}/net"]).stdout == ""


def test_three_vfs_go_to_three_containers_that_talk(host: RealHost) -> None:
    for name in TRAINERS:
        container(host, name)
    apply(host, training())
    assert has_link(host, *TRAINERS)
    functions = {seat[0] for seat in words.seats(host, *TRAINERS).values()}
    assert len(functions) == len(TRAINERS)
    assert CARD not in functions
    assert "2 received" in inside(host, "trainer-0", "ping", "-c", "2", "-w", "30", "10.9.0.2")
    assert "2 received" in inside(host, "trainer-2", "ping", "-c", "2", "-w", "30", "10.9.0.1")


def test_soft_roce_runs_between_two_containers(host: RealHost) -> None:
    """Over VFs, each device made in its container's namespace; the programs are the guest's, in that namespace."""
    host.channel.put("/root/rxe.sh", SOFT_ROCE)
    said = host.channel.exec(["bash", "/root/rxe.sh", "trainer-0", "trainer-1", "10.9.0.2"], timeout_s=600).stdout
    assert "50 iters in" in said
    assert "99% percentile" in said


def test_nothing_is_left_to_plan(host: RealHost) -> None:
    host.channel.put("/root/again.yaml", training())
    assert linkwright(host, "plan", "-f", "/root/again.yaml")["steps"] == []


def test_a_mode_change_restarts_the_host_and_all_come_back(host: RealHost) -> None:
    """To InfiniBand, which the firmware takes at the restart, and back; an igb cannot be InfiniBand for its users,
    so only the card's own readings are looked at in between."""
    before = words.seats(host, *TRAINERS)
    boot = host.channel.wait_up(60)["hello"]
    apply(host, training("InfiniBand"))
    boot = host.channel.wait_up(900, not_boot=boot)["hello"]
    said = host.channel.exec(["mstconfig", "-d", CARD, "-e", "query", "LINK_TYPE_P1"], timeout_s=600).stdout
    assert said.count("IB(1)") == 3
    apply(host, training("RoCE"))
    host.channel.wait_up(900, not_boot=boot)
    assert has_link(host, *TRAINERS)
    assert words.seats(host, *TRAINERS) == before
    assert "2 received" in inside(host, "trainer-0", "ping", "-c", "2", "-w", "30", "10.9.0.3")
