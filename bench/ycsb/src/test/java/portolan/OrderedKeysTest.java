package portolan;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;

class OrderedKeysTest {
  @Test
  void numbersGoOn() {
    assertEquals(List.of("user8", "user9", "user10"), OrderedKeys.from("user8", 3, 1));
  }

  @Test
  void paddingStays() {
    assertEquals(List.of("user0099", "user0100"), OrderedKeys.from("user0099", 2, 4));
    assertEquals(List.of("user9999", "user10000"), OrderedKeys.from("user9999", 2, 4));
  }

  @Test
  void thereIsAnEnd() {
    assertEquals(
        List.of("user9223372036854775807"), OrderedKeys.from("user9223372036854775807", 5, 1));
    assertEquals(List.of(), OrderedKeys.from("user9223372036854775808", 5, 1));
    assertEquals(List.of(), OrderedKeys.from("user", 5, 1));
    assertEquals(List.of(), OrderedKeys.from("user1", 0, 1));
  }
}
