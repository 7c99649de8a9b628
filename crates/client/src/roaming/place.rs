//! Where a session is, and in which order it tries the sites.
//!
//! A call attaches to a site that the session is not at: it waits until that has what the session
//! has seen, for a second at most, before the next one is asked. So a request itself is sent only
//! to a site that can answer it, and a write does not become unknown by waiting.
//!
//! A put that was sent in vain goes on at the other sites, under its number, and there without
//! attaching: the root waits for what the session has seen. From then on every failure leaves its
//! outcome unknown.

use super::distance::{Distances, Roaming};
use super::error::RoamingError;
use model::Bytes;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What attaching to a site may take, before the next one is asked. Of that the site waits for what
/// it lacks, but for the quarter that its answer has.
const ATTACH: Duration = Duration::from_secs(1);
/// Between two rounds over all sites.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two looks whether another site is nearer.
const LOOK: Duration = Duration::from_secs(1);

/// Why one site did not do what it was asked.
#[derive(Clone, Debug)]
pub(super) enum Failed {
    /// No other site need be asked; this one goes on serving.
    Final(RoamingError),
    /// It has not what the session has seen. Nothing was done.
    Lacks(RoamingError),
    /// It does not serve. Nothing was done that another site must not do.
    Away {
        why: String,
        /// It did not answer in time.
        is_silent: bool,
    },
    /// A write was sent to it, and there is no answer.
    Unknown(String),
    /// The same, and other sites may be asked for it.
    Sent(String),
}

/// One call, as it is made at a site.
pub(super) trait Work: Sync {
    type Answer: Send;

    /// Waits until the site has all that the token's session has seen.
    fn attach(
        &self,
        site: usize,
        token: &Bytes,
        limit: Duration,
    ) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Does it there, and brings the next token; empty: as it was. A write that was sent may take
    /// until `late`.
    fn send(
        &self,
        site: usize,
        token: &Bytes,
        limit: Duration,
        late: Instant,
    ) -> impl Future<Output = Result<(Self::Answer, Bytes), Failed>> + Send;
}

/// How a session has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// To another site, also to come back to one that had failed.
    pub attaches: u64,
    /// Moves to a nearer site, or by hand.
    pub moves: u64,
    /// What attaching took, together and at most.
    pub attaching: Duration,
    /// The longest.
    pub attaching_max: Duration,
    /// Times that a site did not serve a call, which was tried again or elsewhere.
    pub repeats: u64,
}

/// A session: what it has seen, and where it is.
pub(super) struct Place {
    pub(super) token: Bytes,
    pub(super) stats: SessionStats,
    /// The site that it was at last.
    pub(super) site: Option<usize>,
    /// Whether that site has all that it has seen, as far as is known.
    is_attached: bool,
    stay_until: Instant,
    look_at: Instant,
}

impl Place {
    pub(super) fn new(token: Bytes) -> Place {
        let now = Instant::now();
        let stats = SessionStats::default();
        Place { token, stats, site: None, is_attached: false, stay_until: now, look_at: now }
    }

    /// Forgets what it has seen.
    pub(super) fn begin_anew(&mut self) {
        self.token = Bytes::new();
        self.is_attached = false;
    }

    /// Makes one call, wherever that is possible.
    pub(super) async fn roam<W: Work>(
        &mut self,
        work: &W,
        distances: &Mutex<Distances>,
        rule: &Roaming,
    ) -> Result<W::Answer, RoamingError> {
        let deadline = Instant::now() + rule.deadline;
        self.look(work, distances, rule).await;
        let (mut lack, mut why, mut silent) = (None, String::new(), None);
        let mut sent: Option<String> = None;
        loop {
            let turn = lock(distances).in_turn(self.site, silent);
            for site in turn {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let tried = match &sent {
                    Some(_) => self.ask_again(work, site, deadline, rule).await,
                    None => self.try_at(work, site, left, deadline, rule).await,
                };
                let failed = match tried {
                    Ok(answer) => return Ok(answer),
                    Err(failed) => failed,
                };
                match failed {
                    Failed::Final(error) if sent.is_none() => return Err(error),
                    Failed::Final(error) => sent = Some(error.to_string()),
                    Failed::Sent(why) => {
                        self.leave(site, distances);
                        (sent, silent) = (Some(why), silent.or(Some(site)));
                    }
                    Failed::Unknown(why) => {
                        self.leave(site, distances);
                        return Err(RoamingError::Unknown(why));
                    }
                    Failed::Lacks(error) => {
                        self.is_attached &= self.site != Some(site);
                        lack = Some(error);
                    }
                    Failed::Away { why: reason, is_silent } => {
                        self.leave(site, distances);
                        why = reason;
                        silent = if is_silent { Some(site) } else { silent };
                    }
                }
                self.stats.repeats += 1;
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(match sent {
                    Some(why) => RoamingError::Unknown(why),
                    None => lack.unwrap_or(RoamingError::NoSite(why)),
                });
            }
            sleep(PAUSE).await;
        }
    }

    /// Makes the call at one site, which the session attaches to first if it is not there.
    async fn try_at<W: Work>(
        &mut self,
        work: &W,
        site: usize,
        left: Duration,
        deadline: Instant,
        rule: &Roaming,
    ) -> Result<W::Answer, Failed> {
        if !(self.is_attached && self.site == Some(site)) {
            self.attach(work, site, left.min(ATTACH)).await?;
            self.stays(site, rule);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = left.min(rule.attempt_deadline);
        let (answer, token) = work.send(site, &self.token, limit, deadline).await?;
        if !token.is_empty() {
            self.token = token;
        }
        Ok(answer)
    }

    /// Asks a site for a put that was sent in vain. The session goes on there, and has yet to
    /// attach.
    async fn ask_again<W: Work>(
        &mut self,
        work: &W,
        site: usize,
        deadline: Instant,
        rule: &Roaming,
    ) -> Result<W::Answer, Failed> {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = left.min(rule.attempt_deadline);
        let (answer, token) = work.send(site, &self.token, limit, deadline).await?;
        if !token.is_empty() {
            self.token = token;
        }
        (self.site, self.is_attached) = (Some(site), false);
        Ok(answer)
    }

    async fn attach<W: Work>(
        &mut self,
        work: &W,
        site: usize,
        limit: Duration,
    ) -> Result<(), Failed> {
        if self.token.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        work.attach(site, &self.token, limit).await?;
        let took = began.elapsed();
        self.stats.attaches += 1;
        self.stats.attaching += took;
        self.stats.attaching_max = self.stats.attaching_max.max(took);
        Ok(())
    }

    /// Goes on at another site; if that is not possible, it stays where it is.
    pub(super) async fn move_to<W: Work>(
        &mut self,
        work: &W,
        site: usize,
        limit: Duration,
        rule: &Roaming,
    ) -> Result<(), RoamingError> {
        match self.attach(work, site, limit).await {
            Ok(()) => {
                self.stays(site, rule);
                self.stats.moves += 1;
                Ok(())
            }
            Err(Failed::Final(error) | Failed::Lacks(error)) => Err(error),
            Err(Failed::Away { why, .. } | Failed::Unknown(why) | Failed::Sent(why)) => {
                Err(RoamingError::NoSite(why))
            }
        }
    }

    /// Moves if another site is nearer and has soon what the session has seen.
    async fn look<W: Work>(&mut self, work: &W, distances: &Mutex<Distances>, rule: &Roaming) {
        let now = Instant::now();
        let Some(here) = self.site.filter(|_| self.is_attached && now >= self.look_at) else {
            return;
        };
        self.look_at = now + LOOK;
        if !rule.nearer || now < self.stay_until {
            return;
        }
        let nearer = lock(distances).nearer_than(here, rule);
        if let Some(site) = nearer
            && self.move_to(work, site, rule.wait, rule).await.is_err()
        {
            self.stays(here, rule);
        }
    }

    /// The session is at this site, and stays there for a while.
    fn stays(&mut self, site: usize, rule: &Roaming) {
        let now = Instant::now();
        (self.site, self.is_attached) = (Some(site), true);
        (self.stay_until, self.look_at) = (now + rule.stay, now + LOOK);
    }

    /// A site does not serve. The session goes back to it if it is asked again before it was
    /// elsewhere.
    fn leave(&mut self, site: usize, distances: &Mutex<Distances>) {
        lock(distances).failed(site);
        self.is_attached &= self.site != Some(site);
    }
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().expect("no panic while it is held")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a scripted site behaves.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Site {
        /// It has so much, and answers after so many milliseconds.
        Has(u64, u64),
        Refuses,
        Hangs,
        /// It takes a write, and there is no answer.
        LosesAnswers,
        /// The same, of a write that other sites may be asked for.
        LosesPuts,
        LostItsWrites,
    }

    /// Reads how much the site has. The token is what the session has seen, as text.
    struct Read(Mutex<Vec<Site>>);

    impl Read {
        fn of(sites: &[Site]) -> Read {
            Read(Mutex::new(sites.to_vec()))
        }

        fn set(&self, site: usize, to: Site) {
            self.0.lock().unwrap()[site] = to;
        }

        async fn at(&self, site: usize, token: &Bytes, limit: Duration) -> Result<u64, Failed> {
            let seen = std::str::from_utf8(token).unwrap().parse().unwrap_or(0);
            let silent = || Failed::Away { why: "silent".to_owned(), is_silent: true };
            let site = self.0.lock().unwrap()[site];
            match site {
                Site::Has(has, ms) if has >= seen => {
                    sleep(Duration::from_millis(ms)).await;
                    Ok(has)
                }
                Site::Has(has, _) => {
                    sleep(limit / 2).await;
                    Err(Failed::Lacks(RoamingError::Behind(format!("{has} of {seen}"))))
                }
                Site::Refuses => Err(Failed::Away { why: "refused".to_owned(), is_silent: false }),
                Site::Hangs => {
                    sleep(limit).await;
                    Err(silent())
                }
                Site::LosesAnswers => Err(Failed::Unknown("no answer".to_owned())),
                Site::LosesPuts => Err(Failed::Sent("no answer".to_owned())),
                Site::LostItsWrites => {
                    Err(Failed::Final(RoamingError::Lost("it is gone".to_owned())))
                }
            }
        }
    }

    impl Work for Read {
        type Answer = u64;

        async fn attach(&self, site: usize, token: &Bytes, limit: Duration) -> Result<(), Failed> {
            match self.at(site, token, limit).await {
                // It is the write that gets no answer.
                Ok(_) | Err(Failed::Unknown(_) | Failed::Sent(_)) => Ok(()),
                Err(failed) => Err(failed),
            }
        }

        async fn send(
            &self,
            site: usize,
            token: &Bytes,
            limit: Duration,
            _late: Instant,
        ) -> Result<(u64, Bytes), Failed> {
            let has = self.at(site, token, limit).await?;
            Ok((has, Bytes::from(has.to_string())))
        }
    }

    struct Tried {
        place: Place,
        distances: Mutex<Distances>,
        rule: Roaming,
        work: Read,
    }

    impl Tried {
        fn of(sites: &[Site]) -> Tried {
            Tried {
                place: Place::new(Bytes::new()),
                distances: Mutex::new(Distances::new(sites.len())),
                rule: Roaming::default(),
                work: Read::of(sites),
            }
        }

        async fn read(&mut self) -> Result<u64, RoamingError> {
            self.place.roam(&self.work, &self.distances, &self.rule).await
        }

        fn ping(&self, site: usize, ms: u64) {
            for _ in 0..5 {
                lock(&self.distances).answered(site, Duration::from_millis(ms));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_stays_while_its_site_serves_and_goes_to_the_nearest_when_it_fails() {
        let mut tried = Tried::of(&[Site::Has(4, 1), Site::Has(4, 1), Site::Has(4, 1)]);
        assert_eq!(tried.read().await, Ok(4));
        assert_eq!((tried.place.site, tried.place.stats), (Some(0), SessionStats::default()));
        tried.ping(2, 3);
        tried.ping(1, 9);
        tried.work.set(0, Site::Refuses);
        assert_eq!(tried.read().await, Ok(4));
        assert_eq!(tried.place.site, Some(2), "the nearest");
        tried.work.set(0, Site::Has(5, 1));
        assert_eq!(tried.read().await, Ok(4));
        assert_eq!(tried.place.site, Some(2), "it does not swing back");
        assert_eq!((tried.place.stats.attaches, tried.place.stats.moves), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_site_that_is_behind_is_passed_over() {
        let mut tried = Tried::of(&[Site::Has(7, 1), Site::Has(6, 1), Site::Has(8, 1)]);
        assert_eq!(tried.read().await, Ok(7));
        tried.work.set(0, Site::Refuses);
        let began = Instant::now();
        assert_eq!(tried.read().await, Ok(8));
        assert_eq!(tried.place.site, Some(2));
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "it waits half a second at the one behind"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_is_kept_and_the_error_says_what_is_missing() {
        let mut tried = Tried::of(&[Site::Has(7, 1), Site::Has(6, 1), Site::Hangs]);
        assert_eq!(tried.read().await, Ok(7));
        tried.work.set(0, Site::Refuses);
        let began = Instant::now();
        let behind = RoamingError::Behind("6 of 7".to_owned());
        assert_eq!(tried.read().await, Err(behind));
        let took = began.elapsed();
        assert!((4_800..=5_000).contains(&took.as_millis()), "{took:?}");
        assert_eq!(tried.place.token, "7", "the session is kept");
        tried.work.set(1, Site::Has(9, 1));
        assert_eq!(tried.read().await, Ok(9));

        let mut refusing = Tried::of(&[Site::Refuses, Site::Refuses]);
        assert_eq!(refusing.read().await, Err(RoamingError::NoSite("refused".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_site_that_hangs_comes_last() {
        let mut tried = Tried::of(&[Site::Has(7, 1), Site::Has(7, 1)]);
        assert_eq!(tried.read().await, Ok(7));
        tried.work.set(0, Site::Hangs);
        let began = Instant::now();
        assert_eq!(tried.read().await, Ok(7));
        assert_eq!(tried.place.site, Some(1));
        assert_eq!(began.elapsed().as_millis(), 2_002, "one attempt, an attach and a read");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_sent_in_vain_is_unknown_at_once_and_the_session_goes_on_elsewhere() {
        let mut tried = Tried::of(&[Site::Has(7, 1), Site::Has(8, 1)]);
        assert_eq!(tried.read().await, Ok(7));
        tried.work.set(0, Site::LosesAnswers);
        assert_eq!(tried.read().await, Err(RoamingError::Unknown("no answer".to_owned())));
        assert_eq!(tried.place.site, Some(0), "it was made nowhere else");
        tried.work.set(0, Site::Refuses);
        assert_eq!(tried.read().await, Ok(8));
    }

    #[tokio::test(start_paused = true)]
    async fn a_put_that_was_sent_in_vain_goes_on_at_the_other_sites() {
        let mut tried = Tried::of(&[Site::Has(7, 1), Site::Refuses, Site::Has(7, 1)]);
        assert_eq!(tried.read().await, Ok(7));
        tried.work.set(0, Site::LosesPuts);
        assert_eq!(tried.read().await, Ok(7), "one call");
        assert_eq!((tried.place.site, tried.place.is_attached), (Some(2), false));
        assert_eq!(tried.place.stats.attaches, 0, "it is not waited for there");
        assert_eq!(tried.read().await, Ok(7));
        assert_eq!((tried.place.is_attached, tried.place.stats.attaches), (true, 1));

        // No other site answers for it: that it was perhaps made is not forgotten.
        tried.work.set(0, Site::LostItsWrites);
        tried.work.set(2, Site::LosesPuts);
        let began = Instant::now();
        let unknown = tried.read().await;
        assert!(matches!(unknown, Err(RoamingError::Unknown(_))), "{unknown:?}");
        assert!((4_900..=5_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
        // Its own site is asked again, too.
        tried.work.set(0, Site::Refuses);
        tried.work.set(2, Site::Has(9, 1));
        assert_eq!(tried.read().await, Ok(9));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_with_lost_writes_ends_until_it_is_begun_anew() {
        let mut tried = Tried::of(&[Site::Has(7, 1), Site::LostItsWrites]);
        assert_eq!(tried.read().await, Ok(7));
        tried.work.set(0, Site::Refuses);
        let began = Instant::now();
        assert_eq!(tried.read().await, Err(RoamingError::Lost("it is gone".to_owned())));
        assert_eq!(began.elapsed(), Duration::ZERO, "no other site is asked");
        tried.place.begin_anew();
        tried.work.set(1, Site::Has(0, 1));
        assert_eq!(tried.read().await, Ok(0));
    }

    #[tokio::test(start_paused = true)]
    async fn it_moves_to_a_nearer_site_that_has_what_it_has_seen() {
        let mut tried = Tried::of(&[Site::Has(7, 9), Site::Has(3, 1)]);
        assert_eq!(tried.read().await, Ok(7));
        tried.ping(0, 9);
        tried.ping(1, 1);
        sleep(Duration::from_secs(29)).await;
        assert_eq!(tried.read().await, Ok(7));
        assert_eq!(tried.place.site, Some(0), "it stays for half a minute");
        sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        assert_eq!(tried.read().await, Ok(7));
        assert_eq!(tried.place.site, Some(0), "the nearer one is behind");
        assert!(began.elapsed() < Duration::from_millis(260), "and it is not waited for long");
        tried.work.set(1, Site::Has(8, 1));
        sleep(Duration::from_secs(29)).await;
        assert_eq!(tried.read().await, Ok(7));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(tried.read().await, Ok(8));
        assert_eq!((tried.place.site, tried.place.stats.moves), (Some(1), 1));

        let mut reported = Tried::of(&[Site::Has(7, 9), Site::Has(7, 1)]);
        reported.rule.nearer = false;
        assert_eq!(reported.read().await, Ok(7));
        reported.ping(0, 9);
        reported.ping(1, 1);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(reported.read().await, Ok(7));
        assert_eq!(reported.place.site, Some(0), "only when its site fails");
    }
}
