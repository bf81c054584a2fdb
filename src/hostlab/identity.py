"""Who a card is: serial number, GUIDs and MACs, the same after every start of the lab, others after a swap."""

from __future__ import annotations

from hostlab import naming
from hostlab.parts import AdapterState


def give_identity(adapter: AdapterState, host: str, serial: str | None = None) -> None:
    """``serial``: the lab file's own, as boards have it whose cards share one. Each PF has a MAC and GUID of its
    own, those of further connectors too; the card's GUID (system image GUID) is that of the first."""
    seed = naming.seed_of(host if not adapter.swaps else f"{host} {adapter.swaps}", adapter.address)
    adapter.serial = serial or f"MT{2100 + seed % 250}X{seed % 100000:05}"
    adapter.system_image_guid = naming.card_guid(seed, 1)
    for number, port in enumerate(adapter.ports, 1):
        port.base_mac = naming.card_mac(seed, number)
        port.port_guid = naming.card_guid(seed, number)
