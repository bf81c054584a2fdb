"""The character device of mstflint's optional kernel driver, in userspace (CUSE): the fast way to an emulated
firmware.

The unmodified tools take ``/dev/<pci address>_mstconf`` when it is there (mtcr_ul/mtcr_ul_com.c) and then move up
to 256 bytes a call instead of 4 in three. A query of three settings is 480 register accesses: by this device 6 000
calls, 25 s in a guest on a busy machine, where the same query by way of ``config`` was not done in 280 s.

Structs and numbers: mstflint's kernel/mst.h and Linux' include/uapi/linux/fuse.h. ioctls of the driver read their
argument though their number says that they only write it, so each call is asked for twice (FUSE_IOCTL_RETRY).
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable

from hostlab import vsc
from hostlab.firmware import Card

_INIT, _OPEN, _RELEASE, _IOCTL, _INTERRUPT, _DESTROY = 4096, 14, 18, 39, 36, 38
_UNRESTRICTED, _RETRY = 1 << 0, 1 << 2
_HEAD, _ANSWER = struct.Struct("=IIQQIIIHH"), struct.Struct("=IiQ")
_IOCTL_IN, _IOCTL_OUT, _SPAN = struct.Struct("=QIIQII"), struct.Struct("=iIII"), struct.Struct("=QQ")
_OPEN_OUT = struct.Struct("=QII")
_INIT_OUT = struct.Struct("=IIIIIIII40x")
_MOST = 4096  # bytes of one transfer
_READ_SIZE = 1 << 17

_DWORD, _BLOCK, _PARAMS = struct.Struct("=III"), struct.Struct("=IIi256x"), struct.Struct("=10I")


def _number(direction: int, magic: int, count: int, size: int) -> int:
    """_IOC of include/uapi/asm-generic/ioctl.h; direction 1 writes, 2 reads."""
    return direction << 30 | size << 16 | magic << 8 | count


PARAMS = _number(2, 0xD0, 1, _PARAMS.size)
READ4, WRITE4 = _number(2, 0xD1, 1, _DWORD.size), _number(1, 0xD1, 2, _DWORD.size)
READ_BLOCK, WRITE_BLOCK = _number(2, 0xD2, 3, _BLOCK.size), _number(1, 0xD2, 4, _BLOCK.size)


class Driver:
    """The device of one card. Its gateway is its own: the tools' locks on the other one do not bind it."""

    def __init__(self, address: str, card: Card) -> None:
        domain, bus, rest = address.split(":")
        slot, function = rest.split(".")
        numbers = (int(domain, 16), int(bus, 16), int(slot, 16), int(function, 16))
        self.name = f"{address}_mstconf"
        self._gateway = vsc.Gateway(card)
        self._params = _PARAMS.pack(*numbers, 0, card.persona.device_id, 0x15B3, 1, 0x15B3, vsc.CAPABILITY)
        self._handlers: dict[int, tuple[int, int, Callable[[bytes], bytes]]] = {  # bytes in, bytes out, what to do
            PARAMS: (0, _PARAMS.size, lambda _: self._params),
            READ4: (_DWORD.size, _DWORD.size, self._read4),
            WRITE4: (_DWORD.size, 0, self._write4),
            READ_BLOCK: (_BLOCK.size, _BLOCK.size, self._read_block),
            WRITE_BLOCK: (_BLOCK.size, 0, self._write_block),
        }
        self._descriptor = -1

    def start(self) -> None:
        """The device is there soon after. Raises OSError when there is no CUSE (modprobe cuse)."""
        self._descriptor = os.open("/dev/cuse", os.O_RDWR | os.O_CLOEXEC)
        threading.Thread(target=self._serve, name=self.name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, _READ_SIZE)
            except OSError as problem:
                if problem.errno == errno.ENODEV:  # the device is taken away
                    return
                if problem.errno == errno.ENOENT:  # the caller did not wait
                    continue
                raise
            _, operation, unique, *_ = _HEAD.unpack_from(data)
            if operation == _INTERRUPT:
                continue
            failed, answer = self.answer(operation, data[_HEAD.size :])
            os.write(self._descriptor, _ANSWER.pack(_ANSWER.size + len(answer), -failed, unique) + answer)

    def answer(self, operation: int, body: bytes) -> tuple[int, bytes]:
        """(errno or 0, body of the reply) for one request of the kernel."""
        if operation == _IOCTL:
            return self._ioctl(body)
        if operation == _OPEN:
            return 0, _OPEN_OUT.pack(0, 0, 0)
        if operation == _RELEASE:
            return 0, b""
        if operation == _INIT:
            major, minor = struct.unpack_from("=II", body)
            head = _INIT_OUT.pack(major, minor, 0, _UNRESTRICTED, _MOST, _MOST, 0, 0)
            return 0, head + f"DEVNAME={self.name}\0".encode()
        return errno.ENOSYS, b""

    def _ioctl(self, body: bytes) -> tuple[int, bytes]:
        _, _, command, argument, given, wanted = _IOCTL_IN.unpack_from(body)
        if command not in self._handlers:
            return errno.ENOTTY, b""
        takes, gives, do = self._handlers[command]
        if (given, wanted) != (takes, gives):
            spans = b"".join(_SPAN.pack(argument, size) for size in (takes, gives) if size)
            return 0, _IOCTL_OUT.pack(0, _RETRY, int(takes > 0), int(gives > 0)) + spans
        return 0, _IOCTL_OUT.pack(0, 0, 0, 0) + do(body[_IOCTL_IN.size :])

    # -- what the driver does with the gateway

    def _load(self, offset: int) -> int:
        self._gateway.write(vsc.CAPABILITY + 16, struct.pack("<I", offset))
        return int.from_bytes(self._gateway.read(b"", vsc.CAPABILITY + 20, 4), "little")

    def _store(self, offset: int, value: int) -> None:
        self._gateway.write(vsc.CAPABILITY + 20, struct.pack("<I", value))
        self._gateway.write(vsc.CAPABILITY + 16, struct.pack("<I", offset | 1 << 31))

    def _choose(self, space: int) -> None:
        self._gateway.write(vsc.CAPABILITY + 4, struct.pack("<I", space))

    def _read4(self, data: bytes) -> bytes:
        space, offset, _ = _DWORD.unpack(data)
        self._choose(space)
        return _DWORD.pack(space, offset, self._load(offset))

    def _write4(self, data: bytes) -> bytes:
        space, offset, value = _DWORD.unpack(data)
        self._choose(space)
        self._store(offset, value)
        return b""

    def _read_block(self, data: bytes) -> bytes:
        space, offset, size = _BLOCK.unpack(data)
        self._choose(space)
        words = [self._load(offset + at) for at in range(0, min(size, 256), 4)]
        return struct.pack("=IIi", space, offset, size) + struct.pack(f"={len(words)}I", *words).ljust(256, b"\0")

    def _write_block(self, data: bytes) -> bytes:
        space, offset, size = _BLOCK.unpack(data)
        self._choose(space)
        for at in range(0, min(size, 256), 4):
            self._store(offset + at, struct.unpack_from("=I", data, 12 + at)[0])
        return b""
