package portolan;

import java.util.function.DoubleSupplier;

/**
 * Which copy of a record an operation uses.
 *
 * <p>As in the evaluation of EdgeKV (Sonbol et al., section 5.2.3): every record has a copy in local and one
 * in global storage, and each request goes to one of them at random, to the global one with the given
 * probability.
 *
 * <p>One thing had to be added, as that paper has no such workload: where a read is followed by a write of
 * what was read (workload F), both go to the same copy. YCSB does not tell the two halves apart from a read
 * and an update, so an update takes the copy of the read just before it if that was of the same record. The
 * proportion stays what it is, since the read was chosen at random.
 */
final class Locality {
  enum Copy {
    LOCAL,
    GLOBAL
  }

  private final double globalProportion;
  private final boolean readsBeforeWriting;
  private final DoubleSupplier random;
  private String lastRead;
  private Copy lastCopy;

  /** {@code random} gives numbers from 0 up to, and without, 1. */
  Locality(double globalProportion, boolean readsBeforeWriting, DoubleSupplier random) {
    this.globalProportion = globalProportion;
    this.readsBeforeWriting = readsBeforeWriting;
    this.random = random;
  }

  Copy forRead(String key) {
    lastRead = key;
    lastCopy = any();
    return lastCopy;
  }

  Copy forUpdate(String key) {
    boolean sameRecord = readsBeforeWriting && key.equals(lastRead);
    lastRead = null;
    return sameRecord ? lastCopy : any();
  }

  Copy forScan() {
    lastRead = null;
    return any();
  }

  private Copy any() {
    return random.getAsDouble() < globalProportion ? Copy.GLOBAL : Copy.LOCAL;
  }
}
