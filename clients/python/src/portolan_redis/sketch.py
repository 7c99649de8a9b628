"""What one window has seen: answers by server, uses by key. Counted in arrays, packed for the wire.

Memory is bounded whatever the application does. Keys with many uses are kept one by one, the others
are added up by slot; past `SERVERS_MAX` servers are not counted. Where quantiles are asked for, a DDSketch
(Masson, Rim, Lee, VLDB 2019) is kept of each of the first `SPREADS_MAX` servers that answer in a window.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Sequence
from random import random

SLOTS = 16_384
#: Places of the table of keys; a power of two.
PLACES = 4_096
#: Keys that are kept one by one. Past that the lighter half is added up by slot.
KEYS_MAX = PLACES * 3 // 4
SERVERS_MAX = 4_096
#: Servers whose latencies are kept as a DDSketch, where that is asked for.
SPREADS_MAX = 64
#: Buckets that are sent of one server: the lowest beyond are added to the lowest that is sent.
SENT_BUCKETS_MAX = 256
#: Uses a window that are looked at; beyond, one in two, one in four …, each counted as that many.
LOOKS_MAX = 10_000

_U32_MAX = (1 << 32) - 1
#: The largest prime below 2^64.
_PRIME = (1 << 64) - 59
#: Spreads ids over the table: those of similar keys are similar.
_SPREAD = 0x9E37_79B9_7F4A_7C15
#: The logarithm of γ = 1.02 / 0.98: quantiles are right within 2 %.
_LOG_GAMMA = math.log(1.02 / 0.98)
#: Buckets of 10 µs and of a minute.
_LOWEST, _HIGHEST = -115, 275
_BUCKET = struct.Struct("<hI")
_SLOT = struct.Struct("<HH")
_KEY = struct.Struct("<QII")
_PAIR = struct.Struct("<II")


def key_id(key: bytes) -> int:
    """The id of a key, the same in all clients: a byte 1 and the key's bytes, as one big-endian number,
    modulo the largest 64-bit prime. One operation here, a loop of additions elsewhere."""
    return int.from_bytes(b"\x01" + key, "big") % _PRIME


def pack(
    client: str,
    duration_ms: int,
    server_count: int,
    servers: Iterable[tuple[str, int, int]],
    slot_count: int,
    key_count: int,
    uses: Iterable[tuple[int, int, int, int]],
    spreads: Sequence[tuple[str, Sequence[tuple[int, int]]]] | None = None,
) -> bytearray:
    """A sketch as `portolan place` reads it: of servers (name, answers, sum of µs), of keys (slot, id,
    uses, bytes), those of one slot behind each other. With spreads (name, buckets of index and count,
    ascending) it is of version 2."""
    name = client.encode()
    magic = b"PSK1" if spreads is None else b"PSK2"
    out = bytearray(magic + struct.pack("<IB", duration_ms, len(name)) + name)
    out += struct.pack("<H", server_count)
    for address, answers, sum_us in servers:
        text = address.encode()
        out += bytes((len(text),)) + text + _PAIR.pack(answers, sum_us)
    head = out + struct.pack("<H", slot_count)
    at = len(head)
    out = bytearray(at + slot_count * _SLOT.size + key_count * _KEY.size)
    out[:at] = head
    del head
    slot_at, last, keys = at, -1, 0
    for slot, id, times, size in uses:
        if slot != last:
            slot_at, last, keys = at, slot, 0
            at += _SLOT.size
        keys += 1
        _SLOT.pack_into(out, slot_at, slot, keys)
        _KEY.pack_into(out, at, id, times, size)
        at += _KEY.size
    if spreads is not None:
        out += struct.pack("<H", len(spreads))
        for address, buckets in spreads:
            text = address.encode()
            out += bytes((len(text),)) + text + struct.pack("<H", len(buckets))
            for bucket in buckets:
                out += _BUCKET.pack(*bucket)
    return out


def _zeros(kind: str, count: int) -> array[int]:
    return array(kind, bytes(count * array(kind).itemsize))


class Sketch:
    """Counts. Calls must not overlap."""

    def __init__(self, client: str, has_spreads: bool = False) -> None:
        self.client = client
        #: By the place of a server; `None`: not asked for.
        self._spreads: dict[int, array[int]] | None = {} if has_spreads else None
        self.names: list[str] = []
        self._answers = array("I")
        self._sums_us = array("I")
        self._ids = _zeros("Q", PLACES)
        self._uses = _zeros("I", PLACES)
        self._sizes = _zeros("I", PLACES)
        self._slots = _zeros("H", PLACES)
        self._keys = 0
        # Of the keys that are not kept one by one.
        self._rest_uses = _zeros("I", SLOTS)
        self._rest_sizes = _zeros("I", SLOTS)
        #: One in so many uses is looked at.
        self.weight = 1
        self._looks = 0

    def server(self, name: str) -> int:
        """The place of a server; -1 if there are too many. It is the server's as long as `names` has it
        there: with all places taken, a server without answers in this window loses its."""
        if name in self.names:
            return self.names.index(name)
        if len(name) > 255:
            return -1
        if len(self.names) < SERVERS_MAX:
            self.names.append(name)
            self._answers.append(0)
            self._sums_us.append(0)
            return len(self.names) - 1
        try:
            at = self._answers.index(0)
        except ValueError:
            return -1
        self.names[at] = name
        return at

    def answered(self, server: int, us: int) -> None:
        """A server has answered after so many microseconds."""
        answers, sums_us = self._answers, self._sums_us
        if sums_us[server] + us <= _U32_MAX:
            answers[server] += 1
            sums_us[server] += us
            if self._spreads is not None:
                self._vary(self._spreads, server, us)

    def _vary(self, spreads: dict[int, array[int]], server: int, us: int) -> None:
        counts = spreads.get(server)
        if counts is None:
            if len(spreads) == SPREADS_MAX:
                return
            counts = spreads[server] = _zeros("I", _HIGHEST - _LOWEST + 1)
        bucket = math.ceil(math.log(max(us, 1) / 1_000) / _LOG_GAMMA)
        counts[min(max(bucket, _LOWEST), _HIGHEST) - _LOWEST] += 1

    def _sent_spreads(self) -> list[tuple[str, list[tuple[int, int]]]] | None:
        if self._spreads is None:
            return None
        sent = []
        for server, counts in self._spreads.items():
            buckets = [(at + _LOWEST, count) for at, count in enumerate(counts) if count]
            beyond = max(len(buckets) - SENT_BUCKETS_MAX, 0)
            if beyond:
                low, count = buckets[beyond]
                buckets[beyond] = (low, count + sum(count for _, count in buckets[:beyond]))
            sent.append((self.names[server], buckets[beyond:]))
        return sent

    def answers(self, server: int) -> int:
        """How often a server has answered in this window."""
        return self._answers[server]

    def used(self, slot: int, id: int, size: int) -> int:
        """A key was used, `weight` times; its value has at least so many bytes. After so many more uses
        the next one shall be counted."""
        self._looks += 1
        if self._looks > LOOKS_MAX:
            self._looks = LOOKS_MAX // 2
            self.weight *= 2
        self._add(slot, id, self.weight, size)
        # At random, or a workload with a period would show one of its keys only.
        return 1 if self.weight == 1 else int(random() * (2 * self.weight - 1)) + 1

    def _add(self, slot: int, id: int, times: int, size: int) -> None:
        uses, ids = self._uses, self._ids
        at = ((id * _SPREAD) >> 51) & (PLACES - 1)
        while uses[at] and (ids[at] != id or self._slots[at] != slot):
            at = (at + 1) & (PLACES - 1)
        if not uses[at]:
            if self._keys == KEYS_MAX:
                self._shrink()
                return self._add(slot, id, times, size)
            self._keys += 1
            ids[at] = id
            self._slots[at] = slot
            self._sizes[at] = 0
        uses[at] = min(uses[at] + times, _U32_MAX)
        if size > self._sizes[at]:
            self._sizes[at] = min(size, _U32_MAX)

    def _shrink(self) -> None:
        """Adds the lighter half of the keys up by slot."""
        least = sorted(times for times in self._uses if times)[self._keys // 2]
        kept = []
        for at, times in enumerate(self._uses):
            if not times:
                continue
            slot, size = self._slots[at], self._sizes[at]
            if times > least:
                kept.append((slot, self._ids[at], times, size))
            else:
                self._rest_uses[slot] = min(self._rest_uses[slot] + times, _U32_MAX)
                self._rest_sizes[slot] = max(self._rest_sizes[slot], size)
        self._uses = _zeros("I", PLACES)
        self._keys = 0
        for entry in kept:
            self._add(*entry)

    def take(self, duration_ms: int) -> bytearray:
        """All that was counted, packed; the next window begins."""
        counts = zip(self.names, self._answers, self._sums_us)
        servers = (one for one in counts if one[1])
        server_count = len(self.names) - self._answers.count(0)
        places = self._by_slot()
        rest_slots = SLOTS - self._rest_uses.count(0)
        slot_count, last = rest_slots, -1
        for slot in map(self._slots.__getitem__, places):
            slot_count += slot != last and not self._rest_uses[slot]
            last = slot
        body = pack(
            self.client,
            duration_ms,
            server_count,
            servers,
            slot_count,
            self._keys + rest_slots,
            self._all_uses(places),
            self._sent_spreads(),
        )
        self.clear()
        # The next window begins with what this one was looked at, or less if it was quiet.
        if self.weight > 1 and self._looks <= LOOKS_MAX // 2:
            self.weight //= 2
        self._looks = 0
        return body

    def clear(self) -> None:
        """Nothing is counted, whatever another call was at. Places of servers stay."""
        self._answers = _zeros("I", len(self.names))
        self._sums_us = _zeros("I", len(self.names))
        if self._spreads is not None:
            self._spreads = {}
        self._uses = _zeros("I", PLACES)
        self._keys = 0
        self._rest_uses = _zeros("I", SLOTS)
        self._rest_sizes = _zeros("I", SLOTS)

    def _by_slot(self) -> array[int]:
        """The places of the keys that are kept, in the order of their slots."""
        filled = (at for at, times in enumerate(self._uses) if times)
        return array("H", sorted(filled, key=self._slots.__getitem__))

    def _all_uses(self, places: array[int]) -> Iterable[tuple[int, int, int, int]]:
        # What is left of a slot is keys of this client only: an id that no other client has.
        own = key_id(b"\0" + self.client.encode())
        kept = iter(places)
        at = next(kept, None)
        for slot, times in enumerate(self._rest_uses):
            while at is not None and self._slots[at] == slot:
                yield slot, self._ids[at], self._uses[at], self._sizes[at]
                at = next(kept, None)
            if times:
                yield slot, own, times, self._rest_sizes[slot]
