package portolan;

import java.util.List;

/** One answer of a server that speaks RESP2. */
sealed interface Reply {
  /** A status such as {@code OK}. */
  record Line(String text) implements Reply {}

  /** A refusal; its first word is the code. */
  record Failure(String text) implements Reply {}

  record Number(long value) implements Reply {}

  record Bytes(byte[] value) implements Reply {}

  record Items(List<Reply> values) implements Reply {}

  /** There is no such thing: a null string or a null array. */
  record Nothing() implements Reply {}
}
