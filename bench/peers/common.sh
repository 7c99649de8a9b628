# Sourced by the peers' scripts: where things live, and how a process is started and ended.
#
# Everything is kept in one directory outside the source tree, a folder a peer, so that data of all
# systems lies on the same disk and a second installation finds the first.

peers_root=${PORTOLAN_PEERS:-$HOME/.cache/portolan-peers}

# install_alone FOLDER: runs the script's function `install`, one process at a time: tests that run side by side
# install the same peer. Not to be called where errors do not end the script (after `if` or `||`).
install_alone() {
  mkdir -p "$1"
  (flock 9 && install) 9>"$1/lock"
}

# start_process FOLDER COMMAND... : runs COMMAND in the background, keeping FOLDER/pid and FOLDER/log.
start_process() {
  local folder=$1
  shift
  mkdir -p "$folder"
  nohup "$@" >"$folder/log" 2>&1 </dev/null &
  echo $! >"$folder/pid"
}

# running FOLDER : is the process that was started in FOLDER alive?
running() {
  [ -f "$1/pid" ] && kill -0 "$(cat "$1/pid")" 2>/dev/null
}

# stop_process FOLDER : asks it to end, insists after five seconds; by its pid only.
stop_process() {
  local pid i
  if running "$1"; then
    pid=$(cat "$1/pid")
    kill "$pid" 2>/dev/null || true
    for ((i = 0; i < 50; i++)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
  fi
  rm -f "$1/pid"
}

# wait_until SECONDS COMMAND... : polls COMMAND ten times a second until it succeeds.
wait_until() {
  local tries=$(($1 * 10)) i
  shift
  for ((i = 0; i < tries; i++)); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  echo "not ready after $((tries / 10)) s: $*" >&2
  return 1
}
