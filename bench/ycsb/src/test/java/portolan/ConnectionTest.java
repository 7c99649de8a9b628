package portolan;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.EOFException;
import java.io.IOException;
import java.net.ProtocolException;
import java.net.SocketTimeoutException;
import java.util.List;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ConnectionTest {
  private static Connection open(FakeServer server, String... more) throws Exception {
    Properties properties = new Properties();
    properties.setProperty("portolan.hosts", server.address());
    for (int i = 0; i < more.length; i += 2) {
      properties.setProperty(more[i], more[i + 1]);
    }
    Settings settings = Settings.of(properties);
    return Connection.open(settings.nodes().get(0), settings);
  }

  /** What a client makes of an answer. */
  private static Reply answered(String answer) throws Exception {
    try (FakeServer server = new FakeServer(command -> answer);
        Connection connection = open(server)) {
      return connection.call(Connection.bytes("PING"));
    }
  }

  @Test
  void answersOfEveryKindAreRead() throws Exception {
    assertEquals(new Reply.Line("PONG"), answered("+PONG\r\n"));
    assertEquals(new Reply.Number(-7), answered(":-7\r\n"));
    assertEquals(new Reply.Nothing(), answered("$-1\r\n"));
    assertEquals(new Reply.Nothing(), answered("*-1\r\n"));
    assertEquals(new Reply.Items(List.of()), answered("*0\r\n"));
    assertEquals(
        new Reply.Items(
            List.of(new Reply.Number(1), new Reply.Items(List.of(new Reply.Failure("ERR no"))))),
        answered("*2\r\n:1\r\n*1\r\n-ERR no\r\n"));
    Reply.Bytes bytes = assertInstanceOf(Reply.Bytes.class, answered("$6\r\na\r\nb:c\r\n"));
    assertArrayEquals(Connection.bytes("a\r\nb:c"), bytes.value());
  }

  @Test
  void anErrorIsThrownAndTheConnectionGoesOn() throws Exception {
    try (FakeServer server =
            new FakeServer(command -> command.equals("BAD") ? "-CLUSTERDOWN no leader\r\n" : "+OK\r\n");
        Connection connection = open(server)) {
      ServerError error =
          assertThrows(ServerError.class, () -> connection.call(Connection.bytes("BAD")));
      assertEquals("CLUSTERDOWN", error.code());
      assertEquals(new Reply.Line("OK"), connection.call(Connection.bytes("GOOD")));
    }
  }

  @Test
  void wordsMayHoldAnything() throws Exception {
    try (FakeServer server = new FakeServer(command -> "+OK\r\n");
        Connection connection = open(server)) {
      connection.call(Connection.bytes("SET"), Connection.bytes(""), Connection.bytes("é\r\n$1"));
      assertEquals(List.of("SET  é\r\n$1"), server.commands);
    }
  }

  @Test
  void aUserLogsInFirst() throws Exception {
    try (FakeServer server = new FakeServer(command -> "+OK\r\n");
        Connection connection =
            open(server, "portolan.user", "fleet", "portolan.password", "secret")) {
      connection.call(Connection.bytes("PING"));
      assertEquals(List.of("AUTH fleet secret", "PING"), server.commands);
    }
    try (FakeServer server = new FakeServer(command -> "-WRONGPASS no\r\n")) {
      assertThrows(
          ServerError.class,
          () -> open(server, "portolan.user", "fleet", "portolan.password", "wrong"));
    }
  }

  @Test
  void aServerThatSaysNothingIsNotWaitedForLong() throws Exception {
    try (FakeServer server = new FakeServer(command -> "");
        Connection connection = open(server, "portolan.timeout_ms", "50")) {
      assertThrows(
          SocketTimeoutException.class, () -> connection.call(Connection.bytes("PING")));
    }
  }

  @Test
  void aServerThatLeavesIsNoticed() throws Exception {
    try (FakeServer server = new FakeServer(command -> null);
        Connection connection = open(server)) {
      assertThrows(IOException.class, () -> connection.call(Connection.bytes("PING")));
    }
    try (FakeServer server =
            new FakeServer(command -> command.equals("PING") ? "$10\r\nhalf" : null);
        Connection connection = open(server)) {
      connection.send(List.of(Connection.bytes("PING")));
      connection.send(List.of(Connection.bytes("LEAVE")));
      assertThrows(EOFException.class, connection::receive);
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "\r\n",
        "?\r\n",
        "+OK\rX",
        ":seven\r\n",
        ":99999999999999999999\r\n",
        "$-2\r\n",
        "$67108865\r\n",
        "$1\r\nab\r\n",
        "*1048577\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
      })
  void whatIsNotTheProtocolIsRefused(String answer) {
    assertThrows(ProtocolException.class, () -> answered(answer));
  }

  @Test
  void aLineHasALimit() {
    assertThrows(ProtocolException.class, () -> answered("+" + "x".repeat(65 * 1024) + "\r\n"));
  }
}
