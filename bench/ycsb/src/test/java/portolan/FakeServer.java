package portolan;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Function;

/**
 * A server in this process that reads commands strictly and answers with whatever bytes the test sets: a
 * command's words joined by spaces go in, the answer comes out. {@code null} closes the connection.
 */
final class FakeServer implements AutoCloseable {
  final List<String> commands = new CopyOnWriteArrayList<>();
  private final List<Socket> connections = new CopyOnWriteArrayList<>();
  private final ServerSocket listener;

  FakeServer(Function<String, String> answers) throws IOException {
    listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    begin(
        () -> {
          for (; ; ) {
            Socket connection = listener.accept();
            connections.add(connection);
            begin(() -> serve(connection, answers));
          }
        });
  }

  int port() {
    return listener.getLocalPort();
  }

  String address() {
    return "127.0.0.1:" + port();
  }

  int connected() {
    return connections.size();
  }

  private interface Work {
    void run() throws IOException;
  }

  private static void begin(Work work) {
    Thread thread =
        new Thread(
            () -> {
              try {
                work.run();
              } catch (IOException over) {
                // Closed, by either side.
              }
            });
    thread.setDaemon(true);
    thread.start();
  }

  private void serve(Socket connection, Function<String, String> answers) throws IOException {
    try (connection) {
      InputStream in = new BufferedInputStream(connection.getInputStream());
      for (; ; ) {
        List<String> words = new ArrayList<>();
        int count = header(in, '*');
        for (int i = 0; i < count; i++) {
          int length = header(in, '$');
          words.add(new String(in.readNBytes(length), StandardCharsets.UTF_8));
          expect(in, '\r');
          expect(in, '\n');
        }
        String command = String.join(" ", words);
        commands.add(command);
        String answer = answers.apply(command);
        if (answer == null) {
          return;
        }
        connection.getOutputStream().write(answer.getBytes(StandardCharsets.UTF_8));
      }
    }
  }

  private static int header(InputStream in, char kind) throws IOException {
    expect(in, kind);
    int number = 0;
    for (int next = in.read(); next != '\r'; next = in.read()) {
      if (next < '0' || next > '9') {
        throw new IOException("not a length");
      }
      number = number * 10 + next - '0';
    }
    expect(in, '\n');
    return number;
  }

  private static void expect(InputStream in, char expected) throws IOException {
    if (in.read() != expected) {
      throw new IOException("not " + expected);
    }
  }

  @Override
  public void close() throws IOException {
    listener.close();
    for (Socket connection : connections) {
      connection.close();
    }
  }
}
