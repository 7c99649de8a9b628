"""Three sites as processes: the program of PORTOLAN_BIN, killed and suspended by tests."""

import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

BIN = os.environ.get("PORTOLAN_BIN")
LIMIT_S = 300.0
# As tests in Rust do it: a process guards a block by its first port, below what the system gives to clients.
FIRST, BLOCKS, PORTS_PER_BLOCK = 10_100, 400, 50
_guards: list[socket.socket] = []
_ports: list[int] = []


def free_port() -> int:
    while True:
        if not _ports:
            _ports.extend(_take_block())
        port = _ports.pop()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def _take_block() -> range:
    for block in range(BLOCKS):
        first = FIRST + block * PORTS_PER_BLOCK
        guard = socket.socket()
        try:
            guard.bind(("127.0.0.1", first))
            guard.listen()
        except OSError:
            guard.close()
            continue
        _guards.append(guard)
        return range(first + 1, first + PORTS_PER_BLOCK)
    raise RuntimeError("no free block of ports on loopback")


def eventually(attempt, limit_s: float = LIMIT_S):
    """What `attempt` returns once it raises nothing any more."""
    ends = time.monotonic() + limit_s
    while True:
        asked = time.monotonic()
        try:
            return attempt()
        except Exception:
            if time.monotonic() > ends:
                raise
            # An attempt may start a process: a slow machine is left to the sites for most of the time.
            time.sleep(min(1.0, max(0.05, 4 * (time.monotonic() - asked))))


class Site:
    def __init__(self, folder: Path, name: str, join: "Site | None") -> None:
        self.name, self.folder = name, folder
        self.redis, self.grpc, self.peer = free_port(), free_port(), free_port()
        self.address = f"127.0.0.1:{self.redis}"
        self._join = [] if join is None else ["--join", f"127.0.0.1:{join.peer}"]
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Starts it, unless it runs."""
        if self._process is not None:
            return
        ports = [("--redis", self.redis), ("--grpc", self.grpc), ("--peer", self.peer)]
        flags = [word for flag, port in ports for word in (flag, f"127.0.0.1:{port}")]
        with open(self.folder / f"{self.name}.log", "ab") as out:
            self._process = subprocess.Popen(
                [BIN, "serve", "--site", self.name, "--data", self.folder / self.name]
                + ["--admin", "off", *flags, *self._join],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    def cli(self, *words: str) -> str:
        command = [BIN, *words, "--server", f"127.0.0.1:{self.grpc}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout

    def signal(self, number: int) -> None:
        self._process.send_signal(number)
        # A process of many threads stops a little later.
        state = Path(f"/proc/{self._process.pid}/stat")
        while number == signal.SIGSTOP and state.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


class Deployment:
    """Sites `a`, `b` and `c` with the causal keyspace `cars` (`car:`). The first is the root."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="portolan-sites-")
        self.sites: list[Site] = []
        for name in "abc":
            before = self.sites[-1] if self.sites else None
            site = Site(Path(self._folder.name), name, before)
            self.sites.append(site)
            site.start()
            eventually(lambda: site.cli("keyspace", "list"))
        self.a, self.b, self.c = self.sites
        eventually(self._create)
        for site in self.sites:
            eventually(lambda: self._has_all(site))

    def _create(self) -> None:
        how = ("--prefix", "car:", "--consistency", "causal", "--scope", "region")
        try:
            self.b.cli("keyspace", "create", "cars", *how)
        except RuntimeError as error:
            if "has this name or prefix already" not in str(error):
                raise

    @staticmethod
    def _has_all(site: Site) -> None:
        listed, region = site.cli("keyspace", "list"), site.cli("region", "show", "--json")
        if "causal" not in listed or '"a"' not in region:
            raise RuntimeError(f"{site.name} does not have the keyspace: {listed} {region}")

    def start_all(self) -> None:
        """After a test, also one that has failed: all sites run."""
        for site in self.sites:
            site.start()
            eventually(lambda: site.cli("region", "show"))

    def stop(self) -> None:
        for site in self.sites:
            site.kill()
        self._folder.cleanup()


class Way:
    """A way to a port that takes time, or is cut with the next answer."""

    def __init__(self, to_port: int) -> None:
        self.delay_s = 0.0
        #: The next answer is lost, with all connections; from then on nothing is there.
        self.loses_answers, self.lost = threading.Event(), threading.Event()
        self._to = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.lost.is_set():
                near.close()
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                near.close()
                continue
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        try:
            while True:
                for one in select.select([near, far], [], [])[0]:
                    data = one.recv(65536)
                    if not data or self.lost.is_set():
                        return
                    if one is far and self.loses_answers.is_set():
                        self.lost.set()
                        self.close()
                        return
                    if one is near and self.delay_s:
                        time.sleep(self.delay_s)
                    (far if one is near else near).sendall(data)
        except OSError:
            pass
        finally:
            near.close(), far.close()

    def close(self) -> None:
        self._listener.close()
