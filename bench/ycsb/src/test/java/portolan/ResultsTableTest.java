package portolan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class ResultsTableTest {
  /** A run of ten operations in two seconds: six reads, three updates, and one update that failed. */
  private static List<String> lines(int meanUs) {
    return List.of(
        "Loading workload...",
        "[OVERALL], RunTime(ms), 2000",
        "[OVERALL], Throughput(ops/sec), 5.0",
        "[TOTAL_GCs], Count, 3",
        "[READ], Operations, 6",
        "[READ], AverageLatency(us), " + meanUs,
        "[READ], MinLatency(us), 1",
        "[READ], 95thPercentileLatency(us), 2000",
        "[READ], 99thPercentileLatency(us), 2500",
        "[READ], Return=OK, 6",
        "[CLEANUP], Operations, 2",
        "[UPDATE], Operations, 3",
        "[UPDATE], AverageLatency(us), 4000.0",
        "[UPDATE], 95thPercentileLatency(us), 5000",
        "[UPDATE], 99thPercentileLatency(us), 1234567",
        "[UPDATE], Return=OK, 3",
        "[UPDATE], Return=UNKNOWN_OUTCOME, 1",
        "[UPDATE-FAILED], Operations, 1",
        "[UPDATE-FAILED], AverageLatency(us), 9.0");
  }

  private static String table(ResultsTable.Run... runs) {
    Map<String, ResultsTable.Run> sites = new LinkedHashMap<>();
    for (ResultsTable.Run run : runs) {
      sites.put(Integer.toString(sites.size() + 1), run);
    }
    return ResultsTable.table(Map.of("A", sites)).replace(System.lineSeparator(), "\n");
  }

  @Test
  void aRunBecomesRows() {
    String rows =
        """
        | A | 1 | all | 10 | 5 |  |  |  |  |
        | A | 1 | READ | 6 | 3 | 1.000 | 2.000 | 2.500 |  |
        | A | 1 | UPDATE | 3 | 2 | 4.000 | 5.000 | 1,234.567 | UNKNOWN_OUTCOME 1 |
        """;
    String table = table(ResultsTable.parse(lines(1000)));
    assertTrue(table.endsWith(rows), table);
    // Nothing else, but for the head.
    assertEquals(2 + 3, table.lines().count(), table);
  }

  @Test
  void sitesHaveAMeanButNoMeanPercentile() {
    String table = table(ResultsTable.parse(lines(1000)), ResultsTable.parse(lines(2000)));
    assertTrue(table.contains("| A | mean | all | 20 | 5 |  |  |  |  |\n"), table);
    assertTrue(table.contains("| A | mean | READ | 12 | 3 | 1.500 |  |  |  |\n"), table);
  }

  @Test
  void whatIsMissingOrFailedIsTold() {
    ResultsTable.Run run = ResultsTable.parse(lines(1000));
    assertEquals(
        List.of("A at site 1: UPDATE did not always succeed"), ResultsTable.wrongs("A", "1", run, 10));
    assertEquals(2, ResultsTable.wrongs("A", "1", run, 11).size());
    // A client that did not even begin.
    ResultsTable.Run nothing = ResultsTable.parse(List.of("site.ycsb.DBException: cannot begin"));
    assertEquals(1, ResultsTable.wrongs("A", "1", nothing, 10).size());
    assertTrue(table(nothing).contains("| A | 1 | all | 0 | 0 |"));
  }

  @Test
  void aReadThatIsFollowedByAWriteIsOneOperation() {
    ResultsTable.Run run =
        ResultsTable.parse(
            List.of(
                "[READ], Operations, 10",
                "[UPDATE], Operations, 4",
                "[READ-MODIFY-WRITE], Operations, 4"));
    assertEquals(10, run.asked());
  }
}
