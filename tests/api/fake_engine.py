"""A node engine of a few hundred lines: enough to test the binding's two sides without the real one.

It speaks the frames of ``capi/wire.h`` over sockets, keeps objects in a dict and the arena in a memfd, and never frees anything.
Tests read what arrived from `Peer.frames` and answer by hand, or set `FakeEngine.run` to have submitted tasks executed.
"""

from __future__ import annotations

import array
import mmap
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import msgpack

HDR = struct.Struct("<IHHQ")
OID = struct.Struct("<QII")
VALUE = struct.Struct("<IHHQQII")
SUBMIT = struct.Struct("<IIQQIIII")
EXEC = struct.Struct("<IIQQIIIIII")
RESULT = struct.Struct("<IIQII")

(
    HELLO,
    TEMPLATE,
    SUBMIT_,
    PUT,
    CREATE,
    SEAL,
    ABORT,
    ADDREF,
    RELEASE,
    SUBSCRIBE,
    PIN,
    UNPIN,
    CALL,
    CANCEL,
    KILL,
    RESULT_,
    ITEM,
    BLOCKED,
    UNBLOCKED,
    RETURN,
    CONSUMED,
    GOODBYE,
) = range(1, 23)
WELCOME, OBJECT, CREATED, REPLY, TEMPLATE_DEF, EXEC_, CANCEL_EXEC, RECALL, RESUME, LOG, EXIT, WAIT_ERROR = range(64, 76)
INLINE, ARENA, SYSERR = 1, 2, 3
F_FORCE, F_ACTOR_CREATE, F_ACTOR_CALL, F_STREAMING, F_CONTEXT = 1, 16, 32, 64, 128
INCARNATION = 0x1122334455667788
ARENA_SIZE = 256 << 20


def pad(data: bytes) -> bytes:
    """Pad to 8 bytes."""
    return data + bytes(-len(data) % 8)


def version() -> str:
    """The version that all parts must have."""
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "VERSION"), encoding="utf-8") as f:
        return f.read().strip()


class Value:
    """One rg_value with its parts."""

    def __init__(self, index: int, kind: int, is_error: int, data: bytes, refs: list[tuple[int, int]], length: int = 0, offset: int = (1 << 64) - 1) -> None:
        self.index, self.kind, self.is_error, self.data, self.refs = index, kind, is_error, data, refs
        self.length = length or len(data)
        self.offset = offset

    @classmethod
    def parse(cls, p: bytes, at: int = 0) -> tuple[Value, int]:
        """Read one and say where it ends."""
        index, kind, is_error, length, offset, nrefs, _ = VALUE.unpack_from(p, at)
        at += VALUE.size
        refs = [OID.unpack_from(p, at + OID.size * i)[:2] for i in range(nrefs)]
        at += OID.size * nrefs
        data = b""
        if kind != ARENA:
            data = p[at : at + length]
            at += length + (-length % 8)
        return cls(index, kind, is_error, data, refs, length, offset), at

    def encode(self) -> bytes:
        """Write it."""
        head = VALUE.pack(self.index, self.kind, self.is_error, self.length, self.offset, len(self.refs), 0)
        return head + b"".join(OID.pack(t, i, 0) for t, i in self.refs) + (pad(self.data) if self.kind != ARENA else b"")


class Frame:
    """One frame."""

    def __init__(self, kind: int, flags: int, id: int, payload: bytes) -> None:
        self.kind, self.flags, self.id, self.payload = kind, flags, id, payload

    def oids(self) -> list[tuple[int, int]]:
        """The payload as references."""
        return [OID.unpack_from(self.payload, at)[:2] for at in range(0, len(self.payload), OID.size)]

    def result(self) -> tuple[int, list[Value]]:
        """The payload of RG_RESULT: status and values."""
        status, n, _, _, _ = RESULT.unpack_from(self.payload)
        at, values = RESULT.size, []
        for _ in range(n):
            value, at = Value.parse(self.payload, at)
            values.append(value)
        return status, values

    def __repr__(self) -> str:
        return f"Frame({self.kind}, flags={self.flags}, id={self.id:#x}, {len(self.payload)} bytes)"


class Submit:
    """The payload of RG_SUBMIT."""

    def __init__(self, frame: Frame) -> None:
        p = frame.payload
        self.template, self.nreturns, self.actor, self.parent, ntop, nnested, length, _ = SUBMIT.unpack_from(p)
        at = SUBMIT.size
        oids = [OID.unpack_from(p, at + OID.size * i)[:2] for i in range(ntop + nnested)]
        self.top, self.nested = oids[:ntop], oids[ntop:]
        at += OID.size * len(oids)
        self.args = p[at : at + length]
        self.id, self.flags = frame.id, frame.flags


class Peer:
    """The engine's end of one connection."""

    def __init__(self, engine: FakeEngine, sock: socket.socket) -> None:
        self.engine, self.sock = engine, sock
        self.frames: list[Frame] = []
        self.changed = threading.Condition()
        self.closed = False
        self.templates: dict[int, dict[str, Any]] = {}
        self.subscribed: set[tuple[int, int]] = set()
        self.thread = threading.Thread(target=self._read, daemon=True)

    def send(self, kind: int, id: int = 0, payload: bytes = b"", flags: int = 0) -> None:
        """Write one frame."""
        payload = pad(payload)
        self.sock.sendall(HDR.pack(len(payload), kind, flags, id) + payload)

    def welcome(self, **more: Any) -> None:
        """Greet, with the arena's descriptor for drivers."""
        fields = {
            "version": version(), "peer": 1, "prefix": self.engine.next_prefix(), "node_id": "00" * 28, "incarnation": INCARNATION, "job": 1,
            "namespace": "", "session_dir": "", "socket": self.engine.path, "node_ip": "127.0.0.1", "arena_size": ARENA_SIZE, "arena_fd": -1,
            "role": "driver", **more,
        }  # fmt: skip
        payload = pad(msgpack.packb(fields))
        data = HDR.pack(len(payload), WELCOME, 0, 0) + payload
        self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.engine.arena_fd]))])

    def exec(
        self,
        id: int,
        template: int,
        args: bytes = b"",
        *,
        flags: int = 0,
        nreturns: int = 1,
        actor: int = 0,
        top: list[tuple[tuple[int, int], Value]] | None = None,
        context: dict[str, Any] | None = None,
        retries_left: int = 0,
        attempt: int = 0,
    ) -> None:
        """Send a task."""
        blob = msgpack.packb(context) if context else b""
        head = EXEC.pack(template, nreturns, actor, 0, len(top or []), attempt, len(args), len(blob), retries_left, 0)
        tops = b"".join(OID.pack(*oid, 0) + value.encode() for oid, value in top or [])
        self.send(EXEC_, id, head + tops + pad(args) + blob, flags | (F_CONTEXT if blob else 0))

    def wait_for(self, kind: int, id: int | None = None, timeout: float = 10) -> Frame:
        """Take the first frame of this kind (and id) that arrived, waiting for it."""

        def look() -> Frame | None:
            return next((f for f in self.frames if f.kind == kind and (id is None or f.id == id)), None)

        with self.changed:
            if not self.changed.wait_for(lambda: look() is not None or self.closed, timeout):
                raise TimeoutError(f"no frame {kind} (id {id}); there were {self.frames}")
            frame = look()
            if frame is None:
                raise ConnectionError(f"the connection ended without frame {kind}; there were {self.frames}")
            self.frames.remove(frame)
            return frame

    def _read(self) -> None:
        data = b""
        try:
            while chunk := self.sock.recv(1 << 20):
                data += chunk
                at = 0
                while len(data) - at >= HDR.size:
                    length, kind, flags, id = HDR.unpack_from(data, at)
                    if len(data) - at - HDR.size < length:
                        break
                    self._on(Frame(kind, flags, id, data[at + HDR.size : at + HDR.size + length]))
                    at += HDR.size + length
                data = data[at:]
        except OSError:  # closed by the test
            pass
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def _on(self, frame: Frame) -> None:
        self.engine.on(self, frame)
        with self.changed:
            self.frames.append(frame)
            self.changed.notify_all()


class FakeEngine:
    """Objects, the arena, and who asked for what."""

    def __init__(self) -> None:
        self.dir = tempfile.mkdtemp(prefix="raygo-fake-")
        self.path = os.path.join(self.dir, "sock")
        self.arena_fd = os.memfd_create("arena")
        os.ftruncate(self.arena_fd, ARENA_SIZE)
        self.arena = mmap.mmap(self.arena_fd, ARENA_SIZE)
        self.top = 0
        self.prefix = 0
        self.objects: dict[tuple[int, int], Value] = {}
        self.created: dict[tuple[int, int], tuple[int, int]] = {}
        self.calls: dict[str, Callable[[Any], Any]] = {"prefix.next": lambda _: self.next_prefix()}
        self.peers: list[Peer] = []
        self.lock = threading.RLock()
        self.run: Callable[[Peer, Submit], list[bytes] | None] | None = None
        self.max_object = ARENA_SIZE
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.changed = threading.Condition(self.lock)
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def next_prefix(self) -> int:
        """A fresh number prefix."""
        self.prefix += 1
        return self.prefix

    def close(self) -> None:
        """End all connections."""
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:  # nobody waits
            pass
        self.thread.join(5)
        self.listener.close()
        for peer in self.peers:
            try:
                peer.sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # the other side was first
                pass
            peer.thread.join(5)
            peer.sock.close()
        self.arena.close()
        os.close(self.arena_fd)
        os.unlink(self.path)
        os.rmdir(self.dir)

    def adopt(self) -> tuple[Peer, int]:
        """Make a worker's connection: the engine's end, and the worker's descriptor."""
        ours, theirs = socket.socketpair()
        peer = Peer(self, ours)
        self.peers.append(peer)
        peer.welcome(role="worker", worker=len(self.peers))
        peer.thread.start()
        return peer, theirs.detach()

    def peer(self, n: int = 0) -> Peer:
        """The n-th connection, waiting for it."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.peers) > n, 10)
            return self.peers[n]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:  # closed
                return
            peer = Peer(self, sock)
            peer.thread.start()

    def store(self, oid: tuple[int, int], value: Value) -> None:
        """An object is there: tell those who asked."""
        with self.lock:
            self.objects[oid] = value
            for peer in self.peers:
                if oid in peer.subscribed:
                    self.push(peer, oid, False)

    def push(self, peer: Peer, oid: tuple[int, int], place: bool) -> None:
        """Send RG_OBJECT."""
        v = self.objects[oid]
        shown = Value(oid[1], v.kind, v.is_error, v.data, v.refs, v.length, v.offset if place else (1 << 64) - 1)
        peer.send(OBJECT, oid[0], shown.encode())

    def on(self, peer: Peer, frame: Frame) -> None:
        """Do what a frame asks for."""
        with self.lock:
            handler = getattr(self, f"_on_{frame.kind}", None)
            if handler:
                handler(peer, frame)

    def _on_1(self, peer: Peer, frame: Frame) -> None:  # HELLO
        self.peers.append(peer)
        self.changed.notify_all()
        peer.welcome()

    def _on_2(self, peer: Peer, frame: Frame) -> None:  # TEMPLATE
        peer.templates[frame.id] = _first(frame.payload)

    def _on_3(self, peer: Peer, frame: Frame) -> None:  # SUBMIT
        submit = Submit(frame)
        first = 0 if frame.flags & F_ACTOR_CREATE else 1
        for i in range(max(submit.nreturns, 1)):
            peer.subscribed.add((frame.id, first + i))
        if self.run is not None:
            for i, blob in enumerate(self.run(peer, submit) or []):
                self.store((frame.id, 1 + i), Value(1 + i, INLINE, blob[:1] == b"\x10", blob, []))

    def _on_4(self, peer: Peer, frame: Frame) -> None:  # PUT
        value, _ = Value.parse(frame.payload)
        self.store((frame.id, value.index), value)

    def _on_5(self, peer: Peer, frame: Frame) -> None:  # CREATE
        index, _, size = struct.unpack("<IIQ", frame.payload)
        if size > self.max_object:
            text = f"an object of {size} bytes does not fit into a store of {self.max_object}".encode()
            peer.send(CREATED, frame.id, struct.pack("<IIQIIIIII", index, 19, 0, len(text), 0, 0, 0, 0, 0) + text)
            return
        at = self.top
        self.top += size + (-size % 4096)
        self.created[frame.id, index] = at, size
        peer.send(CREATED, frame.id, struct.pack("<IIQIIIIII", index, 0, at, 0, 0, 0, 0, 0, 0))

    def _on_6(self, peer: Peer, frame: Frame) -> None:  # SEAL
        value, _ = Value.parse(frame.payload)
        value.offset = self.created[frame.id, value.index][0]
        self.store((frame.id, value.index), value)

    def _on_10(self, peer: Peer, frame: Frame) -> None:  # SUBSCRIBE
        for oid in frame.oids():
            peer.subscribed.add(oid)
            if oid in self.objects:
                self.push(peer, oid, False)

    def _on_11(self, peer: Peer, frame: Frame) -> None:  # PIN
        for oid in frame.oids():
            self.push(peer, oid, True)

    def _on_13(self, peer: Peer, frame: Frame) -> None:  # CALL
        method, argument = _first(frame.payload)
        function = self.calls.get(method)
        if function is None:
            peer.send(REPLY, frame.id, msgpack.packb(f"there is no method {method}"), flags=4)
        else:
            peer.send(REPLY, frame.id, msgpack.packb(function(argument)))

    def _on_16(self, peer: Peer, frame: Frame) -> None:  # RESULT
        for value in frame.result()[1]:
            if value.kind == ARENA:
                value.offset = self.created[frame.id, value.index][0]
            self.store((frame.id, value.index), value)

    def _on_17(self, peer: Peer, frame: Frame) -> None:  # ITEM
        value, _ = Value.parse(frame.payload)
        if value.kind == ARENA:
            value.offset = self.created[frame.id, value.index][0]
        self.store((frame.id, value.index), value)


def _first(data: bytes) -> Any:
    """The msgpack value that begins padded data."""
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(data)
    return unpacker.unpack()
