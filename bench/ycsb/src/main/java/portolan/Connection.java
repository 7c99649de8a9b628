package portolan;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.ProtocolException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * A connection to one node, in RESP2: a command is an array of strings, and so is every answer one of
 * {@link Reply}. After an {@link IOException} it is unknown which answer belongs to what, so the connection
 * must be closed.
 */
final class Connection implements AutoCloseable {
  /** The longest status, error or length; the protocol has no need of more. */
  private static final int LINE_BYTES_MAX = 64 * 1024;

  /** The longest value that Portolan keeps. */
  private static final int VALUE_BYTES_MAX = 64 * 1024 * 1024;

  private static final int ITEMS_MAX = 1024 * 1024;

  /** Arrays in arrays. Nothing that is asked here is answered with more than one. */
  private static final int DEPTH_MAX = 4;

  private final Socket socket;
  private final InputStream in;
  private final OutputStream out;

  private Connection(Socket socket) throws IOException {
    this.socket = socket;
    in = new BufferedInputStream(socket.getInputStream(), 16 * 1024);
    out = new BufferedOutputStream(socket.getOutputStream(), 16 * 1024);
  }

  /** Connects, and logs in where the settings name a user. */
  static Connection open(Settings.Address address, Settings settings)
      throws IOException, ServerError {
    Socket socket = new Socket();
    try {
      socket.setTcpNoDelay(true);
      socket.setSoTimeout(settings.timeoutMs());
      socket.connect(
          new InetSocketAddress(address.host(), address.port()), settings.connectTimeoutMs());
      Connection connection = new Connection(socket);
      if (settings.user() != null) {
        connection.call(bytes("AUTH"), bytes(settings.user()), bytes(settings.password()));
      }
      return connection;
    } catch (IOException | ServerError | RuntimeException failed) {
      socket.close();
      throw failed;
    }
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** Sends a command and waits for its answer. */
  Reply call(byte[]... words) throws IOException, ServerError {
    send(List.of(words));
    return accepted(receive());
  }

  /** The answer, unless it is an error. */
  static Reply accepted(Reply reply) throws ServerError {
    if (reply instanceof Reply.Failure failure) {
      throw new ServerError(failure.text());
    }
    return reply;
  }

  /** Writes a command, which leaves at the next {@link #receive} at the latest. */
  void send(List<byte[]> words) throws IOException {
    out.write(bytes("*" + words.size() + "\r\n"));
    for (byte[] word : words) {
      out.write(bytes("$" + word.length + "\r\n"));
      out.write(word);
      out.write('\r');
      out.write('\n');
    }
  }

  /** The answer to the oldest command that has none yet. */
  Reply receive() throws IOException {
    out.flush();
    return reply(0);
  }

  private Reply reply(int depth) throws IOException {
    String line = line();
    if (line.isEmpty()) {
      throw new ProtocolException("an empty line where an answer should begin");
    }
    String rest = line.substring(1);
    switch (line.charAt(0)) {
      case '+':
        return new Reply.Line(rest);
      case '-':
        return new Reply.Failure(rest);
      case ':':
        return new Reply.Number(number(rest, Long.MIN_VALUE, Long.MAX_VALUE));
      case '$':
        int length = (int) number(rest, -1, VALUE_BYTES_MAX);
        return length < 0 ? new Reply.Nothing() : new Reply.Bytes(value(length));
      case '*':
        int count = (int) number(rest, -1, ITEMS_MAX);
        if (count < 0) {
          return new Reply.Nothing();
        }
        if (depth == DEPTH_MAX) {
          throw new ProtocolException("arrays in arrays, deeper than " + DEPTH_MAX);
        }
        List<Reply> items = new ArrayList<>(Math.min(count, 1024));
        for (int i = 0; i < count; i++) {
          items.add(reply(depth + 1));
        }
        return new Reply.Items(items);
      default:
        throw new ProtocolException("an answer that begins with " + (int) line.charAt(0));
    }
  }

  private String line() throws IOException {
    StringBuilder line = new StringBuilder();
    for (; ; ) {
      int next = in.read();
      if (next < 0) {
        throw new EOFException("the server closed the connection");
      }
      if (next == '\r') {
        if (in.read() != '\n') {
          throw new ProtocolException("a line that does not end as lines do");
        }
        return line.toString();
      }
      if (line.length() == LINE_BYTES_MAX) {
        throw new ProtocolException("a line longer than " + LINE_BYTES_MAX + " bytes");
      }
      line.append((char) next);
    }
  }

  private byte[] value(int length) throws IOException {
    byte[] value = in.readNBytes(length);
    if (value.length < length) {
      throw new EOFException("the server closed the connection within a value");
    }
    if (in.read() != '\r' || in.read() != '\n') {
      throw new ProtocolException("a value longer than its stated length");
    }
    return value;
  }

  private static long number(String text, long least, long most) throws ProtocolException {
    try {
      long number = Long.parseLong(text);
      if (number >= least && number <= most) {
        return number;
      }
    } catch (NumberFormatException notANumber) {
      // Reported below, as a number out of its range is.
    }
    throw new ProtocolException("not a number from " + least + " to " + most + ": " + text);
  }

  @Override
  public void close() {
    try {
      socket.close();
    } catch (IOException ignored) {
      // It is gone either way.
    }
  }
}
