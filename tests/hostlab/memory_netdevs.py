"""Netdevs in memory: the protocol of ``hostlab.parts.Netdevs`` without a kernel, for tests of the cards
alone."""

from __future__ import annotations

from dataclasses import dataclass

from hostlab.machine import FunctionState, LinkInfo, Machine
from linkwright.model.values import LinkMode

HOST = "host"
IFF_UP_RUNNING = 0x1043


@dataclass
class Device:
    name: str
    ifindex: int
    namespace: str = HOST
    up: bool = False


class MemoryNetdevs:
    """``devices`` by PCI address; ``destroyed`` lists (address, namespace it was in)."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.devices: dict[str, Device] = {}
        self.destroyed: list[tuple[str, str]] = []
        self._ifindex = 1

    def create(self, fn: FunctionState) -> None:
        self._ifindex += 1
        self.devices[fn.address] = Device(fn.netdev_name or "", self._ifindex)

    def destroy(self, fn: FunctionState) -> None:
        device = self.devices.pop(fn.address, None)
        if device is not None:
            self.destroyed.append((fn.address, device.namespace))

    def rehome(self, fn: FunctionState) -> None:
        self.destroy(fn)
        self.create(fn)

    def move(self, address: str, namespace: str) -> None:
        self.devices[address].namespace = namespace

    def host_name(self, fn: FunctionState) -> str | None:
        device = self.devices.get(fn.address)
        return device.name if device is not None and device.namespace == HOST else None

    def host_links(self) -> list[LinkInfo]:
        links = [LinkInfo("lo", 1, 772, "00:00:00:00:00:00", "00:00:00:00:00:00", 65536, 9, "unknown", True, None)]
        for address, device in self.devices.items():
            fn = self.machine.function(address)
            if device.namespace != HOST or fn is None:
                continue
            infiniband = fn.port.mode is LinkMode.INFINIBAND
            links.append(
                LinkInfo(
                    name=device.name,
                    ifindex=device.ifindex,
                    link_type=32 if infiniband else 1,
                    address=f"00:00:10:49:fe:80:00:00:00:00:00:00:{fn.port_guid}" if infiniband else fn.mac,
                    broadcast="ff:ff:ff:ff:ff:ff",
                    mtu=2044 if infiniband else 1500,
                    flags=IFF_UP_RUNNING if device.up else 0x1002,
                    operstate="up" if self.carrier(fn) else "down",
                    carrier=self.carrier(fn),
                    function=address,
                )
            )
        return links

    def carrier(self, fn: FunctionState) -> bool:
        device = self.devices.get(fn.address)
        return device is not None and device.up and self.machine.carries(fn.port)
