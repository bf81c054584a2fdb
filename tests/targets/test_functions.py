"""A VF's identity: derived values, set through the PF, taken by a re-bind only when needed, verified."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from netlab import Lab, attachment

from linkwright.kernel import linkcodec
from linkwright.kernel.netlink import codec, constants
from linkwright.model.documents import Interface
from linkwright.model.errors import HardwareFault, Refused
from linkwright.model.inventory import Function, Port, RdmaDevice
from linkwright.model.records import AttachmentState, Before
from linkwright.model.values import LinkMode, PciAddress, guid_is_set, port_id
from linkwright.targets import functions

NET1 = Interface(name="net1")


def test_macs_are_local_unicast_stable_and_distinct() -> None:
    first_port, second_port = "0c:42:a1:00:00:0e", "0c:42:a1:00:00:0f"
    made = [functions.vf_mac(pf, vf) for pf in (first_port, second_port) for vf in range(300)]
    assert len(set(made)) == len(made)
    assert all(int(m[:2], 16) & 3 == 2 for m in made)
    assert functions.vf_mac(first_port, 3) == functions.vf_mac(first_port.upper(), 3) == "02:ef:03:00:00:0e"


def test_guids_have_the_local_bit_and_are_distinct() -> None:
    first_port, second_port = "0c42:a103:0000:000e", "0c42:a103:0000:000f"
    made = [functions.vf_guid(port, vf) for port in (first_port, second_port) for vf in range(300)]
    assert len(set(made)) == len(made)
    assert all(int(g[:2], 16) & 2 for g in made)
    assert all(guid_is_set(g) for g in made)
    assert functions.vf_guid(first_port, 0) == "0e:42:a1:03:01:00:00:0e"


class Card:
    """A PF and one VF on real veths; the PF's driver keeps what is set, the VF takes it when it is bound."""

    def __init__(self, lab: Lab, monkeypatch: pytest.MonkeyPatch, *, infiniband: bool = False) -> None:
        self.lab = lab
        self.pf, self.vf = lab.function(0), lab.function(2, vf=0)
        lab.rdma.add(self.pf.address, 0, "mlx5_0")
        lab.rdma.add(self.vf.address, 1, "mlx5_2")
        lab.rdma.guids[1] = "00:00:00:00:00:00:00:00"
        lab.rdma._show(1)
        if infiniband:
            lab.transport.infiniband |= {self.pf.address, self.vf.address}
        self.admin: dict[str, str] = {}
        self.rebinds = 0
        self.takes = True
        monkeypatch.setattr("linkwright.kernel.sriov.rebind", self.rebind)
        real = lab.transport.request

        def request(family: int, messages: bytes, **options: int | None) -> list[codec.Message]:
            for message in codec.unpack(messages):
                found = codec.attr_map(message.body, 16) if message.type == constants.RTM_SETLINK else {}
                if constants.IFLA_VFINFO_LIST in found:
                    for _, inner in codec.attrs(found[constants.IFLA_VFINFO_LIST]):
                        self.keep(codec.attr_map(inner))
                    return []
            return real(family, messages, **options)

        monkeypatch.setattr(lab.transport, "request", request)

    def keep(self, inner: dict[int, bytes]) -> None:
        if constants.IFLA_VF_MAC in inner:
            self.admin["mac"] = inner[constants.IFLA_VF_MAC][4:10].hex(":")
        if constants.IFLA_VF_IB_NODE_GUID in inner:
            number = linkcodec.VF_GUID.unpack(inner[constants.IFLA_VF_IB_NODE_GUID])[1]
            self.admin["guid"] = linkcodec.guid_text(number)
            assert constants.IFLA_VF_IB_PORT_GUID not in inner

    def rebind(self, system: object, address: str) -> None:
        self.rebinds += 1
        if not self.takes:
            return
        link = self.lab.at_home(self.vf.address)
        assert link is not None
        if "guid" in self.admin:  # the lab's IPoIB address ends in 00:02 and the veth's six bytes
            self.lab.transport.guids[self.vf.address] = self.lab.rdma.guids[1] = self.admin["guid"]
        else:
            self.lab.links.change(link.ifindex, address=self.admin["mac"])
            self.lab.rdma.guids[1] = "02:00:00:ff:fe:00:00:01"
        self.lab.rdma._show(1)

    @property
    def port(self) -> Port:
        pf = replace(self.lab.observed(self.pf.address), rdma=RdmaDevice(name="mlx5_0"))
        return Port(id=port_id(self.pf.address, 1), number=1, pf=pf)

    def prepare(self, interface: Interface = NET1, mode: LinkMode = LinkMode.ROCE, **fields: object):  # type: ignore[no-untyped-def]
        function = self.lab.observed(self.vf.address, 0)
        record = self.lab.store.attachment("trainer-0", "net1") or attachment(function)
        record = self.lab.store.put_attachment(replace(record, **fields))
        return functions.prepare_vf(self.lab.ctx, self.port, function, record, interface, mode)


@pytest.fixture
def card(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Card]:
    return lambda **options: Card(lab, monkeypatch, **options)


def test_a_roce_vf_gets_a_mac_and_is_bound_anew_once(card: Callable[..., Card], lab: Lab) -> None:
    made = card()
    got = made.prepare()
    assert got.mac == functions.vf_mac("02:00:00:00:01:00", 0)
    assert lab.at_home(made.vf.address).address == got.mac
    assert lab.store.attachments() == (got,)
    assert made.prepare() == got
    assert made.rebinds == 1
    assert lab.store.open_operations() == ()


def test_the_documents_mac_wins_and_is_kept(card: Callable[..., Card]) -> None:
    made = card()
    assert made.prepare(Interface(name="net1", mac="02-AA-00-00-00-01")).mac == "02:aa:00:00:00:01"
    assert made.admin["mac"] == "02:aa:00:00:00:01"
    assert made.prepare().mac == "02:aa:00:00:00:01"
    assert made.rebinds == 1


def test_the_right_mac_with_a_zero_guid_is_bound_anew(card: Callable[..., Card], lab: Lab) -> None:
    made = card()
    lab.links.change(lab.at_home(made.vf.address).ifindex, address=functions.vf_mac("02:00:00:00:01:00", 0))
    made.prepare()
    assert made.rebinds == 1


def test_an_infiniband_vf_gets_both_guids(card: Callable[..., Card], lab: Lab) -> None:
    made = card(infiniband=True)
    got = made.prepare(mode=LinkMode.INFINIBAND)
    assert got.mac is None
    wanted = functions.vf_guid(lab.at_home(made.pf.address).address[-23:], 0)
    assert made.admin == {"guid": wanted}
    made.prepare(mode=LinkMode.INFINIBAND)
    assert made.rebinds == 1


def test_a_record_of_an_earlier_boot_does_not_hold_the_vf(card: Callable[..., Card]) -> None:
    """After a power loss the VF is made anew with a GUID of zero, and its record still says held."""
    made = card(infiniband=True)
    before = Before(name="ibp0v0", mtu=2044, address="00:00")
    made.prepare(mode=LinkMode.INFINIBAND, state=AttachmentState.ATTACHED, before=before, boot_id="an earlier one")
    assert "guid" in made.admin
    assert made.rebinds == 1


def test_a_vf_that_does_not_take_it_is_said(card: Callable[..., Card], lab: Lab) -> None:
    made = card()
    made.takes = False
    lab.ctx.__dict__["wait_s"] = 0.2
    with pytest.raises(HardwareFault, match="did not take its MAC") as caught:
        made.prepare()
    assert caught.value.code == "identity-not-taken"
    assert lab.store.open_operations() == ()


def test_a_held_vf_is_left_alone(card: Callable[..., Card], lab: Lab) -> None:
    made, target = card(), lab.target()
    lab.links.change(lab.at_home(made.vf.address).ifindex, move_to=target.fd)
    record = made.prepare()
    assert (made.rebinds, made.admin, record.mac) == (0, {}, None)


def test_a_pf_that_is_elsewhere_cannot_set_its_vfs(card: Callable[..., Card], lab: Lab) -> None:
    made, target = card(), lab.target()
    lab.links.change(lab.at_home(made.pf.address).ifindex, move_to=target.fd)
    with pytest.raises(Refused) as caught:
        made.prepare()
    assert caught.value.code == "pf-not-here"


def test_the_wrong_mode_is_said(card: Callable[..., Card]) -> None:
    with pytest.raises(HardwareFault, match="ib_ipoib") as caught:
        card().prepare(mode=LinkMode.INFINIBAND)
    assert caught.value.code == "mode-mismatch"


def test_the_pf_is_brought_up(card: Callable[..., Card], lab: Lab) -> None:
    made = card()
    assert not lab.at_home(made.pf.address).up
    functions.prepare_pf(lab.ctx, made.port)
    assert lab.at_home(made.pf.address).up
    assert isinstance(made.pf, Function)
    assert PciAddress(made.port.id.partition("/")[0]) == made.pf.address
