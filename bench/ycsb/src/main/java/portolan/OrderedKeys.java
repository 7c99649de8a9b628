package portolan;

import java.util.ArrayList;
import java.util.List;

/**
 * The names of the records that follow a record, where YCSB numbers them in order ({@code
 * insertorder=ordered}): {@code user7}, {@code user8}, and so on.
 *
 * <p>Portolan's Redis port has no ordered range (SCAN goes over everything from a cursor, not from a key),
 * so a scan asks for names that it can compute.
 */
final class OrderedKeys {
  private OrderedKeys() {}

  /** Up to {@code count} names, from {@code first} on; none where {@code first} ends in no number. */
  static List<String> from(String first, int count, int zeroPadding) {
    int digits = first.length();
    while (digits > 0 && first.charAt(digits - 1) >= '0' && first.charAt(digits - 1) <= '9') {
      digits--;
    }
    List<String> keys = new ArrayList<>();
    long number;
    try {
      number = Long.parseLong(first.substring(digits));
    } catch (NumberFormatException noNumber) {
      return keys;
    }
    String name = first.substring(0, digits);
    for (; keys.size() < count; number++) {
      String text = Long.toString(number);
      keys.add(name + "0".repeat(Math.max(0, zeroPadding - text.length())) + text);
      if (number == Long.MAX_VALUE) {
        break;
      }
    }
    return keys;
  }
}
