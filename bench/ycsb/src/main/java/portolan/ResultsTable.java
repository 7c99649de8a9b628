package portolan;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * What YCSB's clients wrote about their runs, as one table in Markdown.
 *
 * <p>A file is one client's run, named {@code WORKLOAD.SITE.txt}. Where several sites ran a workload at the
 * same time, their mean follows; percentiles have no mean, so there the cells are empty.
 */
public final class ResultsTable {
  private static final String FAILED = "-FAILED";

  /** One operation in one run. */
  static final class Operation {
    long done;
    long failed;
    double perSecond;
    double meanMs;
    double p95Ms;
    double p99Ms;
    final Map<String, Long> notOk = new TreeMap<>();
  }

  /** One client's run. */
  static final class Run {
    double perSecond;
    double seconds;
    final Map<String, Operation> operations = new LinkedHashMap<>();

    /** How many operations were asked for, whatever became of them. */
    long asked() {
      long asked = 0;
      for (String name : List.of("READ", "UPDATE", "INSERT", "SCAN")) {
        asked += asked(name);
      }
      // Each of these was counted as a read and as an update.
      return asked - asked("READ-MODIFY-WRITE");
    }

    private long asked(String name) {
      Operation operation = operations.get(name);
      return operation == null ? 0 : operation.done + operation.failed;
    }
  }

  private ResultsTable() {}

  /** {@code RECORDS OPERATIONS FILE...}; ends with 1 if something did not succeed or is missing. */
  public static void main(String[] arguments) throws IOException {
    long records = Long.parseLong(arguments[0]);
    long operations = Long.parseLong(arguments[1]);
    Map<String, Map<String, Run>> workloads = new LinkedHashMap<>();
    List<String> wrongs = new ArrayList<>();
    for (int i = 2; i < arguments.length; i++) {
      Path file = Path.of(arguments[i]);
      String[] name = file.getFileName().toString().split("\\.");
      Run run = parse(Files.readAllLines(file));
      workloads.computeIfAbsent(name[0], unused -> new LinkedHashMap<>()).put(name[1], run);
      wrongs.addAll(wrongs(name[0], name[1], run, name[0].startsWith("load") ? records : operations));
    }
    System.out.print(table(workloads));
    if (!wrongs.isEmpty()) {
      System.out.println();
      wrongs.forEach(wrong -> System.out.println("- **" + wrong + "**"));
      System.exit(1);
    }
  }

  /** Lines such as {@code [READ], AverageLatency(us), 812.5}. */
  static Run parse(List<String> lines) {
    Run run = new Run();
    for (String line : lines) {
      String[] parts = line.split(", ");
      if (parts.length != 3 || !parts[0].startsWith("[") || !parts[0].endsWith("]")) {
        continue;
      }
      String section = parts[0].substring(1, parts[0].length() - 1);
      if (section.equals("OVERALL")) {
        overall(run, parts[1], parts[2]);
      } else if (section.equals("CLEANUP") || section.startsWith("TOTAL_GC")) {
        continue;
      } else if (section.endsWith(FAILED)) {
        if (parts[1].equals("Operations")) {
          String name = section.substring(0, section.length() - FAILED.length());
          operation(run, name).failed = Long.parseLong(parts[2]);
        }
      } else {
        measured(operation(run, section), parts[1], parts[2]);
      }
    }
    // A client that ended early wrote no time.
    run.operations.values().forEach(o -> o.perSecond = run.seconds > 0 ? o.done / run.seconds : 0);
    return run;
  }

  private static void overall(Run run, String what, String value) {
    switch (what) {
      case "Throughput(ops/sec)" -> run.perSecond = Double.parseDouble(value);
      case "RunTime(ms)" -> run.seconds = Double.parseDouble(value) / 1_000;
      default -> {}
    }
  }

  private static void measured(Operation operation, String what, String value) {
    switch (what) {
      case "Operations" -> operation.done = Long.parseLong(value);
      case "AverageLatency(us)" -> operation.meanMs = Double.parseDouble(value) / 1_000;
      case "95thPercentileLatency(us)" -> operation.p95Ms = Double.parseDouble(value) / 1_000;
      case "99thPercentileLatency(us)" -> operation.p99Ms = Double.parseDouble(value) / 1_000;
      default -> {
        String status = what.startsWith("Return=") ? what.substring("Return=".length()) : "OK";
        if (!status.equals("OK")) {
          operation.notOk.put(status, Long.parseLong(value));
        }
      }
    }
  }

  private static Operation operation(Run run, String name) {
    return run.operations.computeIfAbsent(name, unused -> new Operation());
  }

  /** Why a run is not what was asked for. */
  static List<String> wrongs(String workload, String site, Run run, long expected) {
    List<String> wrongs = new ArrayList<>();
    String where = workload + " at site " + site + ": ";
    if (run.asked() != expected) {
      wrongs.add(where + run.asked() + " operations instead of " + expected);
    }
    run.operations.forEach(
        (name, operation) -> {
          if (operation.failed > 0 || !operation.notOk.isEmpty()) {
            wrongs.add(where + name + " did not always succeed");
          }
        });
    return wrongs;
  }

  static String table(Map<String, Map<String, Run>> workloads) {
    StringBuilder table = new StringBuilder();
    table.append("| workload | site | operation | done | per second | mean ms | p95 ms | p99 ms | not OK |\n");
    table.append("| --- | --- | --- | --: | --: | --: | --: | --: | --- |\n");
    workloads.forEach(
        (workload, sites) -> {
          sites.forEach((site, run) -> rows(table, workload, site, run));
          if (sites.size() > 1) {
            rows(table, workload, List.copyOf(sites.values()));
          }
        });
    return table.toString();
  }

  private static void rows(StringBuilder table, String workload, String site, Run run) {
    row(table, workload, site, "all", run.asked(), run.perSecond, "", "", "", "");
    new TreeMap<>(run.operations)
        .forEach(
            (name, o) -> {
              List<String> notOk = new ArrayList<>();
              o.notOk.forEach((status, count) -> notOk.add(status + " " + count));
              boolean any = o.done > 0;
              row(
                  table, workload, site, name, o.done, o.perSecond,
                  any ? ms(o.meanMs) : "", any ? ms(o.p95Ms) : "", any ? ms(o.p99Ms) : "",
                  String.join(", ", notOk));
            });
  }

  /** The mean of several sites, of throughput and of mean latency. */
  private static void rows(StringBuilder table, String workload, List<Run> runs) {
    double perSecond = runs.stream().mapToDouble(run -> run.perSecond).average().orElse(0);
    long asked = runs.stream().mapToLong(Run::asked).sum();
    row(table, workload, "mean", "all", asked, perSecond, "", "", "", "");
    TreeMap<String, List<Operation>> operations = new TreeMap<>();
    for (Run run : runs) {
      run.operations.forEach(
          (name, o) -> operations.computeIfAbsent(name, unused -> new ArrayList<>()).add(o));
    }
    operations.forEach(
        (name, all) -> {
          long done = all.stream().mapToLong(o -> o.done).sum();
          double each = all.stream().mapToDouble(o -> o.perSecond).sum() / runs.size();
          // Weighted, as the published experiment averages over clients and operations.
          double meanMs = all.stream().mapToDouble(o -> o.meanMs * o.done).sum() / Math.max(1, done);
          row(table, workload, "mean", name, done, each, done > 0 ? ms(meanMs) : "", "", "", "");
        });
  }

  private static void row(
      StringBuilder table, String workload, String site, String operation, long done,
      double perSecond, String mean, String p95, String p99, String notOk) {
    table.append(
        String.format(
            Locale.ROOT, "| %s | %s | %s | %,d | %,.0f | %s | %s | %s | %s |%n",
            workload, site, operation, done, perSecond, mean, p95, p99, notOk));
  }

  private static String ms(double ms) {
    return String.format(Locale.ROOT, "%,.3f", ms);
  }
}
