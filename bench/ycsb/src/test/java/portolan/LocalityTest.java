package portolan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.fail;

import java.util.Random;
import org.junit.jupiter.api.Test;

class LocalityTest {
  private static Locality locality(double globalProportion, boolean readsBeforeWriting) {
    return new Locality(globalProportion, readsBeforeWriting, new Random(7)::nextDouble);
  }

  private static double globals(Locality locality, boolean reads) {
    int globals = 0;
    for (int i = 0; i < 100_000; i++) {
      String key = "user" + i % 10;
      Locality.Copy copy = reads ? locality.forRead(key) : locality.forUpdate(key);
      globals += copy == Locality.Copy.GLOBAL ? 1 : 0;
    }
    return globals / 100_000.0;
  }

  @Test
  void theProportionIsKept() {
    for (double proportion : new double[] {0.1, 0.5, 0.9}) {
      assertEquals(proportion, globals(locality(proportion, true), true), 0.01);
      assertEquals(proportion, globals(locality(proportion, true), false), 0.01);
    }
  }

  @Test
  void noneAndAllAreExact() {
    assertEquals(0, globals(locality(0, false), true));
    assertEquals(1, globals(locality(1, false), true));
  }

  @Test
  void aRecordHasBothCopiesInUse() {
    Locality locality = locality(0.5, false);
    Locality.Copy first = locality.forRead("user1");
    for (int i = 0; i < 100; i++) {
      if (locality.forRead("user1") != first) {
        return;
      }
    }
    fail("a hundred reads of a record, all of one copy");
  }

  @Test
  void whatWasReadIsWrittenWhereItWasRead() {
    Locality locality = locality(0.5, true);
    int globals = 0;
    for (int i = 0; i < 10_000; i++) {
      Locality.Copy read = locality.forRead("user1");
      assertEquals(read, locality.forUpdate("user1"));
      globals += read == Locality.Copy.GLOBAL ? 1 : 0;
    }
    assertEquals(0.5, globals / 10_000.0, 0.03);
  }

  /** How often an update goes where the operation before it went. */
  private static double together(Locality locality, String read, String update) {
    int same = 0;
    for (int i = 0; i < 10_000; i++) {
      same += locality.forRead(read) == locality.forUpdate(update) ? 1 : 0;
    }
    return same / 10_000.0;
  }

  @Test
  void otherwiseReadsAndUpdatesHaveNothingToDoWithEachOther() {
    assertEquals(0.5, together(locality(0.5, true), "user1", "user2"), 0.03);
    assertEquals(0.5, together(locality(0.5, false), "user1", "user1"), 0.03);
  }
}
