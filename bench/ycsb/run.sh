#!/usr/bin/env bash
# YCSB on Portolan: loads records, runs workloads, and prints a table in Markdown.
#
#   run.sh [--hosts 127.0.0.1:7379] [OPTIONS]    on nodes that are already running
#   run.sh --deployment [OPTIONS]                on three sites of three nodes that it starts and ends itself
#
#   --hosts LIST         Redis ports: a,b,c of one site; 'a,b,c;d,e' of two, with one client each
#   --workloads LETTERS  which of ABCDEF                       [ABCDEF]
#   --records N          records, each in both copies          [10000]
#   --operations N       operations a workload and client      [10000]
#   --threads N          threads a client                      [100]
#   --global P           proportion of global operations, 0–1  [0.5]
#   --distribution NAME  zipfian, hotspot, uniform or latest   [zipfian]; D is always latest
#   --seconds-max N      a phase ends after this long          [600]
#   --user NAME          log in; the password comes from PORTOLAN_PASSWORD
#   --keep DIR           leave what YCSB wrote there           [--deployment: results/TIME]
#   -- ARGUMENTS         for YCSB itself, such as -p dataintegrity=true or -target 500
#
# --deployment runs $PORTOLAN_BIN, or target/dist/portolan of the sources (cargo build --profile dist).
# Ends with 0 if every operation succeeded, 1 if not, 2 if it could not begin. README.md has more.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() { echo "run.sh: $*" >&2 && exit 2; }
usage() { sed -n '2,/^# Ends with/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

hosts=127.0.0.1:7379
workloads=ABCDEF
records=10000
operations=10000
threads=100
global=0.5
distribution=zipfian
seconds_max=600
user=
keep=
deployment=
more=()

while [ $# -gt 0 ]; do
  case $1 in
    --deployment) deployment=yes && shift && continue ;;
    -h | --help) usage && exit 0 ;;
    --) shift && more=("$@") && break ;;
  esac
  [ $# -ge 2 ] || fail "$1: no value (--help tells the options)"
  case $1 in
    --hosts) hosts=$2 ;;
    --workloads) workloads=${2^^} ;;
    --records) records=$2 ;;
    --operations) operations=$2 ;;
    --threads) threads=$2 ;;
    --global) global=$2 ;;
    --distribution) distribution=$2 ;;
    --seconds-max) seconds_max=$2 ;;
    --user) user=$2 ;;
    --keep) keep=$2 ;;
    *) fail "there is no $1 (--help tells the options)" ;;
  esac
  shift 2
done

# whole NAME VALUE MOST : the value is a whole number from 1 to MOST.
whole() {
  [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] && [ "$2" -le "$3" ] || fail "$1: not a number from 1 to $3: $2"
}
whole --records "$records" 10000000
whole --operations "$operations" 10000000
whole --threads "$threads" 1000
whole --seconds-max "$seconds_max" 86400
[ "$threads" -le "$records" ] && [ "$threads" -le "$operations" ] ||
  fail "--threads: more than there are records or operations"
[[ $workloads =~ ^[A-F]+$ ]] || fail "--workloads: letters from A to F: $workloads"
[[ $global =~ ^(0(\.[0-9]+)?|1(\.0+)?)$ ]] || fail "--global: not from 0 to 1: $global"
[[ $distribution =~ ^(zipfian|hotspot|uniform|latest)$ ]] || fail "--distribution: $distribution"

. "$here/deployment.sh"

# Only what was started here is ended here.
started=()
end_started() {
  local pid
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  stop_deployment
}
trap end_started EXIT
trap 'exit 130' INT TERM

# Maven looks for itself what has to be done again; tests run only when something has changed.
build() {
  local jar=$here/target/ycsb-portolan.jar
  if [ ! -e "$jar" ] || [ -n "$(find "$here/src" "$here/pom.xml" -newer "$jar" -print -quit)" ]; then
    command -v mvn >/dev/null || fail "Maven is missing (Debian: apt-get install maven)"
    mvn -q -B -f "$here/pom.xml" package >&2 || fail "the build failed"
  fi
}
build

portolan=
if [ -n "$deployment" ]; then
  [ -z "$user" ] || fail "--user: the nodes that --deployment starts have no users"
  portolan=${PORTOLAN_BIN:-$here/../../target/dist/portolan}
  [ -x "$portolan" ] || fail "no $portolan: cargo build --profile dist, or set PORTOLAN_BIN"
  keep=${keep:-$here/results/$(date -u +%Y-%m-%dT%H%M%SZ)}
fi
out=${keep:-$(mktemp -d)}
mkdir -p "$out"
if [ -n "$deployment" ]; then start_deployment "$out/nodes"; fi
classes="$here/target/ycsb-portolan.jar:$here/target/lib/*"
IFS=';' read -ra sites <<<"$hosts"
files=()

# phase NAME ARGUMENTS... : one client a site, all at once; what they write goes to NAME.SITE.txt.
phase() {
  local name=$1 site pids=() pid
  shift
  echo "$name ..." >&2
  for ((site = 1; site <= ${#sites[@]}; site++)); do
    java -Xmx512m -cp "$classes" site.ycsb.Client -db portolan.PortolanClient -threads "$threads" \
      -p workload=site.ycsb.workloads.CoreWorkload -p fieldcount=1 -p fieldlength=100 \
      -p recordcount="$records" -p operationcount="$operations" -p maxexecutiontime="$seconds_max" \
      -p portolan.hosts="$hosts" -p portolan.site="$site" -p portolan.global_proportion="$global" \
      ${user:+-p portolan.user="$user"} "$@" "${more[@]}" \
      >"$out/$name.$site.txt" 2>"$out/$name.$site.err" </dev/null &
    pids+=($!)
    started+=($!)
    files+=("$out/$name.$site.txt")
  done
  # What became of it is read from what was written: YCSB ends with 0 even where it could not connect.
  for pid in "${pids[@]}"; do wait "$pid" || true; done
  started=()
  grep -h -m 5 -e '^portolan: ' -e 'DBException: ' "$out/$name".*.err >&2 || true
}

# load NAME ARGUMENTS... : a phase that everything after it needs.
load() {
  phase "$1" -load "${@:2}"
  local loaded=("${files[@]: -${#sites[@]}}")
  java -cp "$classes" portolan.ResultsTable "$records" "$operations" "${loaded[@]}" >"$out/loaded" ||
    { cat "$out/loaded" >&2 && echo "run.sh: loading failed; see $out" >&2 && exit 1; }
  rm -f "$out/loaded"
}

# run LETTER READ UPDATE INSERT SCAN READ-MODIFY-WRITE [ARGUMENTS...] : YCSB's core workloads, by their
# proportions.
run() {
  [[ $workloads == *$1* ]] || return 0
  phase "$1" -t -p readproportion="$2" -p updateproportion="$3" -p insertproportion="$4" \
    -p scanproportion="$5" -p readmodifywriteproportion="$6" \
    -p requestdistribution="$distribution" "${@:7}"
}

# D comes late as it adds records, and E last as its records have other names.
if [[ $workloads =~ [ABCDF] ]]; then
  load load
  run A 0.5 0.5 0 0 0
  run B 0.95 0.05 0 0 0
  run C 1 0 0 0 0
  run F 0.5 0 0 0 0.5
  run D 0.95 0 0.05 0 0 -p requestdistribution=latest
fi
if [[ $workloads == *E* ]]; then
  load load-ordered -p insertorder=ordered
  run E 0 0 0.05 0.95 0 -p insertorder=ordered -p maxscanlength=100
fi

# aligned FILE : a Markdown table with all its columns as wide as they need, numbers on the right.
aligned() {
  awk -F '|' '
    !/^\|/ { if (NR > FNR) print; next }
    NR == FNR {
      for (i = 2; i < NF; i++) {
        if (FNR == 2 && $i ~ /:/) right[i] = 1
        else if (FNR != 2 && length($i) > wide[i]) wide[i] = length($i)
      }
      next
    }
    {
      line = "|"
      for (i = 2; i < NF; i++) {
        text = $i
        gsub(/^ +| +$/, "", text)
        if (FNR == 2) {
          text = sprintf("%*s", wide[i] - 2, "")
          gsub(/ /, "-", text)
          if (right[i]) sub(/-$/, ":", text)
        }
        line = line sprintf(right[i] ? " %*s |" : " %-*s |", wide[i] - 2, text)
      }
      print line
    }' "$1" "$1"
}

echo "YCSB 0.17.0, $(date -u +%Y-%m-%dT%H:%MZ): ${#sites[@]} client(s) of $threads threads, $records records" \
  "of one field of 100 bytes in both copies, $operations operations a workload and client, $distribution," \
  "global proportion $global; ${portolan:+$deployment_sites sites of $deployment_nodes nodes, and }clients on $(nproc) cores." |
  tee "$out/about.txt"
echo
status=0
java -cp "$classes" portolan.ResultsTable "$records" "$operations" "${files[@]}" >"$out/raw.md" || status=$?
aligned "$out/raw.md" | tee "$out/table.md"
rm -f "$out/raw.md"
if [ -z "$keep" ] && [ "$status" -eq 0 ]; then
  rm -rf "$out"
else
  echo "what YCSB wrote: $out" >&2
fi
exit "$status"
