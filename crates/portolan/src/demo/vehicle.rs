//! A vehicle: it drives, attaches to the nearest site that serves, looks for hazards and reports
//! them, keeps two records of its own that it must find wherever it goes, and one of its trip in a
//! session that it takes along, and moves on.
//!
//! It is an ordinary client that has only addresses. When an attempt fails it tries the site's next
//! node, until [`OPERATION_TIMEOUT`]; whatever that takes is part of the operation's latency. What
//! it sends may be sent twice without harm, so it does not matter whether a failed attempt took
//! effect.
//!
//! It works in a closed loop with exponential think times: while it waits for an answer it asks
//! nothing else, as a driver's device would.

use std::{sync::Arc, time::Duration};

use lab::{
    geo::{Grid, Point},
    mobility::Track,
    relay::Relay,
    world::{Demo, World},
};
use rand::{Rng, rngs::StdRng};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use wire::resp::Reply;

use super::{
    clock::Clock,
    hazards::{self, Report},
    operation::Operation,
    recorder::Command,
    records::{self, Kind, Record},
    resp::Connection,
    roster::Roster,
    scene::Scene,
    trips,
};

/// How long one attempt may take before the next node is tried.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// When an operation is given up and counted as an error.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Mean pause before trying again.
const RETRY_PAUSE: Duration = Duration::from_millis(25);
/// For so long a site is to wait for what a session has seen, of an attempt.
const ATTACH_WITHIN_MS: &str = "700";
/// Of three uses of records there is one of a trip.
const RECORDS_PER_TRIP: f64 = 3.0;
/// How often a vehicle that is off the road looks whether it is back.
const OFF_ROAD_PAUSE: Duration = Duration::from_millis(200);

/// What all vehicles share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Where things are and how often to do what.
    pub(super) world: World,
    /// What vehicles do.
    pub(super) demo: Demo,
    /// Another site must be nearer by this much before a vehicle moves on to it.
    pub(super) margin_m: f64,
    /// From real time to the tracks' time.
    pub(super) clock: Clock,
    /// Which sites serve, and where.
    pub(super) roster: Roster,
    /// What is seen.
    pub(super) scene: Scene,
}

/// One vehicle and its radio.
#[derive(Debug)]
pub(super) struct Vehicle {
    index: usize,
    shared: Arc<Shared>,
    zones: Grid,
    track: Track,
    radio: Relay,
    rng: StdRng,
    site: Option<usize>,
    node: usize,
    connection: Option<Connection>,
    /// Its session was admitted on this connection.
    is_admitted: bool,
    /// When it began to have its session admitted here.
    admitting_since: Option<Instant>,
    /// It has come to another site and not read its trip there.
    to_read_trip: bool,
    reports: u64,
    /// By kind: it has come to another site and not read its own record there.
    to_recall: [bool; 2],
    /// Attempts of the last operation that were not answered.
    attempts_failed: u32,
}

impl Vehicle {
    /// A vehicle on its track; `radio` carries all it sends.
    pub(super) fn new(
        index: usize,
        shared: Arc<Shared>,
        track: Track,
        radio: Relay,
        rng: StdRng,
    ) -> Self {
        let zones = shared.world.zones(shared.demo.zone_m);
        Self {
            index,
            shared,
            zones,
            track,
            radio,
            rng,
            site: None,
            node: 0,
            connection: None,
            is_admitted: false,
            admitting_since: None,
            to_read_trip: false,
            reports: 0,
            to_recall: [false; 2],
            attempts_failed: 0,
        }
    }

    /// Drives until it is stopped; the operation in hand is finished first.
    pub(super) async fn drive(mut self, mut stop: watch::Receiver<bool>) {
        let rates = &self.shared.demo;
        let trip_hz = rates.record_hz / RECORDS_PER_TRIP;
        let think_s = 1.0 / (rates.look_hz + rates.report_hz + rates.record_hz + trip_hz);
        while !*stop.borrow() {
            let pause = match self.whereabouts() {
                Some((at, t_s)) => {
                    self.work(at, t_s).await;
                    // Exponential: 1 − u is never 0, and ten means bound the longest pause.
                    let draw = -(1.0 - self.rng.random::<f64>()).ln();
                    Duration::from_secs_f64(think_s * draw.min(10.0))
                }
                None => {
                    self.leave_the_road();
                    OFF_ROAD_PAUSE
                }
            };
            let _ = timeout(pause, stop.wait_for(|stop| *stop)).await;
        }
        self.leave_the_road();
    }

    fn whereabouts(&self) -> Option<(Point, f64)> {
        let t_s = self.shared.clock.t_s(self.shared.scene.elapsed());
        Some((self.track.position(t_s)?, t_s))
    }

    fn leave_the_road(&mut self) {
        self.shared.scene.placed(self.index, None);
        self.connection = None;
        self.site = None;
    }

    async fn work(&mut self, at: Point, t_s: f64) {
        let Some(site) = self.attach(at).await else { return };
        for kind in Kind::BOTH {
            if self.to_recall[kind.index()] {
                self.recall_own(site, kind).await;
            }
        }
        if std::mem::take(&mut self.to_read_trip) {
            self.read_trip(trips::OWN).await;
        }
        let shared = self.shared.clone();
        let rates = &shared.demo;
        let key = hazards::key(self.zones.zone(at));
        let trip_hz = rates.record_hz / RECORDS_PER_TRIP;
        let own_hz = rates.report_hz + rates.record_hz;
        let draw_hz = self.rng.random::<f64>() * (rates.look_hz + own_hz + trip_hz);
        if draw_hz < rates.report_hz {
            self.report(site, key, at, t_s).await;
        } else if draw_hz < own_hz {
            self.use_records(site, at, t_s).await;
        } else if draw_hz < own_hz + trip_hz {
            self.use_trips(at, t_s).await;
        } else {
            self.look(site, key, rates.zone_max).await;
        }
    }

    /// Goes to the site that serves this place, and returns it. None: there is none just now.
    async fn attach(&mut self, at: Point) -> Option<usize> {
        let shared = self.shared.clone();
        let site = shared.roster.attach(&shared.world, at, self.site, shared.margin_m)?;
        self.radio.set_link(shared.world.client_link(at, site));
        shared.scene.placed(self.index, Some((at, site)));
        if let Some(before) = self.site.replace(site).filter(|before| *before != site) {
            shared.scene.lock().measure.moved();
            tracing::debug!(vehicle = self.index, from = before, to = site, "moved");
            self.connection = None;
            let seen = shared.scene.lock();
            self.to_recall = Kind::BOTH.map(|kind| seen.records.has_written(self.own(kind)));
            self.to_read_trip = seen.trips.token(self.index).is_some();
            self.admitting_since = None;
        }
        if self.connection.is_none() {
            // Spreads the vehicles over the nodes of a site.
            self.node = self.index;
            self.operate(Operation::Attach, &["PING"]).await;
        }
        Some(site)
    }

    fn own(&self, kind: Kind) -> Record {
        Record { vehicle: self.index, kind }
    }

    /// One of its two records at random. Half of the time it writes it; else it reads it, and now
    /// and then that of any vehicle.
    async fn use_records(&mut self, site: usize, at: Point, t_s: f64) {
        let kind = Kind::BOTH[self.rng.random_range(0..2)];
        match self.rng.random_range(0..16) {
            0 => {
                let vehicles = self.shared.scene.lock().records.vehicles();
                let other = Record { vehicle: self.rng.random_range(0..vehicles), kind };
                if other == self.own(kind) {
                    return self.recall_own(site, kind).await;
                }
                self.operate_on(site, kind, Operation::read(kind), &["GET", &other.key()]).await;
            }
            1..8 => self.recall_own(site, kind).await,
            _ => self.save(site, kind, at, t_s).await,
        }
    }

    /// An operation on a record; where that is counts, too.
    async fn operate_on(
        &mut self,
        site: usize,
        kind: Kind,
        operation: Operation,
        command: &[&str],
    ) -> Option<Reply> {
        let endpoint = self.shared.roster.endpoint(site, self.node);
        let is_at_own_site = endpoint.is_some_and(|endpoint| (endpoint.holds)(command[1]));
        let reply = self.operate(operation, command).await?;
        self.shared.scene.lock().comparison.placed(kind, is_at_own_site);
        Some(reply)
    }

    async fn save(&mut self, site: usize, kind: Kind, at: Point, t_s: f64) {
        let record = self.own(kind);
        let number = self.shared.scene.lock().records.writing(record);
        let (key, value) = (record.key(), records::value(number, at, t_s));
        let command = ["SET", &key, &value];
        if self.operate_on(site, kind, Operation::save(kind), &command).await.is_some() {
            let records = &mut self.shared.scene.lock().records;
            records.acknowledged(record, number, self.attempts_failed == 0);
        }
    }

    /// Reads its own record, and reports it if that is not what it must see.
    async fn recall_own(&mut self, site: usize, kind: Kind) {
        let record = self.own(kind);
        let command = ["GET", &record.key()];
        let reply = self.operate_on(site, kind, Operation::read(kind), &command).await;
        let Some(reply) = reply else { return };
        let moved = std::mem::take(&mut self.to_recall[kind.index()]);
        let finding = self.shared.scene.lock().records.read(record, &reply, moved);
        if finding != records::Finding::Right {
            tracing::warn!(?record, site, ?finding, ?reply, "its own record");
        }
    }

    /// Half of the time it writes its trip; else it reads it, or the trips of the vehicle that it
    /// follows and of the one which that one follows.
    async fn use_trips(&mut self, at: Point, t_s: f64) {
        match self.rng.random_range(0..4) {
            0 => self.read_trip(trips::OWN).await,
            1 => {
                self.read_trip(trips::FOLLOWED).await;
                self.read_trip(trips::CAUSE).await;
            }
            _ => self.save_trip(at, t_s).await,
        }
    }

    async fn save_trip(&mut self, at: Point, t_s: f64) {
        let numbers = self.shared.scene.lock().trips.writing(self.index);
        let (key, value) = (trips::key(self.index), trips::value(numbers, at, t_s));
        if self.operate(Operation::TripSave, &["SET", &key, &value]).await.is_some() {
            let trips = &mut self.shared.scene.lock().trips;
            trips.acknowledged(self.index, numbers.0, self.attempts_failed == 0);
        }
    }

    async fn read_trip(&mut self, which: usize) {
        let whose = self.shared.scene.lock().trips.whose(self.index, which);
        let reply = self.operate(Operation::TripRead, &["GET", &trips::key(whose)]).await;
        let Some(reply) = reply else { return };
        if !self.shared.scene.lock().trips.read(self.index, which, &reply) {
            tracing::warn!(vehicle = self.index, whose, ?reply, "an anomaly");
        }
    }

    async fn look(&mut self, site: usize, key: String, zone_max: usize) {
        let Some(reply) = self.operate(Operation::Look, &["HGETALL", &key]).await else { return };
        let mut hazards = hazards::listed(&reply);
        if hazards.len() <= zone_max {
            return;
        }
        hazards.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (field, _) = hazards.swap_remove(0);
        let report = Report { site, key, field };
        self.shared.scene.lock().ledger.forget(&report);
        self.operate(Operation::Clear, &["HDEL", &report.key, &report.field]).await;
    }

    async fn report(&mut self, site: usize, key: String, at: Point, t_s: f64) {
        self.reports += 1;
        let field = format!("{}-{}", self.index, self.reports);
        let value = hazards::value(self.rng.random_range(0..64), at, t_s);
        let report = Report { site, key, field };
        self.shared.scene.lock().ledger.sending(report.clone());
        let command = ["HSET", &report.key, &report.field, &value];
        let answered = self.operate(Operation::Report, &command).await.is_some();
        let ledger = &mut self.shared.scene.lock().ledger;
        if answered {
            ledger.acknowledged(&report);
        } else {
            ledger.forget(&report);
        }
    }

    /// One operation, tried until it is answered or given up.
    async fn operate(&mut self, operation: Operation, command: &[&str]) -> Option<Reply> {
        let site = self.site?;
        let start = Instant::now();
        let shared = self.shared.clone();
        let words = Command { vehicle: Some(self.index), site, words: command };
        self.attempts_failed = 0;
        loop {
            // What a session sees is judged as it comes.
            let is_in_session = operation.is_in_session();
            let asked = match is_in_session {
                true => None,
                false => shared.scene.lock().recorder.asked(words, shared.scene.elapsed()),
            };
            let attempt = async {
                match is_in_session {
                    true => self.attempt_in_session(site, command).await,
                    false => self.attempt(site, command).await,
                }
            };
            let why = match timeout(ATTEMPT_TIMEOUT, attempt).await {
                Ok(Ok(Reply::Error(refusal))) => String::from_utf8_lossy(&refusal).into_owned(),
                Ok(Ok(reply)) => {
                    if let Some(asked) = asked {
                        let at = shared.scene.elapsed();
                        shared.scene.lock().recorder.answered(asked, words, &reply, at);
                    }
                    self.shared.scene.answered(site, operation, start.elapsed());
                    return Some(reply);
                }
                Ok(Err(error)) => error.kind().to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            if is_in_session && why.starts_with("LOST") {
                shared.scene.lock().trips.begin_anew(self.index);
            }
            self.attempts_failed += 1;
            self.connection = None;
            self.node += 1;
            if start.elapsed() > OPERATION_TIMEOUT {
                self.shared.scene.gave_up(operation, start.elapsed(), &why);
                return None;
            }
            self.shared.scene.retried(&why);
            sleep(RETRY_PAUSE.mul_f64(self.rng.random_range(0.5..1.5))).await;
        }
    }

    /// One attempt; the connection is kept only when it was answered.
    async fn attempt(&mut self, site: usize, command: &[&str]) -> std::io::Result<Reply> {
        let (connection, reply) = self.connect(site).await?.call(command).await?;
        self.connection = Some(connection);
        Ok(reply)
    }

    /// One attempt in the session of its trips, which is admitted first where that is not done. It
    /// counts only with the next token: so nothing is seen or written that the session would not
    /// take along.
    async fn attempt_in_session(
        &mut self,
        site: usize,
        command: &[&str],
    ) -> std::io::Result<Reply> {
        let mut connection = self.connect(site).await?;
        if !self.is_admitted {
            let since = *self.admitting_since.get_or_insert_with(Instant::now);
            let token = self.shared.scene.lock().trips.token(self.index);
            if let Some(token) = token {
                let attach = ["PORTOLAN.ATTACH", &token, "WITHIN", ATTACH_WITHIN_MS];
                let (same, reply) = connection.call(&attach).await?;
                if let Reply::Error(_) = reply {
                    return Ok(reply);
                }
                connection = same;
                self.shared.scene.answered(site, Operation::TripAttach, since.elapsed());
            }
            (self.is_admitted, self.admitting_since) = (true, None);
        }
        let (connection, [reply, token]) =
            connection.call_all([command, &["PORTOLAN.TOKEN"]]).await?;
        match (&reply, token) {
            (Reply::Error(_), _) => {}
            (_, Reply::Bulk(token)) => {
                let token = String::from_utf8_lossy(&token).into_owned();
                self.shared.scene.lock().trips.carries(self.index, token);
            }
            _ => return Err(std::io::ErrorKind::InvalidData.into()),
        }
        self.connection = Some(connection);
        Ok(reply)
    }

    /// Its connection, or another one, on which its session was not admitted yet.
    async fn connect(&mut self, site: usize) -> std::io::Result<Connection> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        self.is_admitted = false;
        let endpoint = self.shared.roster.endpoint(site, self.node);
        let endpoint = endpoint.ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        self.radio.set_target(endpoint.address);
        let connection = Connection::open(self.radio.addr()).await?;
        // Its records follow it at once, and not when its use of the last site has faded.
        let name = format!("vehicle-{}", self.index);
        Ok(connection.call(&["CLIENT", "SETNAME", &name]).await?.0)
    }
}
