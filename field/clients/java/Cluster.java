// Counters and values in all slots, through an unmodified JedisCluster or Lettuce RedisClusterClient
// (which one is the argument), while slots move.
//
// The environment contains what cluster.py describes. Nothing may go wrong but what the client repairs by
// itself, and at the end every key holds what was written last and every counter what was added.

import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;

public class Cluster {
  static final int KEYS = 300;
  static final String PREFIX = System.getenv("PORTOLAN_PREFIX");
  static final String[] AT = System.getenv("PORTOLAN_REDIS").split(":");
  static final int MASTERS = Integer.parseInt(System.getenv("PORTOLAN_MASTERS"));

  /** What both clients can do. */
  interface Store extends AutoCloseable {
    void set(String key, String value);

    String get(String key);

    /** Adds one to each, in one pipeline. */
    List<Long> addToAll(List<String> keys);

    int masters();
  }

  static class OfJedis implements Store {
    final JedisCluster cluster =
        new JedisCluster(Set.of(new HostAndPort(AT[0], Integer.parseInt(AT[1]))), 20_000);

    public void set(String key, String value) {
      cluster.set(key, value);
    }

    public String get(String key) {
      return cluster.get(key);
    }

    /** A pipeline of Jedis follows no redirection (its documentation states that), so it counts one by one. */
    public List<Long> addToAll(List<String> keys) {
      return keys.stream().map(cluster::incr).toList();
    }

    public int masters() {
      // Every node of these sites is a master.
      return cluster.getClusterNodes().size();
    }

    public void close() {
      cluster.close();
    }
  }

  static class OfLettuce implements Store {
    final RedisClusterClient client =
        RedisClusterClient.create(RedisURI.create(AT[0], Integer.parseInt(AT[1])));
    final StatefulRedisClusterConnection<String, String> connection;

    OfLettuce() {
      // As its documentation advises for clusters whose slots move.
      ClusterTopologyRefreshOptions refresh =
          ClusterTopologyRefreshOptions.builder().enableAllAdaptiveRefreshTriggers().build();
      client.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(refresh).build());
      connection = client.connect();
      connection.setTimeout(Duration.ofSeconds(20));
    }

    public void set(String key, String value) {
      connection.sync().set(key, value);
    }

    public String get(String key) {
      return connection.sync().get(key);
    }

    public List<Long> addToAll(List<String> keys) {
      List<RedisFuture<Long>> answers = new ArrayList<>();
      for (String key : keys) {
        answers.add(connection.async().incr(key));
      }
      LettuceFutures.awaitAll(Duration.ofSeconds(60), answers.toArray(new RedisFuture[0]));
      return answers.stream().map(answer -> answer.toCompletableFuture().join()).toList();
    }

    public int masters() {
      return (int) client.getPartitions().stream().filter(node -> node.getRole().isUpstream()).count();
    }

    public void close() {
      connection.close();
      client.shutdown();
    }
  }

  static void check(boolean holds, String what) {
    if (!holds) {
      throw new IllegalStateException(what);
    }
  }

  public static void main(String[] arguments) throws Exception {
    String library = arguments[0];
    Path stop = Path.of(System.getenv("PORTOLAN_STOP"));
    try (Store store = library.equals("jedis") ? new OfJedis() : new OfLettuce()) {
      List<String> counters = new ArrayList<>();
      for (int key = 0; key < KEYS; key++) {
        counters.add(PREFIX + "n" + key);
      }
      int rounds = 0;
      while (rounds == 0 || !Files.exists(stop)) {
        rounds++;
        String value = Integer.toString(rounds);
        for (int key = 0; key < KEYS; key++) {
          store.set(PREFIX + key, value);
          String seen = store.get(PREFIX + key);
          check(value.equals(seen), key + " holds " + seen + " in round " + rounds);
        }
        long count = rounds;
        List<Long> counts = store.addToAll(counters);
        check(counts.stream().allMatch(one -> one == count), counts + " in round " + rounds);
        if (rounds == 1) {
          Files.createFile(Path.of(System.getenv("PORTOLAN_STARTED")));
        }
      }
      String last = Integer.toString(rounds);
      for (int key = 0; key < KEYS; key++) {
        check(last.equals(store.get(PREFIX + key)), "key " + key);
        check(last.equals(store.get(PREFIX + "n" + key)), "counter " + key);
      }
      System.out.printf(
          "%s: %d rounds of %d keys, %d masters%n", library, rounds, KEYS, store.masters());
      check(store.masters() == MASTERS, "that is another number of masters");
    }
  }
}
