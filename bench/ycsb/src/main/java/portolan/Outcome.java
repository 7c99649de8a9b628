package portolan;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import site.ycsb.Status;

/**
 * What YCSB gets for an operation that did not succeed.
 *
 * <p>YCSB has no status for a write of which it is unknown whether it was done. Portolan never calls that a
 * failure, so it gets a status of its own.
 */
final class Outcome {
  static final Status UNKNOWN =
      new Status("UNKNOWN_OUTCOME", "It is unknown whether the write was done.");

  /** So many kinds of trouble are reported in words, each once; all are counted. */
  private static final int TOLD_MAX = 20;

  private static final Set<String> TOLD = ConcurrentHashMap.newKeySet();

  private Outcome() {}

  /** The status for a server's error. */
  static Status of(ServerError error) {
    tell(error.code(), error.getMessage());
    return switch (error.code()) {
      case "UNKNOWN" -> UNKNOWN;
      case "CLUSTERDOWN", "TRYAGAIN", "LOADING", "MISCONF" -> Status.SERVICE_UNAVAILABLE;
      case "NOAUTH", "WRONGPASS", "NOPERM" -> Status.FORBIDDEN;
      case "ERR", "WRONGTYPE", "CROSSSLOT" -> Status.BAD_REQUEST;
      default -> Status.UNEXPECTED_STATE;
    };
  }

  /** Whether another node of the site might do what this one cannot. */
  static boolean anotherNode(ServerError error) {
    return switch (error.code()) {
      case "UNKNOWN", "CLUSTERDOWN", "LOADING" -> true;
      default -> false;
    };
  }

  /** The status after a connection broke, or no answer came, with an operation under way. */
  static Status broken(boolean write, Exception why) {
    tell(why.getClass().getName(), why.toString());
    return write ? UNKNOWN : Status.SERVICE_UNAVAILABLE;
  }

  /** The status when no node could be asked. */
  static Status unreachable(Exception why) {
    tell("unreachable", why.toString());
    return Status.SERVICE_UNAVAILABLE;
  }

  private static void tell(String kind, String words) {
    if (TOLD.size() < TOLD_MAX && TOLD.add(kind)) {
      System.err.println("portolan: the first of its kind: " + words);
    }
  }
}
