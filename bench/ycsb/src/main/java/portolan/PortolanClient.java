package portolan;

import java.io.IOException;
import java.net.ProtocolException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;
import site.ycsb.measurements.Measurements;

/**
 * YCSB's operations on Portolan, by its Redis port. A record is a hash, and there are two of each: a local
 * and a global one ({@link Locality}). Portolan finds the keyspace by the prefix of the key. YCSB's table
 * has no counterpart and is left out of the key.
 *
 * <p>YCSB makes one of these a thread, so nothing here is shared. Nothing is repeated either: an operation
 * that fails is counted as failed, and the next one goes to another node if that may help.
 *
 * <p>Besides what YCSB measures, operations are measured by copy: {@code READ-LOCAL}, {@code READ-GLOBAL}
 * and so on.
 */
public final class PortolanClient extends DB {
  /** So many reads of a scan are under way at once: enough to be quick, few enough for any buffer. */
  private static final int SCAN_BATCH = 100;

  private static final AtomicInteger THREADS = new AtomicInteger();

  private Settings settings;
  private Nodes nodes;
  private Locality locality;
  private Measurements measurements;

  /** What is done on a connection. */
  private interface Exchange {
    Status with(Connection connection) throws IOException, ServerError;
  }

  @Override
  public void init() throws DBException {
    settings = Settings.of(getProperties());
    if (settings.scans() && !settings.ordered()) {
      throw new DBException("scans need insertorder=ordered, for the load as for the run");
    }
    locality =
        new Locality(
            settings.globalProportion(),
            settings.readsBeforeWriting(),
            () -> ThreadLocalRandom.current().nextDouble());
    measurements = Measurements.getMeasurements();
    nodes = new Nodes(settings, THREADS.getAndIncrement());
    try {
      nodes.connection();
    } catch (IOException | ServerError failed) {
      throw new DBException("cannot begin: " + failed.getMessage(), failed);
    }
  }

  @Override
  public void cleanup() {
    nodes.close();
  }

  @Override
  public Status read(
      String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    Locality.Copy copy = locality.forRead(key);
    return measured(
        "READ",
        copy,
        false,
        connection -> {
          connection.send(reading(name(copy, key), fields));
          Map<String, ByteIterator> record = record(connection.receive(), fields);
          result.putAll(record);
          return record.isEmpty() ? Status.NOT_FOUND : Status.OK;
        });
  }

  @Override
  public Status scan(
      String table,
      String startKey,
      int count,
      Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    Locality.Copy copy = locality.forScan();
    List<String> keys = OrderedKeys.from(startKey, count, settings.zeroPadding());
    return measured(
        "SCAN",
        copy,
        false,
        connection -> {
          for (int from = 0; from < keys.size(); from += SCAN_BATCH) {
            List<String> batch = keys.subList(from, Math.min(from + SCAN_BATCH, keys.size()));
            result.addAll(records(connection, copy, batch, fields));
          }
          return result.isEmpty() ? Status.NOT_FOUND : Status.OK;
        });
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    Locality.Copy copy = locality.forUpdate(key);
    List<byte[]> command = writing(name(copy, key), values);
    return measured("UPDATE", copy, true, connection -> done(connection, command));
  }

  /** Makes both copies, one after the other. */
  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    // The values can be taken only once.
    List<byte[]> command = writing("", values);
    for (Locality.Copy copy : Locality.Copy.values()) {
      command.set(1, Connection.bytes(name(copy, key)));
      Status status = measured("INSERT", copy, true, connection -> done(connection, command));
      if (!status.isOk()) {
        return status;
      }
    }
    return Status.OK;
  }

  /** Removes both copies. */
  @Override
  public Status delete(String table, String key) {
    boolean found = false;
    for (Locality.Copy copy : Locality.Copy.values()) {
      List<byte[]> command = List.of(Connection.bytes("DEL"), Connection.bytes(name(copy, key)));
      Status status =
          measured(
              "DELETE",
              copy,
              true,
              connection -> {
                connection.send(command);
                return number(connection.receive()) > 0 ? Status.OK : Status.NOT_FOUND;
              });
      if (!status.isOk() && !status.equals(Status.NOT_FOUND)) {
        return status;
      }
      found |= status.isOk();
    }
    return found ? Status.OK : Status.NOT_FOUND;
  }

  private String name(Locality.Copy copy, String key) {
    return switch (copy) {
      case LOCAL -> settings.localPrefix() + key;
      case GLOBAL -> settings.globalPrefix() + key;
    };
  }

  private Status measured(String operation, Locality.Copy copy, boolean write, Exchange exchange) {
    long began = System.nanoTime();
    Status status = exchanged(write, exchange);
    int tookUs = (int) Math.min(Integer.MAX_VALUE, (System.nanoTime() - began) / 1_000);
    String of = operation + "-" + copy;
    measurements.measure(status.isOk() ? of : of + "-FAILED", tookUs);
    measurements.reportStatus(of, status);
    return status;
  }

  private Status exchanged(boolean write, Exchange exchange) {
    Connection connection;
    try {
      connection = nodes.connection();
    } catch (IOException unreachable) {
      return Outcome.unreachable(unreachable);
    } catch (ServerError refused) {
      nodes.next();
      return Outcome.of(refused);
    }
    try {
      return exchange.with(connection);
    } catch (ServerError refused) {
      if (Outcome.anotherNode(refused)) {
        nodes.next();
      }
      return Outcome.of(refused);
    } catch (IOException broken) {
      nodes.next();
      return Outcome.broken(write, broken);
    }
  }

  private static List<byte[]> reading(String name, Set<String> fields) {
    List<byte[]> command = new ArrayList<>();
    command.add(Connection.bytes(fields == null ? "HGETALL" : "HMGET"));
    command.add(Connection.bytes(name));
    if (fields != null) {
      fields.forEach(field -> command.add(Connection.bytes(field)));
    }
    return command;
  }

  private static List<byte[]> writing(String name, Map<String, ByteIterator> values) {
    List<byte[]> command = new ArrayList<>();
    command.add(Connection.bytes("HSET"));
    command.add(Connection.bytes(name));
    values.forEach(
        (field, value) -> {
          command.add(Connection.bytes(field));
          command.add(value.toArray());
        });
    return command;
  }

  private static Status done(Connection connection, List<byte[]> command)
      throws IOException, ServerError {
    connection.send(command);
    number(connection.receive());
    return Status.OK;
  }

  private List<HashMap<String, ByteIterator>> records(
      Connection connection, Locality.Copy copy, List<String> keys, Set<String> fields)
      throws IOException, ServerError {
    for (String key : keys) {
      connection.send(reading(name(copy, key), fields));
    }
    // All answers first: one that is left behind would be taken for the next one's.
    List<Reply> replies = new ArrayList<>();
    for (int i = 0; i < keys.size(); i++) {
      replies.add(connection.receive());
    }
    List<HashMap<String, ByteIterator>> records = new ArrayList<>();
    for (Reply reply : replies) {
      HashMap<String, ByteIterator> record = record(reply, fields);
      if (!record.isEmpty()) {
        records.add(record);
      }
    }
    return records;
  }

  /** What HGETALL (all fields) or HMGET (those asked for, in their order) was answered with. */
  private static HashMap<String, ByteIterator> record(Reply reply, Set<String> fields)
      throws IOException, ServerError {
    if (!(Connection.accepted(reply) instanceof Reply.Items items)) {
      throw new ProtocolException("not the fields of a hash");
    }
    List<Reply> values = items.values();
    HashMap<String, ByteIterator> record = new HashMap<>();
    if (fields == null) {
      if (values.size() % 2 != 0) {
        throw new ProtocolException("a field without a value");
      }
      for (int i = 0; i < values.size(); i += 2) {
        put(record, new String(bytes(values.get(i)), StandardCharsets.UTF_8), values.get(i + 1));
      }
      return record;
    }
    if (values.size() != fields.size()) {
      throw new ProtocolException("not as many values as fields");
    }
    int at = 0;
    for (String field : fields) {
      Reply value = values.get(at++);
      if (!(value instanceof Reply.Nothing)) {
        put(record, field, value);
      }
    }
    return record;
  }

  private static void put(Map<String, ByteIterator> record, String field, Reply value)
      throws ProtocolException {
    record.put(field, new ByteArrayByteIterator(bytes(value)));
  }

  private static byte[] bytes(Reply reply) throws ProtocolException {
    if (reply instanceof Reply.Bytes bytes) {
      return bytes.value();
    }
    throw new ProtocolException("not a string: " + reply);
  }

  private static long number(Reply reply) throws IOException, ServerError {
    if (Connection.accepted(reply) instanceof Reply.Number number) {
      return number.value();
    }
    throw new ProtocolException("not a number: " + reply);
  }
}
