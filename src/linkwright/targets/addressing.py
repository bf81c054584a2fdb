"""Addresses and routes of an attached interface: the steps that nothing has to take back.

Leaving a namespace flushes both (dev_change_net_namespace takes the link down and unregisters it there), so their
``undo`` is the netdev's own way home.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from linkwright.model.errors import HardwareFault

from .aspects import Aspect


class Addresses(Aspect):
    name = "addresses"

    def _missing(self) -> list[str]:
        have = self.scene.ctx.links.addresses(self._inside().ifindex, self.scene.fd("target"))
        there = {ipaddress.ip_interface(address.text) for address in have}
        return [text for text in self.wish.addresses if ipaddress.ip_interface(text) not in there]

    def is_done(self) -> bool:
        return not self.wish.addresses or not self._missing()

    def do(self) -> None:
        index = self._inside().ifindex
        problems: list[str] = []
        for text in self._missing():
            try:
                self.scene.ctx.links.add_address(index, text, netns=self.scene.fd("target"))
            except OSError as error:
                problems.append(f"{text}: {error.strerror}")
        _raise_joined(problems, "address", self.scene.address)

    def is_undone(self) -> bool:
        return self._netdev().place == "host"

    def undo(self) -> None:
        pass


class Routes(Addresses):
    name = "routes"

    def _missing(self) -> list[str]:
        return [str(number) for number, route in enumerate(self.wish.routes) if not self._has(route)]

    def _has(self, route: dict[str, str]) -> bool:
        index = self._inside().ifindex
        to = route["to"] if route["to"] == "default" else str(ipaddress.ip_network(route["to"], strict=False))
        return any(
            r.ifindex == index and r.via == route.get("via", "") and _network(r.to, r.via) == _network(to, r.via)
            for r in self.scene.ctx.links.routes(self.scene.fd("target"))
        )

    def is_done(self) -> bool:
        return not self.wish.routes or not self._missing()

    def do(self) -> None:
        index = self._inside().ifindex
        problems: list[str] = []
        for route in self.wish.routes:
            try:
                self.scene.ctx.links.add_route(
                    route["to"], ifindex=index, via=route.get("via"), netns=self.scene.fd("target")
                )
            except OSError as error:
                problems.append(f"{route['to']} via {route.get('via', self.wish.name)}: {error.strerror}")
        _raise_joined(problems, "route", self.scene.address)


def _network(to: str, via: str) -> str:
    return ("::/0" if ":" in via else "0.0.0.0/0") if to == "default" else to


def _raise_joined(problems: Sequence[str], what: str, where: str) -> None:
    if problems:
        raise HardwareFault(
            f"the kernel refused the {what} {'; '.join(problems)}.",
            code=f"{what}-refused",
            where=where,
            said="; ".join(problems),
            next_step=f"Correct the interface's {what} in the target's document.",
        )
