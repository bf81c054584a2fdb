"""The emulated firmware of one card: settings in three banks, kept in a file, and what a reset does to them.

Banks: *default* (the persona), *current* (what runs), *next* (what the next reset makes current). mstconfig's
set goes to next; only a reset of the card (host restart, mstfwreset) copies next to current. The file survives
restarts of host and lab, as flash memory does. Registers, through which tools reach this, are in
``registers.py``.

Faults are data: names and values in ``Card.faults``, described in ``FAULTS``; the code asks for them where they
bite.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostlab import tlvdb
from hostlab.personas import Persona
from linkwright.model.errors import InvalidInput
from linkwright.model.values import LinkMode

LINK_TYPE_TLV = "nv_vpi_link_type"
LINK_TYPE = "default_link_type"
LINK_TYPE_VALUES = {LinkMode.INFINIBAND: 1, LinkMode.ROCE: 2}
PCI_TLV = "nv_global_pci_conf"
PCI_CAPABILITY_TLV = "nv_global_pci_cap"
HCA_TLV = "nv_hca_conf"
CPU_TLV = "nv_internal_cpu_conf"
ROCE_DISABLED = 1  # ROCE_CONTROL
# Every ConnectX-4 and later answers these; others come from the persona's ``settings``.
COMMON_TLVS = (
    PCI_TLV,
    PCI_CAPABILITY_TLV,
    HCA_TLV,
    "nv_pci_conf",
    "nv_roce_cc",
    "nv_roce_cc_ecn",
    "nv_keep_link_up",
)

FAULTS = {
    "write_refused": "list of settings (LINK_TYPE_P2, or a TLV's name) whose write the firmware refuses",
    "busy": "number of register accesses that answer 'busy' before the next one works",
    "power_cycle_text": "true: the firmware refuses to arm a warm reboot, so the tool asks for a power cycle",
    "current_never_follows": "true: no reset makes the next values current",
    "restart_without_reset": "true: a host restart does not reset the card (uptime goes on, current stays)",
    "reset_unsupported": "true: mstfwreset is not offered",
    "stuck_semaphore": "true: somebody left the gateway's semaphore taken",
    "unreadable": "true: the gateway answers all ones, the tool cannot tell what card it is",
    "current_unreadable": "true: only next-boot values can be read",
    "lockdown": "true: the kernel refuses writes to config space",
    "slow": "seconds that each register access takes",
}


class Card:
    """``state_file`` is read when it belongs to this persona, else the card starts as delivered.

    ``reset_wanted`` is called, without ``lock``, when a tool told the firmware to reset now; whoever owns the
    card's functions then takes them away, calls ``reset_done`` and brings them back (``Machine.reset``).
    """

    def __init__(self, persona: Persona, state_file: Path) -> None:
        self.persona = persona
        self.lock = threading.Lock()
        self.faults: dict[str, Any] = {}
        self.reset_wanted: Callable[[], None] = self.reset_done
        self.reset_allowed: Callable[[], bool] = lambda: True
        self.on_reset: list[Callable[[], None]] = []  # the gateways' semaphores are cleared by a reset
        self._file = state_file
        self._db = tlvdb.database()
        self._default = self._factory()
        self._current: dict[int, bytes] = {}
        self._next: dict[int, bytes] = {}
        self._running_since = time.time()
        self._load()

    # --- what runs

    def mode(self, port: int) -> LinkMode:
        """Mode of the port in the running firmware; a port without LINK_TYPE has its persona's."""
        if port not in self.persona.changeable:
            return self.persona.link_modes[port - 1]
        value = self.setting(LINK_TYPE_TLV, LINK_TYPE, port)
        return LinkMode.INFINIBAND if value == LINK_TYPE_VALUES[LinkMode.INFINIBAND] else LinkMode.ROCE

    def vf_limit(self, port: int) -> int:
        """sriov_totalvfs of each PF: NUM_OF_VFS, 0 when SRIOV_EN is off."""
        return self.setting(PCI_TLV, "total_vfs") if self.setting(PCI_TLV, "sriov_en") else 0

    def roce_enabled(self, port: int) -> bool:
        return self.setting(HCA_TLV, "roce_ctrl") != ROCE_DISABLED

    @property
    def dpu(self) -> bool:
        """A BlueField whose own processors run the card (DPU mode): it runs on while the host restarts."""
        if self._db.by_name[CPU_TLV].type_word() not in self._default:
            return False
        return self.setting(CPU_TLV, "internal_cpu_model") == 1 and not self.setting(CPU_TLV, "offload_engine")

    def setting(self, tlv: str, field: str, port: int = 0, bank: str = "current") -> int:
        """One number of a TLV; KeyError for a TLV or field that the card does not have."""
        rule = self._db.by_name[tlv]
        return rule.fields[field].get(self.read(rule.type_word(port), bank))

    def uptime_s(self) -> int:
        """Seconds since the firmware started; goes on over host restarts that do not reset the card."""
        return max(0, int(time.time() - self._running_since))

    # --- settings by type word, under ``lock`` when a tool is the caller

    def rule(self, word: int) -> tlvdb.Tlv | None:
        """The rule of a TLV that this card has, else None. Class 3 and 7 words name a host and function: any."""
        rule = self._db.of_word(word)
        return rule if rule is not None and self._key(word, rule) in self._default else None

    def read(self, word: int, bank: str) -> bytes:
        rule = self._db.of_word(word)
        assert rule is not None
        key = self._key(word, rule)
        values = {"default": {}, "current": self._current, "next": self._next}[bank]
        return values.get(key, self._default[key])

    def write(self, word: int, data: bytes) -> None:
        """Set a TLV for the next boot."""
        rule = self._db.of_word(word)
        assert rule is not None
        self._next[self._key(word, rule)] = data[: rule.size].ljust(rule.size, b"\0")
        self._save()

    def set_next(self, tlv: str, fields: dict[str, int], port: int = 0) -> None:
        """Set some fields of a TLV for the next boot, by the names of the database."""
        rule = self._db.by_name[tlv]
        word = rule.type_word(port)
        with self.lock:
            self.write(word, rule.put(self.read(word, "next"), fields))

    def invalidate(self, word: int | None) -> None:
        """Back to the default at the next boot: one TLV, or all (None)."""
        if word is None:
            self._next = {}
        elif (rule := self.rule(word)) is not None:
            self._next.pop(self._key(word, rule), None)
        self._save()

    def stored(self) -> list[tuple[int, bytes]]:
        """Type word and next value of every setting that may be written, as a backup shows them."""
        words = (word for word, _ in sorted(self._default.items()))
        rules = ((word, self._db.of_word(word)) for word in words)
        return [(word, self.read(word, "next")) for word, rule in rules if rule and not rule.capability]

    # --- resets

    def host_restarted(self) -> None:
        """The host went through a restart, which resets the card unless a fault says otherwise."""
        if not self.faults.get("restart_without_reset") and not self.dpu:
            self.reset_done()

    def reset_done(self) -> None:
        """The firmware starts anew: next becomes current, uptime 0, semaphores free."""
        with self.lock:
            if not self.faults.get("current_never_follows"):
                self._current = dict(self._next)
            self._running_since = time.time()
            self._save()
        for clear in self.on_reset:
            clear()

    def factory_fresh(self) -> None:
        """Another card of this kind: nothing was ever set in it."""
        with self.lock:
            self._current, self._next, self._running_since = {}, {}, time.time()
            self._save()

    # --- faults

    def set_fault(self, name: str, value: Any = True) -> None:
        """``value`` false or 0 takes the fault away. InvalidInput ``unknown-fault``."""
        if name not in FAULTS:
            raise InvalidInput(
                f"there is no fault {name!r}",
                code="unknown-fault",
                where=name,
                next_step=f"Known faults: {', '.join(FAULTS)}.",
            )
        if value:
            self.faults[name] = value
        else:
            self.faults.pop(name, None)

    def refuses(self, rule: tlvdb.Tlv, word: int) -> bool:
        """Is the write of this TLV (of this port) refused by the fault ``write_refused``?"""
        refused = self.faults.get("write_refused") or ()
        names = {rule.name, f"{rule.name}:{tlvdb.port_of(word)}"}
        if rule.name == LINK_TYPE_TLV:
            names.add(f"LINK_TYPE_P{tlvdb.port_of(word)}")
        return not names.isdisjoint([refused] if isinstance(refused, str) else refused)

    # --- inside

    def _key(self, word: int, rule: tlvdb.Tlv) -> int:
        return rule.type_word(tlvdb.port_of(word))

    def _factory(self) -> dict[int, bytes]:
        persona, bank = self.persona, {}
        values: dict[str, dict[str, int]] = {name: {} for name in COMMON_TLVS}
        values[PCI_CAPABILITY_TLV] = {
            "sriov_support": 1,
            "max_vfs_per_pf_valid": 1,
            "max_vfs_per_pf": persona.max_vfs,
            "max_num_pfs": persona.ports,
        }
        values[PCI_TLV] = {
            "sriov_valid": 1,
            "sriov_en": int(persona.sriov_enabled),
            "total_vfs": persona.num_vfs,
            "num_pfs_valid": 1,
            "num_pfs": persona.ports,
        }
        for tlv, fields in persona.settings.items():
            values.setdefault(tlv, {}).update(fields)
        for name, fields in values.items():
            rule = self._db.by_name[name]
            for port in range(1, persona.ports + 1) if rule.kind == tlvdb.PORT_CLASS else (0,):
                bank[rule.type_word(port)] = rule.put(bytes(rule.size), fields)
        rule = self._db.by_name[LINK_TYPE_TLV]
        for port in persona.changeable:
            link_type = LINK_TYPE_VALUES[persona.link_modes[port - 1]]
            bank[rule.type_word(port)] = rule.put(bytes(rule.size), {LINK_TYPE: link_type})
        return bank

    def _load(self) -> None:
        try:
            state = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        if state["persona"] != self.persona.name:  # the card in this slot was swapped
            return
        self._current = {int(word, 16): bytes.fromhex(data) for word, data in state["current"].items()}
        self._next = {int(word, 16): bytes.fromhex(data) for word, data in state["next"].items()}
        self._running_since = state["running_since"]

    def _save(self) -> None:
        state = {
            "persona": self.persona.name,
            "running_since": self._running_since,
            "current": {f"{word:#x}": data.hex() for word, data in self._current.items()},
            "next": {f"{word:#x}": data.hex() for word, data in self._next.items()},
        }
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(state, indent=1), encoding="utf-8")
        fresh.replace(self._file)
