"""Sessions over three real sites, which are killed, suspended and cut off; without PORTOLAN_BIN, the rules alone."""

import asyncio
import json
import os
import re
import signal
import socketserver
import threading
import time
import unittest

import redis
from deployment import BIN, Deployment, Way, eventually

from portolan_redis import BadToken, Behind, NoSite, Roaming, Session, Sites, UnknownOutcome
from portolan_redis.asyncio import Session as AsyncSession
from portolan_redis.errors import Lost, Unordered, named
from portolan_redis.session import ASK_TOKEN, Place, is_read, with_token


class _Answers(socketserver.StreamRequestHandler):
    """Answers each PORTOLAN.TOKEN with the number of writes so far, and all else as a site would."""

    def handle(self):
        while data := self.request.recv(65536):
            for name in re.findall(rb"\*\d+\r\n\$\d+\r\n([\w.]+)\r\n", data):
                self.wfile.write(self.answer(name.upper()))

    def answer(self, name: bytes) -> bytes:
        self.server.asked.append(name)
        if name == b"PORTOLAN.TOKEN":
            return b"$2\r\nT%d\r\n" % self.server.asked.count(b"SET")
        return b"+PONG\r\n" if name == b"PING" else b"+OK\r\n"


def answering(test: unittest.TestCase) -> socketserver.ThreadingTCPServer:
    """A site without a program, which remembers in `asked` what it was asked for."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads, server.asked = True, []
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    return server


class OfHealthChecks(unittest.TestCase):
    def setUp(self):
        self.server = answering(self)
        self.sites = Sites(
            ["127.0.0.1:%d" % self.server.server_address[1]],
            roaming=Roaming(nearer=False), protocol=2, health_check_interval=30,
        )  # fmt: skip

    def test_one_does_not_come_between_requests_and_their_token(self):
        session = Session(self.sites)
        self.addCleanup(session.close)
        session.set("car:1", "x")
        session.connection_pool._here.next_health_check = 0
        session.pipeline(transaction=False).set("car:2", "x").set("car:3", "x").execute()
        self.assertEqual(session.token, "T3")
        session.connection_pool._here.next_health_check = 0
        session.set("car:4", "x")
        self.assertEqual(session.token, "T4")

    def test_nor_with_asyncio(self):
        asyncio.run(self._asyncio())

    async def _asyncio(self):
        async with AsyncSession(self.sites) as session:
            await session.set("car:1", "x")
            session.connection_pool._here.next_health_check = 0
            await session.set("car:2", "x")
            self.assertEqual(session.token, "T2")
            session.connection_pool._here.next_health_check = 0
            await session.pipeline(transaction=False).set("car:3", "x").set("car:4", "x").execute()
            self.assertEqual(session.token, "T4")


class OfRules(unittest.TestCase):
    def test_a_nearer_site_is_clearly_nearer(self):
        sites = Sites(["a:1", "b:2", "c:3"], roaming=Roaming(share=0.7, gain_ms=1.0))
        for name, ms in (("a:1", 10.0), ("b:2", 7.5)):
            for _ in range(5):
                sites.answered(name, ms)
        self.assertIsNone(sites.nearer_than("a:1"), "not by enough")
        for ms in (6.0, 90.0, 6.0, 6.0):
            sites.answered("b:2", ms)
        self.assertEqual(sites.nearer_than("a:1"), "b:2", "one slow PING changes no median")
        self.assertIsNone(sites.nearer_than("b:2"))
        self.assertIsNone(sites.nearer_than("c:3"), "its own distance is unknown")
        self.assertEqual([name for name, _ in sites.in_turn("c:3", None)], ["c:3", "b:2", "a:1"])
        self.assertEqual([name for name, _ in sites.in_turn("b:2", "b:2")], ["a:1", "c:3", "b:2"])
        sites.failed("b:2")
        self.assertIsNone(sites.nearer_than("a:1"))
        close = Sites(["a:1", "b:2"], roaming=Roaming(gain_ms=1.0))
        for _ in range(5):
            close.answered("a:1", 0.9), close.answered("b:2", 0.1)
        self.assertIsNone(close.nearer_than("a:1"), "a share of next to nothing is nothing")

    def test_a_site_that_does_not_serve_comes_last(self):
        place = Place(Sites({"a": "a:1", "b": ["b:1", "b:2"]}), None)
        place.stays("a")
        kinds = {redis.ConnectionError: "a", redis.TimeoutError: "b", redis.BusyLoadingError: "b"}
        for kind, first in {**kinds, redis.exceptions.ClusterDownError: "b"}.items():
            place.begins(5.0)
            place.failed(kind("it leaves"))
            self.assertEqual(place.nodes_in_turn()[0][0], first, kind)

    def test_reads_are_repeated_and_cursors_are_not(self):
        for read in (("GET", "k"), ("scan", 0), ("HSCAN", "h", "0"), (b"GET", "k"), ("SCAN", b"0")):
            self.assertTrue(is_read(read), read)
        for other in (("SET", "k", "v"), ("SCAN", 17), ("HSCAN", "h", 17), ("EVAL", "x", 0)):
            self.assertFalse(is_read(other), other)

    def test_errors_are_named_by_their_code(self):
        kinds = {"BEHIND": Behind, "UNORDERED": Unordered, "LOST": Lost, "BADTOKEN": BadToken}
        for code, kind in {**kinds, "UNKNOWN": UnknownOutcome}.items():
            for text in (f"{code} why", f"Command # 1 (GET k) of pipeline caused error: {code} why"):
                self.assertIs(type(named(redis.ResponseError(text))), kind)
        plain = redis.ResponseError("ERR a value that begins with BEHIND")
        self.assertIs(named(plain), plain)

    def test_a_token_is_asked_for_in_the_same_piece(self):
        self.assertEqual(with_token([b"a", b"b"]), [b"a", b"b" + ASK_TOKEN])
        view = memoryview(b"large")
        self.assertEqual(with_token([view]), [view, ASK_TOKEN])

    def test_addresses_may_be_wrong(self):
        self.assertEqual(Sites({"x": ["[::1]:7", "h:8"]}).nodes, {"x": [("::1", 7), ("h", 8)]})
        for wrong in ([], ["host"], ["host:port"], {"x": []}):
            with self.assertRaises(ValueError):
                Sites(wrong)


@unittest.skipUnless(BIN, "PORTOLAN_BIN is not set")
class OverSites(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.all = Deployment()
        cls.addClassCleanup(cls.all.stop)

    def setUp(self):
        self.addCleanup(self.all.start_all)

    # A site on a slow machine takes its time. Where one is to be silent, two seconds are enough.
    def session(
        self, *sites, roaming=Roaming(nearer=False), deadline_s=20.0, silent_after_s=60.0, **more
    ):
        names = {site.name: getattr(site, "way", site.address) for site in sites or self.all.sites}
        options = {"roaming": roaming, "decode_responses": True, "socket_timeout": silent_after_s}
        session = Session(Sites(names, **options), deadline_s=deadline_s, **more)
        self.addCleanup(session.close)
        return session

    def test_commands_pipelines_and_transactions_bring_tokens(self):
        session = self.session()
        self.assertIsNone(session.token)
        tokens = set()
        for work in (
            lambda: session.set("car:1", "Pier 39"),
            lambda: session.pipeline(transaction=False).set("car:2", "x").get("car:1").execute(),
            lambda: session.pipeline().set("car:3", "x").get("car:1").execute(),
        ):
            answers = work()
            self.assertEqual(len(session.token), 71)
            tokens.add(session.token)
        self.assertEqual(answers, [True, "Pier 39"])
        self.assertEqual(len(tokens), 3)
        # The error of the last request of a batch is in its place.
        refused = session.pipeline(transaction=False).get("car:1").incr("car:1").execute(False)
        self.assertEqual(refused[0], "Pier 39")
        self.assertIsInstance(refused[1], redis.ResponseError)
        with self.assertRaises(redis.ResponseError):
            session.incr("car:1")
        self.assertEqual(session.get("car:1"), "Pier 39", "answers are in step")
        self.assertEqual(session.session_stats.attaches, 0)

    def test_a_session_moves_and_finds_its_own(self):
        session = self.session()
        for turn in range(30):
            session.set("car:moves", str(turn))
            session.move_to("abc"[turn % 3])
            self.assertEqual(session.site, "abc"[turn % 3])
            self.assertEqual(session.get("car:moves"), str(turn))
        stats = session.session_stats
        self.assertEqual(stats.moves, 30)
        elsewhere = self.session(self.all.c, token=session.token)
        self.assertEqual(elsewhere.get("car:moves"), "29")

    def test_the_site_is_killed_in_the_middle(self):
        session = self.session(self.all.b, self.all.c, self.all.a, deadline_s=5.0)
        session.set("car:killed", "0")
        self.assertEqual(session.site, "b")
        # What the session may read: what it has written last. A write without an answer takes its place when
        # the site that has it is back: at any time, over newer ones.
        last, late, unknown = 0, set(), 0
        for count in range(1, 400):
            if count in (100, 250):
                victim = next(site for site in self.all.sites if site.name == session.site)
                killer = threading.Timer(0.01, victim.kill)
                killer.start()
            if count in (200, 350):
                killer.join()
                victim.start()
            seen = None
            while seen is None:
                try:
                    if last != count and count not in late:
                        session.set("car:killed", str(count))
                        last = count
                    seen = int(session.get("car:killed"))
                except UnknownOutcome:
                    late.add(count)
                    unknown += 1
                except (Behind, Unordered):
                    # What the session wrote is at the site that is away: this application begins anew.
                    session.begin_anew()
                    late |= set(range(count + 1))
            self.assertIn(seen, {last} | late)
        self.assertLessEqual(unknown, 2, "one for each death")
        self.assertGreaterEqual(session.session_stats.attaches, 1)

    def test_a_site_that_answers_no_more_is_left(self):
        # Not the root: it alone has the places of what was written last.
        session, silent = self.session(self.all.b, self.all.c, silent_after_s=2.0), self.all.b
        session.set("car:silent", "before")
        eventually(lambda: self.ordered("b"))
        silent.signal(signal.SIGSTOP)
        self.addCleanup(silent.signal, signal.SIGCONT)
        began = time.monotonic()
        self.assertEqual(session.get("car:silent"), "before")
        self.assertEqual(session.site, "c")
        self.assertLess(time.monotonic() - began, 15.0)
        self.assertEqual(session.session_stats.repeats, 1)

    def test_a_lost_answer_to_a_write_is_unknown(self):
        session, silent = self.session(self.all.b, self.all.c, silent_after_s=2.0), self.all.b
        session.set("car:lost", "before")
        eventually(lambda: self.ordered("b"))
        silent.signal(signal.SIGSTOP)
        self.addCleanup(silent.signal, signal.SIGCONT)
        with self.assertRaises(UnknownOutcome):
            session.set("car:lost", "after")
        self.assertEqual(session.get("car:lost"), "before", "it was not repeated elsewhere")
        silent.signal(signal.SIGCONT)
        eventually(lambda: self.assertEqual(session.get("car:lost"), "after"))

    def test_a_site_that_is_cut_off_lacks_what_was_seen(self):
        sites = Sites({"c": self.all.c.address}, roaming=Roaming(nearer=False))
        self.all.c.kill()
        session = self.session(self.all.b)
        session.set("car:cut", "seen")
        eventually(lambda: self.ordered("b"))
        self.assertEqual(session.get("car:cut"), "seen")
        self.all.a.kill(), self.all.b.kill()
        self.all.c.start()
        # It answers PINGs before it serves.
        with redis.Redis(port=self.all.c.redis) as plain:
            eventually(lambda: plain.get("car:cut"))
        moved = Session(sites, token=session.token, deadline_s=1.0)
        self.addCleanup(moved.close)
        began = time.monotonic()
        with self.assertRaises(Behind):
            moved.get("car:cut")
        self.assertLess(time.monotonic() - began, 6.0)
        # One that is given more time than an answer may take otherwise.
        with self.assertRaises(Behind):
            moved.move_to("c", 2.5)
        token = moved.token
        # Wait: the session is kept, and goes on once the others are back.
        self.all.a.start(), self.all.b.start()
        self.assertEqual(eventually(lambda: moved.get("car:cut")), b"seen")
        self.assertEqual(len(token), 71)

    def test_a_token_of_elsewhere_is_refused_until_the_session_begins_anew(self):
        session = self.session(token="AgUFBQ")
        for _ in range(2):
            with self.assertRaises(BadToken):
                session.get("car:1")
        session.begin_anew()
        session.get("car:1")
        self.assertEqual(len(session.token), 71)

    def test_no_site_answers(self):
        session = Session(["127.0.0.1:1", "127.0.0.1:2"], deadline_s=0.3)
        with self.assertRaises(NoSite):
            session.set("car:1", "x")

    def test_a_nearer_site_takes_over(self):
        ways = [Way(site.redis) for site in self.all.sites]
        for way in ways:
            self.addCleanup(way.close)
        ways[0].delay_s, ways[1].delay_s, ways[2].delay_s = 0.0, 0.06, 0.07
        roaming = Roaming(ping_every_s=0.05, stay_s=1.0, share=0.5)
        names = {site.name: way.address for site, way in zip(self.all.sites, ways, strict=True)}
        session = Session(Sites(names, roaming=roaming, decode_responses=True), deadline_s=20.0)
        self.addCleanup(session.close)
        session.set("car:near", "0")
        session.move_to("a")

        def drives_until(site: str) -> None:
            turn = 0

            def drive() -> None:
                nonlocal turn
                turn += 1
                session.set("car:near", str(turn))
                self.assertEqual(session.get("car:near"), str(turn))
                self.assertEqual(session.site, site)

            eventually(drive, 30.0)

        drives_until("a")
        ways[0].delay_s, ways[1].delay_s = 0.08, 0.0
        drives_until("b")

    def test_threads_of_a_session_take_turns(self):
        session = self.session()
        wrong = []

        def work(name: str) -> None:
            for turn in range(50):
                session.set(f"car:{name}", str(turn))
                if session.get(f"car:{name}") != str(turn):
                    wrong.append(name)

        threads = [threading.Thread(target=work, args=(name,)) for name in "xyz"]
        for thread in threads:
            thread.start()
        for turn in range(6):
            session.move_to("abc"[turn % 3])
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_forked_process_has_a_connection_of_its_own(self):
        session = self.session(deadline_s=3.0)
        session.mset({"car:parent": "parent", "car:child": "child"})
        link = session.client_id()
        child = os.fork()
        name, wrong = ("parent" if child else "child"), 1
        try:
            is_shared = child == 0 and session.client_id() == link
            found = {session.get(f"car:{name}") for _ in range(300)}
            wrong = int(is_shared or found != {name})
        finally:
            if child == 0:
                # The parent's test framework has no part in this process.
                os._exit(wrong)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(found, {"parent"})

    def test_asyncio_does_the_same(self):
        asyncio.run(self._asyncio())

    async def _asyncio(self):
        names = {site.name: site.address for site in (self.all.b, self.all.c, self.all.a)}
        sites = Sites(names, roaming=Roaming(nearer=False), decode_responses=True)
        async with AsyncSession(sites, deadline_s=20.0) as session:
            for turn in range(15):
                await session.set("car:async", str(turn))
                await session.move_to("abc"[turn % 3])
                self.assertEqual(await session.get("car:async"), str(turn))
            tokens = {session.token}
            answers = await session.pipeline(transaction=False).set("car:2", "x").get("car:async").execute()
            self.assertEqual(answers, [True, "14"])
            tokens.add(session.token)
            answers = await session.pipeline().set("car:2", "x").get("car:async").execute()
            self.assertEqual(answers, [True, "14"])
            tokens.add(session.token)
            self.assertEqual([len(token) for token in tokens], [71, 71, 71])
            with self.assertRaises(redis.ResponseError):
                await session.incr("car:async")
            # Tasks take turns, and one that is cancelled takes no answer of another.
            cancelled = asyncio.create_task(session.get("car:2"))
            await asyncio.sleep(0.0005)
            cancelled.cancel()
            found = await asyncio.gather(*(session.get("car:async") for _ in range(20)))
            self.assertEqual(set(found), {"14"})
            await session.move_to("b")
            await session.set("car:async", "before")
            await asyncio.to_thread(eventually, lambda: self.ordered("b"))
            self.all.b.signal(signal.SIGSTOP)
            try:
                with self.assertRaises(UnknownOutcome):
                    await session.set("car:async", "after")
                self.assertEqual(await session.get("car:async"), "before")
                self.assertNotEqual(session.site, "b")
            finally:
                self.all.b.signal(signal.SIGCONT)
            await session.move_to("b", 10.0)
            self.all.b.kill()
            self.assertIn(await session.get("car:async"), ("before", "after"))
            self.assertNotEqual(session.site, "b")
            await session.begin_anew()
            self.assertIsNone(session.token)
        token = AsyncSession(sites, token="AgUFBQ")
        with self.assertRaises(BadToken):
            await token.get("car:1")

    def ordered(self, name: str) -> None:
        site = next(site for site in self.all.sites if site.name == name)
        region = json.loads(site.cli("region", "show", "--json"))
        self.assertEqual(region["last_revision"], region["ordered_revision"])


if __name__ == "__main__":
    unittest.main()
