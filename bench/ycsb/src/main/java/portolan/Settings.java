package portolan;

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import site.ycsb.DBException;

/** The properties, checked. README.md describes each. */
record Settings(
    List<Address> nodes,
    String localPrefix,
    String globalPrefix,
    double globalProportion,
    String user,
    String password,
    int connectTimeoutMs,
    int timeoutMs,
    boolean ordered,
    int zeroPadding,
    boolean readsBeforeWriting,
    boolean scans) {

  /** Where a node's Redis port is. */
  record Address(String host, int port) {
    static Address parse(String text) throws DBException {
      int colon = text.lastIndexOf(':');
      try {
        String host = text.substring(0, Math.max(colon, 0));
        if (host.startsWith("[") && host.endsWith("]")) {
          host = host.substring(1, host.length() - 1);
        }
        int port = Integer.parseInt(text.substring(colon + 1));
        if (!host.isEmpty() && port > 0 && port < 65_536) {
          return new Address(host, port);
        }
      } catch (NumberFormatException noPort) {
        // Reported below.
      }
      throw new DBException("portolan.hosts: not HOST:PORT: '" + text + "'");
    }

    @Override
    public String toString() {
      return host + ":" + port;
    }
  }

  /** Only these exist: a property that is spelled wrong would measure something else in silence. */
  private static final Set<String> KNOWN =
      Set.of(
          "portolan.hosts",
          "portolan.site",
          "portolan.local_prefix",
          "portolan.global_prefix",
          "portolan.global_proportion",
          "portolan.user",
          "portolan.password",
          "portolan.connect_timeout_ms",
          "portolan.timeout_ms");

  static Settings of(Properties properties) throws DBException {
    for (String name : properties.stringPropertyNames()) {
      if (name.startsWith("portolan.") && !KNOWN.contains(name)) {
        throw new DBException("there is no property " + name + "; see bench/ycsb/README.md");
      }
    }
    String user = properties.getProperty("portolan.user");
    // Arguments of a process can be seen by everybody on its machine, its environment cannot.
    String password = properties.getProperty("portolan.password", System.getenv("PORTOLAN_PASSWORD"));
    if (user != null && password == null) {
      throw new DBException(
          "portolan.user is given without a password: set PORTOLAN_PASSWORD or portolan.password");
    }
    String local = properties.getProperty("portolan.local_prefix", "local:");
    String global = properties.getProperty("portolan.global_prefix", "global:");
    if (local.equals(global)) {
      throw new DBException("portolan.local_prefix and portolan.global_prefix are the same");
    }
    return new Settings(
        site(properties),
        local,
        global,
        number(properties, "portolan.global_proportion", 0.5, 0, 1),
        user,
        password,
        (int) number(properties, "portolan.connect_timeout_ms", 2_000, 1, 600_000),
        // A node gives a request up after 10 s and reports that; a client that waits less gets no report.
        (int) number(properties, "portolan.timeout_ms", 12_000, 1, 600_000),
        properties.getProperty("insertorder", "hashed").equals("ordered"),
        (int) number(properties, "zeropadding", 1, 0, 100),
        number(properties, "readmodifywriteproportion", 0, 0, 1) > 0,
        number(properties, "scanproportion", 0, 0, 1) > 0);
  }

  /** The nodes of our own site, of {@code a1,a2;b1,b2}. */
  private static List<Address> site(Properties properties) throws DBException {
    String[] sites = properties.getProperty("portolan.hosts", "127.0.0.1:7379").split(";", -1);
    int site = (int) number(properties, "portolan.site", 1, 1, sites.length);
    List<Address> nodes = new ArrayList<>();
    for (String node : sites[site - 1].split(",", -1)) {
      nodes.add(Address.parse(node.trim()));
    }
    return List.copyOf(nodes);
  }

  private static double number(
      Properties properties, String name, double otherwise, double least, double most)
      throws DBException {
    String text = properties.getProperty(name);
    if (text == null) {
      return otherwise;
    }
    try {
      double number = Double.parseDouble(text);
      if (number >= least && number <= most) {
        return number;
      }
    } catch (NumberFormatException notANumber) {
      // Reported below.
    }
    throw new DBException(name + ": not a number from " + least + " to " + most + ": " + text);
  }
}
