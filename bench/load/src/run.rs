//! The event loop: all connections on one thread, a warm-up, then the part that counts.

use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use crate::connection::{Connection, Session};
use crate::grpc::Service;
use crate::report::{Report, Samples};
use crate::workload::Workload;
use crate::{Options, Protocol, http2, process, resp};

/// Without a single answer for this long, the run is given up.
const SILENCE_MAX: Duration = Duration::from_secs(20);
const READ_BYTES: usize = 64 * 1024;
/// How long to wait for answers at most.
const WAIT: Duration = Duration::from_millis(100);
/// The same where the next request may be due before an answer comes.
const WAIT_PACED: Duration = Duration::from_millis(1);

/// Drives the load that `options` describe and reports what it took.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let io = |e: std::io::Error| format!("cannot wait for sockets: {e}");
    let mut poll = Poll::new().map_err(io)?;
    let mut connections = open(options)?;
    for (number, connection) in connections.iter_mut().enumerate() {
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut connection.socket, Token(number), both).map_err(io)?;
    }

    let mut workload = Workload::new(options);
    let mut samples = Samples::new();
    let mut scratch = vec![0; READ_BYTES];
    let mut events = Events::with_capacity(1024);
    let mut clock = Clock::start(options)?;
    let wait = if options.rate_per_s.is_some() { WAIT_PACED } else { WAIT };
    loop {
        match poll.poll(&mut events, Some(wait)) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other.map_err(io)?,
        }
        for event in &events {
            let now = Instant::now();
            let connection = &mut connections[event.token().0];
            if event.is_readable() {
                connection.read(now, &mut scratch, &mut samples)?;
            }
            connection.advance(now, &mut workload)?;
        }
        if options.rate_per_s.is_some() {
            let now = Instant::now();
            for connection in connections.iter_mut().filter(|c| c.in_flight() == 0) {
                connection.advance(now, &mut workload)?;
            }
        }
        let idle = || connections.iter().all(|c| c.in_flight() == 0);
        if clock.tick(options, &mut samples, idle)? {
            return clock.report(options, samples);
        }
    }
}

/// Opens every connection, dealing them to the endpoints in turn.
fn open(options: &Options) -> Result<Vec<Connection>, String> {
    let count = match options.protocol {
        Protocol::Resp => options.clients,
        Protocol::Etcd | Protocol::Portolan => options.connections.min(options.clients),
    };
    (0..count)
        .map(|number| {
            let peer = options.endpoints[number % options.endpoints.len()];
            // Clients that do not divide evenly go to the first connections.
            let clients = options.clients / count + usize::from(number < options.clients % count);
            let session: Box<dyn Session> = match options.protocol {
                Protocol::Resp => Box::new(resp::Pipeline::new(options.pipeline)),
                Protocol::Etcd => Box::new(http2::Calls::new(peer, clients, Service::Etcd)),
                Protocol::Portolan => Box::new(http2::Calls::new(peer, clients, Service::Portolan)),
            };
            Connection::open(peer, session)
        })
        .collect()
}

/// Where the run stands: warming up, measuring, or over.
struct Clock {
    began: Instant,
    measuring: bool,
    /// Answers at the last look, and when that number last changed.
    answered: u64,
    changed: Instant,
    own_cpu_s: f64,
    server_cpu_s: Vec<f64>,
}

impl Clock {
    fn start(options: &Options) -> Result<Self, String> {
        let now = Instant::now();
        Ok(Self {
            began: now,
            measuring: options.warmup().is_zero(),
            answered: 0,
            changed: now,
            own_cpu_s: process::own_cpu_s()?,
            server_cpu_s: cpu_of(&options.pids)?,
        })
    }

    /// Goes on in time; `true` when the run is over.
    fn tick(
        &mut self,
        options: &Options,
        samples: &mut Samples,
        idle: impl Fn() -> bool,
    ) -> Result<bool, String> {
        let now = Instant::now();
        if samples.answered() != self.answered {
            self.answered = samples.answered();
            self.changed = now;
        } else if now - self.changed > SILENCE_MAX {
            return Err(format!("no answer for {} s: given up", SILENCE_MAX.as_secs()));
        }
        let elapsed = now - self.began;
        if !self.measuring {
            if elapsed >= options.warmup() {
                samples.reset();
                *self = Self { measuring: true, ..Self::start(options)? };
            }
            return Ok(false);
        }
        Ok(match options.requests {
            Some(requests) => samples.answered() >= requests && idle(),
            None => elapsed.as_secs_f64() >= options.duration_s,
        })
    }

    fn report(self, options: &Options, samples: Samples) -> Result<Report, String> {
        let seconds = self.began.elapsed().as_secs_f64();
        let own_cpu_s = process::own_cpu_s()? - self.own_cpu_s;
        let servers = options
            .pids
            .iter()
            .zip(self.server_cpu_s)
            .map(|(&pid, before_s)| {
                Ok(process::Usage {
                    pid,
                    cpu_s: process::cpu_s(pid)? - before_s,
                    rss_bytes: process::rss_bytes(pid)?,
                })
            })
            .collect::<Result<_, String>>()?;
        Ok(Report::new(options, samples, seconds, own_cpu_s, servers))
    }
}

fn cpu_of(pids: &[u32]) -> Result<Vec<f64>, String> {
    pids.iter().map(|&pid| process::cpu_s(pid)).collect()
}
