package portolan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;
import java.util.function.Function;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import site.ycsb.ByteIterator;
import site.ycsb.DBException;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;
import site.ycsb.measurements.Measurements;

class PortolanClientTest {
  @BeforeAll
  static void measure() {
    Measurements.setProperties(new Properties());
  }

  private static PortolanClient client(String hosts, String... more) throws DBException {
    Properties properties = new Properties();
    properties.setProperty("portolan.hosts", hosts);
    for (int i = 0; i < more.length; i += 2) {
      properties.setProperty(more[i], more[i + 1]);
    }
    PortolanClient client = new PortolanClient();
    client.setProperties(properties);
    client.init();
    return client;
  }

  private static Map<String, ByteIterator> values(String... pairs) {
    return StringByteIterator.getByteIteratorMap(Map.of(pairs[0], pairs[1]));
  }

  private static Status read(PortolanClient client, Map<String, String> into) {
    Map<String, ByteIterator> result = new HashMap<>();
    Status status = client.read("usertable", "user7", null, result);
    into.putAll(StringByteIterator.getStringMap(result));
    return status;
  }

  @Test
  void aRecordIsMadeTwice() throws Exception {
    try (FakeServer server = new FakeServer(command -> ":1\r\n")) {
      PortolanClient client = client(server.address());
      assertEquals(Status.OK, client.insert("usertable", "user7", values("field0", "hello")));
      assertEquals(
          List.of("HSET local:user7 field0 hello", "HSET global:user7 field0 hello"),
          server.commands);
      client.cleanup();
    }
  }

  @Test
  void aRecordThatCouldNotBeMadeOnceIsNotMadeTwice() throws Exception {
    try (FakeServer server = new FakeServer(command -> "-MISCONF the disk is full\r\n")) {
      PortolanClient client = client(server.address());
      assertEquals(
          Status.SERVICE_UNAVAILABLE, client.insert("usertable", "user7", values("f", "v")));
      assertEquals(1, server.commands.size());
      client.cleanup();
    }
  }

  @Test
  void oneCopyIsReadOrUpdated() throws Exception {
    try (FakeServer server =
        new FakeServer(c -> c.startsWith("HGETALL") ? "*2\r\n$1\r\nf\r\n$2\r\nok\r\n" : ":0\r\n")) {
      for (String proportion : List.of("0", "1")) {
        server.commands.clear();
        PortolanClient client =
            client(server.address(), "portolan.global_proportion", proportion,
                "portolan.local_prefix", "here/", "portolan.global_prefix", "everywhere/");
        Map<String, String> found = new HashMap<>();
        assertEquals(Status.OK, read(client, found));
        assertEquals(Map.of("f", "ok"), found);
        assertEquals(Status.OK, client.update("usertable", "user7", values("f", "new")));
        String name = (proportion.equals("0") ? "here/" : "everywhere/") + "user7";
        assertEquals(List.of("HGETALL " + name, "HSET " + name + " f new"), server.commands);
        client.cleanup();
      }
    }
  }

  @Test
  void someFieldsAreReadByName() throws Exception {
    try (FakeServer server =
        new FakeServer(
            command ->
                command.equals("HMGET local:user7 f") ? "*1\r\n$2\r\nok\r\n" : "*1\r\n$-1\r\n")) {
      PortolanClient client = client(server.address(), "portolan.global_proportion", "0");
      Map<String, ByteIterator> result = new HashMap<>();
      assertEquals(Status.OK, client.read("usertable", "user7", Set.of("f"), result));
      assertEquals(Map.of("f", "ok"), StringByteIterator.getStringMap(result));
      assertEquals(
          Status.NOT_FOUND, client.read("usertable", "user8", Set.of("f"), new HashMap<>()));
      client.cleanup();
    }
  }

  @Test
  void whatIsNotThereIsNotFound() throws Exception {
    try (FakeServer server =
        new FakeServer(command -> command.startsWith("DEL") ? ":0\r\n" : "*0\r\n")) {
      PortolanClient client = client(server.address());
      assertEquals(Status.NOT_FOUND, read(client, new HashMap<>()));
      assertEquals(Status.NOT_FOUND, client.delete("usertable", "user7"));
      assertTrue(
          server.commands.containsAll(List.of("DEL local:user7", "DEL global:user7")),
          server.commands.toString());
      client.cleanup();
    }
  }

  @Test
  void aScanReadsTheRecordsThatFollow() throws Exception {
    Function<String, String> answers =
        command ->
            command.endsWith("user9") ? "*0\r\n" : "*2\r\n$1\r\nf\r\n$" + command.length() + "\r\n"
                + command + "\r\n";
    try (FakeServer server = new FakeServer(answers)) {
      PortolanClient client =
          client(server.address(), "portolan.global_proportion", "1", "insertorder", "ordered",
              "scanproportion", "0.95");
      Vector<HashMap<String, ByteIterator>> result = new Vector<>();
      assertEquals(Status.OK, client.scan("usertable", "user8", 250, null, result));
      assertEquals(250, server.commands.size());
      // One of them does not exist.
      assertEquals(249, result.size());
      assertEquals("HGETALL global:user8", result.get(0).get("f").toString());
      assertEquals("HGETALL global:user257", result.get(248).get("f").toString());
      client.cleanup();
    }
  }

  @Test
  void anErrorWithinAScanLeavesNoAnswerBehind() throws Exception {
    Function<String, String> answers =
        command -> {
          String name = command.substring(command.indexOf(':') + 1);
          return name.equals("user8")
              ? "-TRYAGAIN too much\r\n"
              : "*2\r\n$1\r\nf\r\n$" + name.length() + "\r\n" + name + "\r\n";
        };
    try (FakeServer server = new FakeServer(answers)) {
      PortolanClient client =
          client(server.address(), "insertorder", "ordered", "scanproportion", "1");
      assertEquals(
          Status.SERVICE_UNAVAILABLE,
          client.scan("usertable", "user7", 5, null, new Vector<>()));
      Map<String, String> found = new HashMap<>();
      assertEquals(Status.OK, read(client, found));
      assertEquals(Map.of("f", "user7"), found);
      assertEquals(1, server.connected());
      client.cleanup();
    }
  }

  @Test
  void scansOfHashedNamesAreRefused() throws Exception {
    try (FakeServer server = new FakeServer(command -> "+OK\r\n")) {
      assertThrows(
          DBException.class, () -> client(server.address(), "scanproportion", "0.95").cleanup());
    }
  }

  @ParameterizedTest
  @CsvSource({
    "UNKNOWN, UNKNOWN_OUTCOME",
    "CLUSTERDOWN, SERVICE_UNAVAILABLE",
    "TRYAGAIN, SERVICE_UNAVAILABLE",
    "LOADING, SERVICE_UNAVAILABLE",
    "MISCONF, SERVICE_UNAVAILABLE",
    "NOAUTH, FORBIDDEN",
    "NOPERM, FORBIDDEN",
    "ERR, BAD_REQUEST",
    "WRONGTYPE, BAD_REQUEST",
    "CROSSSLOT, BAD_REQUEST",
    "MOVED, UNEXPECTED_STATE",
  })
  void errorsHaveTheirStatus(String code, String status) throws Exception {
    try (FakeServer server = new FakeServer(command -> "-" + code + " because\r\n")) {
      PortolanClient client = client(server.address());
      assertEquals(status, client.update("usertable", "user7", values("f", "v")).getName());
      client.cleanup();
    }
  }

  @Test
  void aWriteWithoutAnswerIsUnknownAndAReadIsNot() throws Exception {
    try (FakeServer server = new FakeServer(command -> null)) {
      PortolanClient client = client(server.address());
      assertEquals(Outcome.UNKNOWN, client.update("usertable", "user7", values("f", "v")));
      assertEquals(Status.SERVICE_UNAVAILABLE, read(client, new HashMap<>()));
      // Neither was repeated behind YCSB's back.
      assertEquals(2, server.commands.size());
      client.cleanup();
    }
    try (FakeServer server = new FakeServer(command -> "")) {
      PortolanClient client = client(server.address(), "portolan.timeout_ms", "50");
      assertEquals(Outcome.UNKNOWN, client.update("usertable", "user7", values("f", "v")));
      client.cleanup();
    }
  }

  @Test
  void afterAFailureTheNextNodeIsAsked() throws Exception {
    try (FakeServer down = new FakeServer(command -> "-CLUSTERDOWN no leader\r\n");
        FakeServer up = new FakeServer(command -> ":0\r\n")) {
      // Two threads, so that one of them begins at the one that is down.
      int failed = 0;
      for (int thread = 0; thread < 2; thread++) {
        PortolanClient client = client(down.address() + "," + up.address());
        for (int i = 0; i < 5; i++) {
          failed += client.update("usertable", "user7", values("f", "v")).isOk() ? 0 : 1;
        }
        client.cleanup();
      }
      assertEquals(1, failed);
      assertEquals(1, down.commands.size());
      assertEquals(9, up.commands.size());
    }
  }

  @Test
  void aNodeThatIsGoneIsPassedOver() throws Exception {
    FakeServer gone = new FakeServer(command -> ":0\r\n");
    gone.close();
    try (FakeServer up = new FakeServer(command -> ":0\r\n")) {
      // Two threads, so that one of them begins at the one that is gone.
      for (int thread = 0; thread < 2; thread++) {
        PortolanClient client = client(gone.address() + "," + up.address());
        assertEquals(Status.OK, client.update("usertable", "user7", values("f", "v")));
        client.cleanup();
      }
    }
    assertThrows(DBException.class, () -> client(gone.address()));
  }
}
