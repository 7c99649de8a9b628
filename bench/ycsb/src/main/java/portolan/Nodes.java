package portolan;

import java.io.IOException;
import java.util.List;

/**
 * The nodes of a site, and a connection to one of them at a time. A thread has one of these. Threads begin
 * at different nodes, so that all of them work; after a failure a thread goes on to the next node.
 */
final class Nodes implements AutoCloseable {
  private final Settings settings;
  private int at;
  private Connection connection;

  Nodes(Settings settings, int first) {
    this.settings = settings;
    at = Math.floorMod(first, settings.nodes().size());
  }

  /** The connection; if there is none, a new one to the first node that takes it, each asked once. */
  Connection connection() throws IOException, ServerError {
    List<Settings.Address> nodes = settings.nodes();
    for (int tried = 1; connection == null; tried++) {
      try {
        connection = Connection.open(nodes.get(at), settings);
      } catch (IOException unreachable) {
        String node = nodes.get(at).toString();
        next();
        if (tried == nodes.size()) {
          throw new IOException("no node can be reached, last " + node + ": " + unreachable, unreachable);
        }
      }
    }
    return connection;
  }

  /** Gives this node up, for the time being. */
  void next() {
    close();
    at = (at + 1) % settings.nodes().size();
  }

  @Override
  public void close() {
    if (connection != null) {
      connection.close();
      connection = null;
    }
  }
}
