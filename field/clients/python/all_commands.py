"""Every command of Portolan's Redis front, through an unmodified redis-py.

Where the server is and how to come in is in the environment: PORTOLAN_REDIS (host:port),
PORTOLAN_RESP (2 or 3), and, where they apply, PORTOLAN_CA, PORTOLAN_USER, PORTOLAN_PASSWORD.
The database must be empty, and is emptied at the end.
"""

import os
import threading
import time

import redis

HOST, PORT = os.environ["PORTOLAN_REDIS"].rsplit(":", 1)
RESP = int(os.environ.get("PORTOLAN_RESP", "2"))


def connect(**more):
    options = {"host": HOST, "port": int(PORT), "protocol": RESP, "decode_responses": True,
               "socket_timeout": 20, **more}
    if ca := os.environ.get("PORTOLAN_CA"):
        options |= {"ssl": True, "ssl_ca_certs": ca}
    if user := os.environ.get("PORTOLAN_USER"):
        options = {"username": user, "password": os.environ["PORTOLAN_PASSWORD"], **options}
    return redis.Redis(**options)


def expect(seen, wanted):
    assert seen == wanted, f"{seen!r} instead of {wanted!r}"


def expect_error(text, call):
    try:
        answer = call()
    except redis.ResponseError as error:
        # redis-py takes some codes (ERR, EXECABORT) off the text and keeps others (WRONGTYPE).
        assert text in str(error), f"{error} does not contain {text!r}"
    else:
        raise AssertionError(f"{answer!r} instead of an error with {text!r}")


def connection(r):
    expect(r.ping(), True)
    expect(r.echo("hello"), "hello")
    expect(r.client_setname("field"), True)
    expect(r.client_getname(), "field")
    assert r.client_id() > 0
    expect(r.execute_command("SELECT", 0), True)
    expect_error("DB index is out of range", lambda: r.execute_command("SELECT", 1))
    assert "redis_version" in r.info()
    assert isinstance(r.config_get("maxmemory"), dict)
    get = r.command()["get"]
    expect((get["arity"], get["first_key_pos"], get["last_key_pos"]), (2, 1, 1))
    mset = r.command()["mset"]
    expect((mset["first_key_pos"], mset["last_key_pos"], mset["step_count"]), (1, -1, 2))
    expect_error("unknown command", lambda: r.execute_command("NOSUCH", "a"))
    expect_error("wrong number of arguments", lambda: r.execute_command("GET"))


def strings(r):
    expect(r.set("s", "one"), True)
    expect(r.get("s"), "one")
    expect(r.get("absent"), None)
    expect(r.set("s", "two", nx=True), None)
    expect(r.set("absent", "two", xx=True), None)
    expect(r.set("s", "two", xx=True), True)
    expect(r.set("s", "three", get=True), "two")
    expect(r.getset("s", "four"), "three")
    expect(r.append("s", "!"), 5)
    expect(r.getdel("s"), "four!")
    expect(r.exists("s"), 0)
    expect(r.mset({"m1": "a", "m2": "b"}), True)
    expect(r.mget("m1", "absent", "m2"), ["a", None, "b"])
    expect(r.exists("m1", "m1", "m2", "absent"), 3)
    expect(r.type("m1"), "string")
    expect(r.type("absent"), "none")
    expect(r.delete("m1", "absent"), 1)
    expect(r.unlink("m2"), 1)
    binary = connect(decode_responses=False)
    odd = bytes(range(256)) * 300
    binary.set(b"\x00\r\n\xff", odd)
    expect(binary.get(b"\x00\r\n\xff"), odd)
    binary.delete(b"\x00\r\n\xff")


def numbers(r):
    expect(r.incr("n"), 1)
    expect(r.incrby("n", 41), 42)
    expect(r.decr("n"), 41)
    expect(r.get("n"), "41")
    r.set("n", "many")
    expect_error("value is not an integer or out of range", lambda: r.incr("n"))
    r.set("n", 2**63 - 1)
    expect_error("increment or decrement would overflow", lambda: r.incr("n"))
    r.delete("n")


def expiry(r):
    r.set("e", "x", ex=100)
    assert 90 < r.ttl("e") <= 100
    expect(r.persist("e"), True)
    expect(r.ttl("e"), -1)
    expect(r.ttl("absent"), -2)
    expect(r.expire("e", 100), True)
    expect(r.expire("absent", 100), False)
    r.set("e", "y", keepttl=True)
    assert 90 < r.ttl("e") <= 100
    r.set("e", "z")
    expect(r.ttl("e"), -1)
    expect(r.pexpire("e", 50), True)
    deadline = time.monotonic() + 20
    while r.exists("e"):
        assert time.monotonic() < deadline, "the key does not expire"
        time.sleep(0.01)


def hashes(r):
    expect(r.hset("h", mapping={"a": "1", "b": "2"}), 2)
    expect(r.hset("h", "a", "3"), 0)
    expect(r.hget("h", "a"), "3")
    expect(r.hget("h", "absent"), None)
    expect(r.hmget("h", ["a", "absent", "b"]), ["3", None, "2"])
    expect(r.hgetall("h"), {"a": "3", "b": "2"})
    expect(r.hgetall("absent"), {})
    expect(r.hexists("h", "a"), True)
    expect(r.hlen("h"), 2)
    expect(r.hsetnx("h", "a", "4"), 0)
    expect(r.hsetnx("h", "c", "4"), 1)
    expect(r.hincrby("h", "a", 7), 10)
    expect(r.hdel("h", "a", "b", "absent"), 2)
    expect(r.type("h"), "hash")
    expect_error("WRONGTYPE", lambda: r.get("h"))
    expect_error("WRONGTYPE", lambda: r.incr("h"))
    r.set("s", "x")
    expect_error("WRONGTYPE", lambda: r.hget("s", "a"))
    expect(r.hdel("h", "c"), 1)
    expect(r.exists("h"), 0)
    r.delete("s")


def scans(r):
    r.mset({f"scan:{i}": i for i in range(250)})
    r.hset("scan:hash", "a", 1)
    expect(r.dbsize(), 251)
    expect(set(r.scan_iter()), {f"scan:{i}" for i in range(250)} | {"scan:hash"})
    expect(sorted(r.scan_iter(match="scan:1?", count=7)), [f"scan:1{i}" for i in range(10)])
    expect(list(r.scan_iter(_type="hash")), ["scan:hash"])
    cursor, some = r.scan(count=10)
    assert cursor != 0 and some
    expect(r.flushdb(), True)
    expect(r.dbsize(), 0)
    r.set("x", 1)
    expect(r.flushall(), True)
    expect(r.dbsize(), 0)


def transactions(r):
    with r.pipeline(transaction=True) as p:
        expect(p.set("t", 1).incr("t").get("t").execute(), [True, 2, "2"])
    with r.pipeline(transaction=True) as p:
        p.watch("t")
        seen = p.get("t")
        r.set("t", "other")
        p.multi()
        p.set("t", seen + "mine")
        try:
            p.execute()
            raise AssertionError("a watched key changed and EXEC went through")
        except redis.WatchError:
            pass
    expect(r.get("t"), "other")
    with r.pipeline(transaction=True) as p:
        p.watch("t")
        p.multi()
        p.set("t", "undisturbed")
        expect(p.execute(), [True])
    with r.pipeline(transaction=True) as p:
        p.set("t", "text").incr("t").set("u", "after")
        answers = p.execute(raise_on_error=False)
        assert isinstance(answers[1], redis.ResponseError), answers
        expect([answers[0], answers[2]], [True, True])
    with r.pipeline(transaction=False) as p:
        for i in range(500):
            p.set(f"t:{i}", i)
        expect(p.execute(), [True] * 500)
    one = connect(single_connection_client=True)
    one.execute_command("MULTI")
    expect(one.execute_command("DEL", "t"), "QUEUED")
    one.execute_command("DISCARD")
    expect(one.get("t"), "text")
    one.execute_command("MULTI")
    expect_error("unknown command", lambda: one.execute_command("NOSUCH"))
    expect_error("discarded because of previous errors", lambda: one.execute_command("EXEC"))
    r.flushall()


def notifications(r):
    heard = []
    listener = connect().pubsub()
    listener.psubscribe("__keyspace@0__:watched:*")
    listener.subscribe("__keyevent@0__:del")

    def listen():
        for message in listener.listen():
            if message["type"] in ("psubscribe", "subscribe"):
                subscribed.release()
            elif message["type"] in ("pmessage", "message"):
                heard.append((message["channel"], message["data"]))
                if len(heard) == 4:
                    return

    subscribed = threading.Semaphore(0)
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert subscribed.acquire(timeout=20) and subscribed.acquire(timeout=20)
    r.set("watched:a", 1)
    r.set("unwatched", 1)
    r.hset("watched:h", "a", 1)
    r.delete("watched:a")
    thread.join(timeout=20)
    expect(sorted(heard), [("__keyevent@0__:del", "watched:a"), ("__keyspace@0__:watched:a", "del"),
                           ("__keyspace@0__:watched:a", "set"), ("__keyspace@0__:watched:h", "hset")])
    listener.close()
    r.flushall()


def credentials():
    if "PORTOLAN_USER" not in os.environ:
        return
    for more in ({"password": "wrong"}, {"username": "nobody"}):
        try:
            connect(**more).ping()
        except redis.AuthenticationError:
            continue
        raise AssertionError(f"came in with {more}")


def main():
    r = connect()
    r.flushall()
    for part in (connection, strings, numbers, expiry, hashes, scans, transactions, notifications):
        part(r)
        print(f"redis-py {redis.__version__} RESP{RESP}: {part.__name__}")
    credentials()


main()
