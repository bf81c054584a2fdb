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
        index = self._inside().ifindex
        routes = self.scene.ctx.links.routes(self.scene.fd("target"))
        there = {(_network(r.to, r.via), r.via) for r in routes if r.ifindex == index}
        return [route["to"] for route in self.wish.routes if _route(route) not in there]

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


def _route(route: dict[str, str]) -> tuple[str, str]:
    """(destination, gateway) as the kernel tells them, whatever the document's spelling."""
    via = str(ipaddress.ip_address(route["via"])) if "via" in route else ""
    return _network(route["to"], via), via


def _network(to: str, via: str) -> str:
    if to == "default":
        return "::/0" if ":" in via else "0.0.0.0/0"
    return str(ipaddress.ip_network(to, strict=False))


def _raise_joined(problems: Sequence[str], what: str, where: str) -> None:
    if problems:
        raise HardwareFault(
            f"the kernel refused the {what} {'; '.join(problems)}.",
            code=f"{what}-refused",
            where=where,
            said="; ".join(problems),
            next_step=f"Correct the interface's {what} in the target's document.",
        )
