"""What people write: LinkPolicy, Target, HostConfig. msgspec structs; the reader with lines is in load.py.

Field names on the wire are camelCase (``rename="camel"``), in Python snake_case. Unknown fields are errors.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from .values import LinkMode

API_VERSION = "linkwright.dev/v1alpha1"


class _Doc(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class Metadata(_Doc, frozen=True, kw_only=True):
    name: str
    labels: dict[str, str] = {}


class NicSelector(_Doc, frozen=True, kw_only=True):
    """All given fields must match; any value of a field may."""

    pci_addresses: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    part_numbers: tuple[str, ...] = ()
    psids: tuple[str, ...] = ()
    serial_numbers: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = field(default=(), name="deviceIDs")
    fabrics: tuple[str, ...] = ()


class Functions(_Doc, frozen=True, kw_only=True):
    assign: Literal["Auto", "PF", "VF"] = "Auto"
    num_vfs: int | None = None


class Window(_Doc, frozen=True, kw_only=True):
    schedule: str
    duration: str
    time_zone: str = "UTC"


class Activation(_Doc, frozen=True, kw_only=True):
    method: Literal["Auto", "Reboot", "FirmwareReset", "External"] = "Auto"
    approval: Literal["Manual", "Auto"] = "Manual"
    drain: Literal["Detach", "Wait"] = "Detach"
    timeout: str = "10m"
    windows: tuple[Window, ...] = ()
    on_failure: Literal["Hold", "Rollback"] = "Hold"


class Roce(_Doc, frozen=True, kw_only=True):
    mtu: int | None = None
    trust: Literal["DSCP", "PCP"] | None = None
    pfc: tuple[int, ...] = ()
    traffic_class: int | None = None
    vlan: int | None = None


class PKey(_Doc, frozen=True, kw_only=True):
    value: str
    membership: Literal["Full", "Limited"] = "Full"


class Infiniband(_Doc, frozen=True, kw_only=True):
    pkey: PKey | None = None


class LinkPolicySpec(_Doc, frozen=True, kw_only=True):
    nic_selector: NicSelector
    link_mode: LinkMode
    node_selector: dict[str, Any] | None = None
    functions: Functions = Functions()
    activation: Activation = Activation()
    roce: Roce | None = None
    infiniband: Infiniband | None = None
    on_delete: Literal["Keep", "Restore"] = "Keep"


class LinkPolicy(_Doc, frozen=True, kw_only=True, tag_field="kind", tag="LinkPolicy"):
    metadata: Metadata
    spec: LinkPolicySpec
    api_version: str = API_VERSION

    @property
    def name(self) -> str:
        return self.metadata.name


class Container(_Doc, frozen=True, kw_only=True):
    """Either ``netns`` (a path), or a runtime's container ``name``."""

    name: str | None = None
    runtime: Literal["podman"] = "podman"
    netns: str | None = None


class Interface(_Doc, frozen=True, kw_only=True):
    """One interface of a target. ``routes`` entries: ``{to: 10.0.0.0/8, via: 10.9.0.254}``."""

    name: str
    fabric: str | None = None
    rdma_name: str | None = None
    addresses: tuple[str, ...] = ()
    routes: tuple[dict[str, str], ...] = ()
    mtu: int | None = None
    mac: str | None = None


class TargetSpec(_Doc, frozen=True, kw_only=True):
    policy: str
    interfaces: tuple[Interface, ...]
    container: Container | UnsetType = UNSET
    group: str | None = None


class Target(_Doc, frozen=True, kw_only=True, tag_field="kind", tag="Target"):
    metadata: Metadata
    spec: TargetSpec
    api_version: str = API_VERSION

    @property
    def name(self) -> str:
        return self.metadata.name


class Allow(_Doc, frozen=True, kw_only=True):
    firmware: bool = False
    functions: bool = False
    reset: bool = False
    restart: bool = False


class Fabric(_Doc, frozen=True, kw_only=True):
    link_modes: tuple[LinkMode, ...]
    ports: tuple[str, ...] = ()


class ResetProven(_Doc, frozen=True, kw_only=True):
    psid: str
    firmware: str


class HostConfigSpec(_Doc, frozen=True, kw_only=True):
    allow: Allow = Allow()
    protect: tuple[str, ...] = ()
    allow_own_traffic: tuple[str, ...] = ()  # ports with the host's own traffic that may be worked on all the same
    take_over: tuple[str, ...] = ()  # other tools whose cards are worked on all the same (inventory.OWNERS)
    fabrics: dict[str, Fabric] = {}
    reset_proven: tuple[ResetProven, ...] = ()
    subnet_manager_timeout: str = "60s"
    link_timeout: str = "60s"


class HostConfig(_Doc, frozen=True, kw_only=True, tag_field="kind", tag="HostConfig"):
    """/etc/linkwright/host.yaml. A host without the file gets the defaults: observe only."""

    spec: HostConfigSpec = HostConfigSpec()
    metadata: Metadata = Metadata(name="host")
    api_version: str = API_VERSION


Document = LinkPolicy | Target | HostConfig
