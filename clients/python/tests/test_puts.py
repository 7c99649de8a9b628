"""Puts that go on at other sites: each has one effect."""

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

from portolan_redis import Roaming, Session, Sites, UnknownOutcome
from portolan_redis.asyncio import Session as AsyncSession
from portolan_redis.puts import Numbers, is_put

ELSEWHERE = Roaming(nearer=False, elsewhere=True)


class _Asked(socketserver.StreamRequestHandler):
    """Answers puts with a number by the server's `answers`, and all else as a site would."""

    def handle(self):
        # Of the last answer that was no error.
        token = None
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                words.append(self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2].decode())
            name = words[0].upper()
            if name in ("CLIENT", "HELLO"):
                self.wfile.write(b"+OK\r\n")
                continue
            asked = self.server.asked
            asked.append(" ".join(words))
            answer = self.server.answers(words) if name == "PORTOLAN.ONCE" else "+OK\r\n"
            if answer is None:
                return
            if name == "PORTOLAN.TOKEN":
                answer = f"${len(token)}\r\n{token}\r\n"
            elif name == "PORTOLAN.ATTACH":
                token = words[1]
            elif answer.startswith("+") or token is None:
                token = f"T{len(asked) + 1}"
            self.wfile.write(answer.encode())


class OfOneEffect(unittest.TestCase):
    def site(self, answers):
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Asked)
        server.daemon_threads, server.asked, server.answers = True, [], answers
        server.address = "127.0.0.1:%d" % server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def session(self, deadline_s=5.0, kind=Session, **sites):
        names = {name: site.address for name, site in sites.items()}
        session = kind(Sites(names, roaming=ELSEWHERE, protocol=2), deadline_s=deadline_s)
        if kind is Session:
            self.addCleanup(session.close)
        return session

    @staticmethod
    def puts(site):
        """Without questions for the token."""
        return [one for one in site.asked if one != "PORTOLAN.TOKEN"]

    def loses_answers(self):
        """Twice it is not there any more, and then it does not serve."""
        return self.site(lambda words: "-CLUSTERDOWN it leaves\r\n" if "AGAIN" in words else None)

    def test_only_what_overwrites_its_keys_is_a_put(self):
        encode = redis.Redis().get_encoder().encode
        for put in (("SET", "k", "v"), ("set", b"k", 7), ("MSET", "a", 1, "b", 2)):
            self.assertTrue(is_put(put, encode), put)
        others = [("SET", "k", "v", "EX", 9), ("MSET", "a"), ("APPEND", "k", "v"), ("SETNX", "k", "v")]
        for other in [*others, ("SET", "k" * 4097, "v"), ("SET", None, "v"), ("SET", "", "v")]:
            self.assertFalse(is_put(other, encode), other)

    def test_the_names_of_the_sites_are_needed(self):
        with self.assertRaises(ValueError):
            Sites(["a:1", "b:2"], roaming=ELSEWHERE)

    def test_a_forked_process_has_numbers_of_its_own(self):
        numbers = Numbers()
        self.assertEqual([one.next().split("-")[1] for one in (numbers, numbers)], ["1", "2"])
        reads, writes = os.pipe()
        if os.fork() == 0:
            os.write(writes, numbers.next().encode())
            os._exit(0)
        os.close(writes)
        with os.fdopen(reads) as pipe:
            client, last = pipe.read().split("-")
        os.wait()
        self.assertEqual(last, "1")
        self.assertNotEqual(client, numbers.next().split("-")[0])

    def test_a_put_without_an_answer_goes_on_at_another_site_under_its_number(self):
        a, b = self.loses_answers(), self.site(lambda _: "+OK\r\n")
        session = self.session(a=a, b=b)
        session.ping()
        token = session.token
        self.assertIs(session.set("car:1", "x"), True)
        self.assertEqual((session.site, session.token), ("b", "T3"))
        self.assertIs(session.mset({"car:2": "y", "car:3": "z"}), True)
        self._asked(a, b, token)
        self.assertEqual(self.puts(b)[2], "PORTOLAN.ATTACH T3 WITHIN 500")
        self.assertRegex(self.puts(b)[3], r"^PORTOLAN.ONCE \d+-2 b OPTIONAL MSET car:2 y car:3 z$")

    def _asked(self, a, b, token):
        number = re.search(r"ONCE (\d+-1) a OPTIONAL SET car:1 x", self.puts(a)[1])[1]
        again = [f"PORTOLAN.ATTACH {token} LATER", f"PORTOLAN.ONCE {number} a AGAIN SET car:1 x"]
        self.assertEqual(self.puts(a)[2:], again)
        self.assertEqual(self.puts(b)[:2], again)

    def test_with_asyncio_too(self):
        asyncio.run(self._asyncio())

    async def _asyncio(self):
        a, b = self.loses_answers(), self.site(lambda _: "+OK\r\n")
        async with self.session(kind=AsyncSession, a=a, b=b) as session:
            await session.ping()
            token = session.token
            self.assertIs(await session.set("car:1", "x"), True)
            self.assertEqual((session.site, session.token), ("b", "T3"))
            self._asked(a, b, token)
        refuses = self.site(lambda _: "-ERR unknown command\r\n")
        async with self.session(kind=AsyncSession, a=refuses, b=b) as session:
            for value in "xy":
                with self.subTest(value):
                    self.assertIs(await session.set("car:1", value), True)
        self.assertEqual(self.puts(refuses)[1:], ["SET car:1 x", "SET car:1 y"])
        async with self.session(kind=AsyncSession, deadline_s=0.3, a=a, b=refuses) as session:
            with self.assertRaises(UnknownOutcome):
                await session.set("car:1", "x")

    def test_without_an_answer_before_the_deadline_it_is_unknown(self):
        a, b = self.loses_answers(), self.site(lambda _: "-UNKNOWN the outcome is unknown\r\n")
        with self.assertRaises(UnknownOutcome):
            self.session(deadline_s=2.0, a=a, b=b).set("car:1", "x")
        self.assertGreater(len(self.puts(b)), 1, "it was asked for again until then")
        # At once where it had no number.
        b.answers = lambda _: "-NOTONCE it is of another kind\r\n"
        began = time.monotonic()
        with self.assertRaises(UnknownOutcome):
            self.session(deadline_s=60.0, a=a, b=b).set("bus:1", "x")
        self.assertLess(time.monotonic() - began, 30.0)

    def test_what_is_refused_for_its_number_is_made_without_one(self):
        a, b = self.site(lambda _: "-TRYAGAIN too many wait\r\n"), self.site(lambda _: "+OK\r\n")
        session = self.session(a=a, b=b)
        self.assertIs(session.set("car:1", "x"), True)
        self.assertIs(session.set("car:1", "y"), True)
        names = [one.partition(" ")[0] for one in self.puts(a)]
        self.assertEqual(names, ["PORTOLAN.ONCE", "SET"] * 2, "it may take the next one")
        # A site that does not know the command, or the name, is not asked again.
        a.answers = lambda _: "-ERR unknown command\r\n"
        for value in "zv":
            self.assertIs(session.set("car:1", value), True)
        names = [one.partition(" ")[0] for one in self.puts(a)]
        self.assertEqual(names[4:], ["PORTOLAN.ONCE", "SET", "SET"])
        self.assertEqual(self.puts(b), [])


@unittest.skipUnless(BIN, "PORTOLAN_BIN is not set")
class OverSites(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.all = Deployment()
        cls.addClassCleanup(cls.all.stop)

    def setUp(self):
        self.addCleanup(self.all.start_all)

    def sites(self):
        """The first one on a way that can lose answers."""
        way = Way(self.all.b.redis)
        self.addCleanup(way.close)
        names = {"b": way.address, "c": self.all.c.address}
        # A site on a slow machine takes its time.
        return way, Sites(names, roaming=ELSEWHERE, decode_responses=True, socket_timeout=60.0)

    def ordered(self, site) -> None:
        region = json.loads(site.cli("region", "show", "--json"))
        self.assertEqual(region["last_revision"], region["ordered_revision"])

    def dies_with_the_answer(self, way, is_ordered: bool) -> threading.Thread:
        """From the next answer on, which is lost with all connections."""
        b = self.all.b

        def dies() -> None:
            way.lost.wait()
            if is_ordered:
                eventually(lambda: self.ordered(b))
            b.kill()
            self.all.a.start()

        thread = threading.Thread(target=dies, daemon=True)
        thread.start()
        way.loses_answers.set()
        return thread

    def same_everywhere(self, **expected: str | None) -> None:
        """It is back, with its own attempt: all sites come to show this."""
        self.all.b.start()
        eventually(lambda: self.ordered(self.all.b))
        for site in self.all.sites:
            with redis.Redis(port=site.redis, decode_responses=True) as plain:

                def shows(client: redis.Redis = plain) -> None:
                    found = {name: client.get(f"car:{name}") for name in expected}
                    self.assertEqual(found, expected)

                eventually(shows)

    def test_a_site_dies_after_it_took_a_put(self):
        # Before its own write has a place, or after.
        for is_ordered in (True, False):
            with self.subTest(is_ordered=is_ordered):
                way, sites = self.sites()
                session = Session(sites, deadline_s=120.0)
                self.addCleanup(session.close)
                session.set("car:0", "x")
                self.assertEqual(session.site, "b")
                eventually(lambda: self.ordered(self.all.b))
                if not is_ordered:
                    self.all.a.kill()
                died = self.dies_with_the_answer(way, is_ordered)
                self.assertIs(session.set("car:put", "once"), True)
                died.join()
                self.assertEqual(session.site, "c")
                self.assertEqual(session.get("car:put"), "once")
                session.set("car:put", "later")
                session.set("car:last", str(is_ordered))
                self.same_everywhere(put="later", last=str(is_ordered))

    def test_with_asyncio_too(self):
        asyncio.run(self._asyncio())

    async def _asyncio(self):
        way, sites = self.sites()
        async with AsyncSession(sites, deadline_s=120.0) as session:
            await session.set("car:0", "x")
            await asyncio.to_thread(eventually, lambda: self.ordered(self.all.b))
            self.all.a.kill()
            died = self.dies_with_the_answer(way, False)
            self.assertIs(await session.mset({"car:put": "once", "car:other": "once"}), True)
            await asyncio.to_thread(died.join)
            self.assertEqual(session.site, "c")
            self.assertEqual(await session.mget("car:put", "car:other"), ["once", "once"])
            await session.set("car:put", "later")
            await session.delete("car:other")
            await session.set("car:last", "asyncio")
        await asyncio.to_thread(self.same_everywhere, put="later", other=None, last="asyncio")

    def test_a_put_comes_late_to_a_site_that_was_silent(self):
        names = {"b": self.all.b.address, "c": self.all.c.address}
        session = Session(Sites(names, roaming=ELSEWHERE, socket_timeout=1.0), deadline_s=120.0)
        self.addCleanup(session.close)
        eventually(lambda: session.set("car:silent", "before"))
        eventually(lambda: session.move_to("b", 10.0))
        eventually(lambda: self.ordered(self.all.b))
        self.all.b.signal(signal.SIGSTOP)
        self.addCleanup(self.all.b.signal, signal.SIGCONT)
        self.assertIs(session.set("car:silent", "once"), True)
        self.assertEqual(session.site, "c")
        session.set("car:silent", "later")
        session.set("car:last", "silent")
        # What was sent to it is there yet.
        self.all.b.signal(signal.SIGCONT)
        self.same_everywhere(silent="later", last="silent")

    def test_without_the_option_it_is_unknown(self):
        way, _ = self.sites()
        names = {"b": way.address, "c": self.all.c.address}
        session = Session(Sites(names, roaming=Roaming(nearer=False)), deadline_s=120.0)
        self.addCleanup(session.close)
        session.set("car:0", "x")
        way.loses_answers.set()
        with self.assertRaises(UnknownOutcome):
            session.set("car:put", "unknown")


if __name__ == "__main__":
    unittest.main()
