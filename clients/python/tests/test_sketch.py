"""What is counted, and how it is packed: without servers."""

import json
import os
import struct
import tracemalloc
import unittest
from pathlib import Path
from time import perf_counter

from redis.exceptions import MovedError, ResponseError

from portolan_redis import Placement
from portolan_redis.connection import Counter, _Link, rule_of
from portolan_redis.placement import Outbox
from portolan_redis.sketch import KEYS_MAX, LOOKS_MAX, SENT_BUCKETS_MAX, SERVERS_MAX, SPREADS_MAX, Sketch, key_id, pack

HERE = Path(__file__).resolve().parent
VECTORS = json.loads(
    Path(os.environ.get("PORTOLAN_VECTORS", HERE.parents[1] / "vectors.json")).read_text("utf-8")
)


def unpack_spreads(body: bytearray) -> dict[str, list[tuple[int, int]]]:
    """The buckets (index, count) of a sketch of version 2 without keys, by server."""
    assert body[:4] == b"PSK2"
    at = 9 + body[8]
    (count,) = struct.unpack_from("<H", body, at)
    at += 2
    for _ in range(count):
        at += 1 + body[at] + 8
    (keys, count) = struct.unpack_from("<HH", body, at)
    assert keys == 0
    at += 4
    spreads = {}
    for _ in range(count):
        end = at + 1 + body[at]
        name = body[at + 1 : end].decode()
        (buckets,) = struct.unpack_from("<H", body, end)
        at = end + 2 + 6 * buckets
        spreads[name] = [struct.unpack_from("<hI", body, end + 2 + 6 * nth) for nth in range(buckets)]
    assert len(body) == at
    return spreads


def unpack(body: bytearray) -> tuple[dict[str, tuple[int, int]], list[tuple[int, int, int, int]]]:
    """Servers (answers, sum of µs) by name, and keys (slot, id, uses, bytes)."""
    at = 9 + body[8]
    (count,) = struct.unpack_from("<H", body, at)
    at += 2
    servers = {}
    for _ in range(count):
        end = at + 1 + body[at]
        servers[body[at + 1 : end].decode()] = struct.unpack_from("<II", body, end)
        at = end + 8
    (slots,) = struct.unpack_from("<H", body, at)
    at += 2
    keys = []
    for _ in range(slots):
        slot, count = struct.unpack_from("<HH", body, at)
        keys += [(slot, *struct.unpack_from("<QII", body, at + 4 + 16 * nth)) for nth in range(count)]
        at += 4 + 16 * count
    assert len(body) == at
    assert len({slot for slot, *_ in keys}) == slots, "a slot comes once"
    return servers, keys


class OfSketches(unittest.TestCase):
    def test_ids_and_packed_sketches_are_those_of_the_other_languages(self):
        for one in VECTORS["ids"]:
            self.assertEqual(f"{key_id(bytes.fromhex(one['key_hex'])):016x}", one["id"])
        for one in VECTORS["sketches"]:
            uses = [(slot, int(id, 16), times, size) for slot, id, times, size in one["uses"]]
            servers, spreads = one["servers"], one.get("spreads")
            head = (one["client"], one["duration_ms"], len(servers), servers)
            packed = pack(*head, len({slot for slot, *_ in uses}), len(uses), uses, spreads)
            self.assertEqual(packed.hex(), one["packed"])

    def test_latencies_are_counted_as_distributions_where_quantiles_are_asked_for(self):
        sketch = Sketch("app", True)
        server = sketch.server("10.0.0.1:1")
        for us in [1_000] * 90 + [11_000] * 10 + [1, 10**9]:
            sketch.answered(server, us)
        rows = unpack_spreads(sketch.take(1_000))["10.0.0.1:1"]
        self.assertEqual(rows, [(-115, 1), (0, 90), (60, 10), (275, 1)])
        self.assertEqual(unpack_spreads(sketch.take(1_000)), {})
        # Every bucket once: the lowest are added up.
        for bucket in range(-115, 276):
            sketch.answered(server, round(1_000 * (1.02 / 0.98) ** (bucket - 0.5)))
        rows = unpack_spreads(sketch.take(1_000))["10.0.0.1:1"]
        self.assertEqual((len(rows), rows[-1]), (SENT_BUCKETS_MAX, (275, 1)))
        self.assertEqual(sum(count for _, count in rows), 391)
        self.assertEqual(rows[0][1], 391 - SENT_BUCKETS_MAX + 1)
        for nth in range(SPREADS_MAX + 9):
            sketch.answered(sketch.server(f"10.0.1.{nth}:1"), 5)
        self.assertEqual(len(unpack_spreads(sketch.take(1_000))), SPREADS_MAX)

    def test_answers_and_uses_are_counted_and_a_window_begins_with_none(self):
        sketch = Sketch("app")
        server = sketch.server("10.0.0.1:1")
        self.assertEqual(sketch.server("10.0.0.1:1"), server)
        for us in (100, 300, (1 << 32) - 1):
            sketch.answered(server, us)
        for slot, size in ((7, 10), (7, 30), (8, 5)):
            sketch.used(slot, 1, size)
        servers, keys = unpack(sketch.take(1_000))
        self.assertEqual(servers, {"10.0.0.1:1": (2, 400)})
        self.assertEqual(sorted(keys), [(7, 1, 2, 30), (8, 1, 1, 5)])
        self.assertEqual(unpack(sketch.take(1_000)), ({}, []))

    def test_heavy_keys_are_kept_the_rest_by_slot_and_no_use_is_lost(self):
        sketch, total = Sketch("app"), 0
        for id in [*list(range(100)) * 9, *range(1_000, 8_500)]:
            total += sketch.weight
            sketch.used(1 if id < 100 else id % 16_384, id, 1)
        _, keys = unpack(sketch.take(1_000))
        heavy = {id for slot, id, uses, _ in keys if slot == 1 and uses >= 9}
        self.assertLessEqual(set(range(100)), heavy)
        self.assertEqual(sum(uses for _, _, uses, _ in keys), total)
        self.assertLessEqual(len(keys), KEYS_MAX + 16_384)

    def test_under_load_one_use_stands_for_many(self):
        sketch, gap, looks, all_uses = Sketch("app"), 1, 0, 50 * LOOKS_MAX
        for _ in range(all_uses):
            gap -= 1
            if gap <= 0:
                looks += 1
                gap = sketch.used(1, 1, 1)
        _, [(_, _, uses, _)] = unpack(sketch.take(1_000))
        self.assertLess(looks, 8 * LOOKS_MAX)
        self.assertAlmostEqual(uses / all_uses, 1, delta=0.1)

    def test_thousands_of_servers_and_tens_of_thousands_of_keys_take_less_than_1_mb(self):
        names = [f"10.0.{nth >> 8}.{nth & 255}:6379" for nth in range(SERVERS_MAX + 10)]
        tracemalloc.start()
        sketch = Sketch("app")
        for nth, name in enumerate(names):
            place = sketch.server(name)
            self.assertEqual(place < 0, nth >= SERVERS_MAX)
            if place >= 0:
                sketch.answered(place, 1_000)
        for id in range(50_000):
            sketch.used(id % 16_384, id, 100)
        counters, _ = tracemalloc.get_traced_memory()
        body = sketch.take(1_000)
        with_body, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"counters {counters} bytes, with a packed sketch {with_body}, at the most {peak}")
        self.assertLess(peak, 1_000_000)
        self.assertLess(len(body), 1 << 20)


class OfRequests(unittest.TestCase):
    def counter(self, **settings) -> Counter:
        counter = Counter(Outbox(Placement(name="app", **settings)))
        known = {"flags": [], "first_key_pos": 1}
        counter.commands = lambda: {"get": known, "set": known, "blpop": known}
        return counter

    def request(self, counter, link, *args, answer=None):
        link.waiting, link.sent_at = [args], perf_counter() - 0.001
        if isinstance(answer, ResponseError):
            counter.failed(link, answer)
        else:
            counter.gap -= 1
            counter.answered(link, link.waiting.pop(), answer)

    def test_a_redirected_request_counts_once_at_the_server_that_answers(self):
        counter = self.counter()
        first, second = _Link("a:1"), _Link("b:1")
        self.request(counter, first, "GET", "key", answer=MovedError("7 b:1"))
        self.request(counter, second, "GET", "key", answer=b"value")
        servers, [(_, id, uses, size)] = unpack(counter.outbox.sketch.take(1))
        self.assertEqual((list(servers), id, uses, size), (["b:1"], key_id(b"key"), 1, 5))

    def test_a_refused_request_is_answered(self):
        counter = self.counter()
        self.request(counter, _Link("a:1"), "GET", "key", answer=ResponseError("WRONGTYPE"))
        servers, keys = unpack(counter.outbox.sketch.take(1))
        self.assertEqual((list(servers), len(keys)), (["a:1"], 1))

    def test_what_waits_for_others_tells_no_latency(self):
        counter = self.counter()
        self.request(counter, _Link("a:1"), "BLPOP", "key", "0")
        servers, keys = unpack(counter.outbox.sketch.take(1))
        self.assertEqual((servers, len(keys)), ({}, 1))

    def test_only_requests_that_the_application_says_count(self):
        counter = self.counter(counts=lambda words: words[0] == "GET")
        self.request(counter, _Link("a:1"), "SET", "background", "x")
        self.request(counter, _Link("b:1"), "GET", "key")
        servers, [(_, id, _, _)] = unpack(counter.outbox.sketch.take(1))
        self.assertEqual((list(servers), id), (["b:1"], key_id(b"key")))

    def test_keys_are_found(self):
        commands = {
            "get": {"flags": [], "first_key_pos": 1},
            "bitop": {"flags": [], "first_key_pos": 2},
            "spublish": {"flags": ["pubsub"], "first_key_pos": 1},
        }
        for name, rule in {
            "get": (1, 0, True),
            "BITOP": (2, 0, True),
            "EVALSHA": (3, 2, True),
            "ZUNION": (2, 1, True),
            "XINFO STREAM": (1, 0, True),
            "SPUBLISH": (0, 0, False),
            "CLUSTER SLOTS": (0, 0, False),
            "NEW": (0, 0, False),
            "PING": (0, 0, True),
        }.items():
            self.assertEqual(rule_of(name, commands), rule, name)


class OfSending(unittest.TestCase):
    def test_errors_stay_and_are_counted(self):
        outbox = Outbox(Placement(url="http://127.0.0.1:1", deadline_s=0.5))
        outbox.flush()
        self.assertEqual((outbox.stats.sent, outbox.stats.dropped), (0, 1))
        self.assertIn("refused", outbox.stats.last_error or "")

    def test_a_forked_client_begins_anew_whatever_another_thread_was_at(self):
        outbox = Outbox(Placement(name="app"))
        for id in range(10):
            outbox.sketch.used(1, id, 1)
        outbox.sketch._keys = 3
        outbox._began -= 1_000
        outbox.begin_anew()
        sent = []
        outbox._post = sent.append
        outbox.flush()
        (duration_ms,) = struct.unpack_from("<I", sent[0], 4)
        self.assertLess(duration_ms, 100_000)
        self.assertEqual((unpack(sent[0]), outbox.stats.sent), (({}, []), 1))

    def test_settings_that_cannot_work_are_refused(self):
        for wrong in ({"url": "ftp://x"}, {"name": ""}, {"window_s": 0}, {"name": "x" * 256}):
            with self.assertRaises(ValueError):
                Placement(**wrong)


if __name__ == "__main__":
    unittest.main()
