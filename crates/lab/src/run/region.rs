//! The causal keys of a run in the end: every site has imported the whole order, holds what that
//! contains, and what sessions did is reported with the places of the writes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use model::KeyspaceId;
use protocol::site::RegionStanding;

use super::form::TIMEOUT;
use super::{Lab, Run, digest};
use crate::clients::sessions::{
    Audit, Losses, Ordering, RefusedSession, Unresolved, audits, expiring, folded, leave_void_out,
    refuses,
};
use crate::history::{History, ReplicaState};
use crate::simulation::NodeIndex;
use crate::simulation::region::Fate;

/// What a session of a run may have lost.
fn losses(lab: &Lab) -> Losses<'_> {
    let mut ordered = BTreeMap::new();
    for (_, site, write) in lab.ordered() {
        let last = ordered.entry(*site).or_insert(write.revision);
        *last = write.revision.max(*last);
    }
    Losses {
        recovered: lab.recovered_since(),
        any_since: lab.losses_since().filter(|_| lab.order_of.len() > 1),
        gone: &lab.removed_lost,
        ordered,
        ends: &lab.ends,
    }
}

impl Run<'_> {
    /// Waits until every site has the whole order, reads all causal keys there, and compares what
    /// is found with what the order makes of the writes.
    pub(super) fn audit_region(&mut self) {
        if !self.world.has_causal_keys() {
            return;
        }
        if let Err(why) = self.wait_for_expiry().and_then(|()| self.wait_for_order()) {
            return self.fail(why);
        }
        let Some(sessions) = &self.sessions else { return };
        let all: VecDeque<Audit> = audits(self.world, sessions.ids()).into();
        let mut left: Vec<VecDeque<Audit>> = self.world.sites.iter().map(|_| all.clone()).collect();
        // Sites without a keyspace that refuse requests for it have nothing to show.
        let ids = self.lab.sites.iter().map(|site| site.id);
        for (audits, id) in left.iter_mut().zip(ids) {
            let is_refused = |audit: &Audit| {
                let places = 0..self.world.keyspaces.len();
                let mut of_audit =
                    places.filter(|place| sessions.ids().of(Some(*place), 0) == audit.keyspace());
                of_audit.any(|place| refuses(&self.world.keyspaces[place], id))
            };
            audits.retain(|audit| !is_refused(audit));
        }
        let replies = self.ask_all(|site| {
            let audit = left[site].pop_front()?;
            let body = audit.body();
            Some((audit, body))
        });
        let replies = match replies {
            Ok(replies) => replies,
            Err(why) => return self.fail(why),
        };
        // By keyspace and site, what was found.
        let mut found: BTreeMap<(KeyspaceId, String), BTreeMap<String, String>> = BTreeMap::new();
        for one in replies {
            let site = self.lab.label(one.site);
            let at = (one.call_us, one.return_us);
            let keyspace = one.about.keyspace();
            let Some((line, marks)) = one.about.answered(&site, at, &one.answer) else {
                return self.fail(format!("{site} answers an audit by {:?}", one.answer));
            };
            found.entry((keyspace, site)).or_default().extend(marks);
            self.unresolved.extend(Some(line).filter(|_| one.about.is_judged()));
        }
        let at_us = self.now_us();
        let folded = folded(&self.lab.order());
        let state = |keyspace: KeyspaceId, replica: String, keys: &BTreeMap<String, String>| {
            let text: Vec<String> =
                keys.iter().map(|(key, mark)| format!("{key}={mark}")).collect();
            let digest = digest(text.join("\n").as_bytes());
            ReplicaState { at_us, group: format!("causal keyspace {keyspace}"), replica, digest }
        };
        let empty = BTreeMap::new();
        let mut wrong = None;
        for ((keyspace, site), keys) in &found {
            let expected = folded.get(keyspace).unwrap_or(&empty);
            if let Some(key) =
                expected.keys().chain(keys.keys()).find(|key| expected.get(*key) != keys.get(*key))
            {
                let shown = |of: Option<&String>| of.map_or("nothing", String::as_str).to_owned();
                wrong.get_or_insert(format!(
                    "{site} holds {} at {key}, and the order ends with {}",
                    shown(keys.get(key)),
                    shown(expected.get(key)),
                ));
            }
            let of_order = state(*keyspace, "the order".to_owned(), expected);
            if self.history.states.last().is_none_or(|last| last.replica != of_order.replica) {
                self.history.states.push(of_order);
            }
            let of_site = state(*keyspace, site.clone(), keys);
            self.history.states.push(of_site);
        }
        if let Some(wrong) = wrong {
            self.lab.note(|| wrong);
        }
    }

    /// Waits until the root has let go of all keys that are to expire: soon by their requests, but
    /// by the time of the site that is the root now, whose clock may be behind that of the one
    /// before: by minutes, which are waited for, or by hours, for which the key stays.
    fn wait_for_expiry(&mut self) -> Result<(), String> {
        const STEP: Duration = Duration::from_millis(500);
        const CLOCKS_APART: Duration = Duration::from_secs(3_600);
        // From the moment on until the root has ordered it.
        const TO_ORDER: Duration = Duration::from_secs(5);
        let until = self.lab.now() + TIMEOUT;
        let mut due_since = None;
        while let Some((key, ms)) = expiring(&self.lab.order()) {
            let due_in = Duration::from_millis(ms.saturating_sub(self.root_time_ms()));
            let now = self.lab.now();
            if now >= until && due_in > CLOCKS_APART {
                return Ok(());
            }
            let since = due_since.filter(|_| due_in.is_zero());
            due_since = due_in.is_zero().then(|| since.unwrap_or(now));
            let is_late = now >= until && due_since.is_some_and(|since| now >= since + TO_ORDER);
            if is_late || now >= until + CLOCKS_APART {
                let what = "did not expire after all faults, by the order; its moment is";
                return Err(format!("{key} {what} {ms} ms"));
            }
            self.lab.run(STEP);
            if let Some(why) = self.lab.failure.take() {
                return Err(why);
            }
        }
        Ok(())
    }

    /// The log time of the root, as far as one is known.
    fn root_time_ms(&self) -> u64 {
        let leaders = self.sites_inside().into_iter().filter_map(|site| self.lab.leader(site));
        let standings = leaders.filter_map(|leader| self.lab.region_standing(leader));
        let roots = standings.filter(|one| one.is_root);
        roots.map(|root| root.log_time_ms).max().unwrap_or(u64::MAX)
    }

    fn wait_for_order(&mut self) -> Result<(), String> {
        let sites = self.sites_inside();
        let standings = |lab: &super::Lab| -> Option<Vec<_>> {
            sites.iter().map(|site| lab.region_standing(lab.leader(*site)?)).collect()
        };
        let is_at_rest = |lab: &super::Lab| {
            let Some(all) = standings(lab) else { return false };
            let has_all = all.iter().all(|one| {
                let is_root = |other: &&RegionStanding| other.is_root && other.region == one.region;
                let Some(root) = all.iter().find(is_root) else { return false };
                one.applied == root.order_last && one.unordered_bytes == 0 && !one.is_resyncing
            });
            let leaders = sites.iter().filter_map(|site| lab.leader(*site));
            let is_root =
                |node: &NodeIndex| lab.region_standing(*node).is_some_and(|one| one.is_root);
            let roots: Vec<NodeIndex> = leaders.filter(is_root).collect();
            has_all && lab.regions_are_joined(&roots)
        };
        if self.lab.run_until(TIMEOUT, is_at_rest) {
            return Ok(());
        }
        if let Some(why) = self.lab.failure.take() {
            return Err(why);
        }
        let each = sites.iter().map(|site| {
            let leader = self.lab.leader(*site);
            let standing = leader.and_then(|leader| self.lab.region_standing(leader));
            format!("{}: {standing:?}", self.lab.label(*site))
        });
        let each: Vec<String> = each.collect();
        Err(format!("sites did not import the whole order after all faults: {}", each.join("; ")))
    }

    /// What sessions did goes into the history.
    pub(super) fn report_sessions(&mut self, history: &mut History) {
        let Some(sessions) = &mut self.sessions else { return };
        let refused = RefusedSession::unexplained(&sessions.refused, &losses(&self.lab));
        for wrong in refused.into_iter().chain(sessions.malformed.take()) {
            self.failure.get_or_insert(wrong);
        }
        if let Some(wrong) = self.sessions.as_mut().and_then(|sessions| sessions.unheld.take()) {
            self.fail(wrong);
        }
        let Some(sessions) = &mut self.sessions else { return };
        let world = self.world;
        let prefix_of = |id: KeyspaceId| {
            let places = (0..world.keyspaces.len()).map(Some);
            let mut of_id = places.filter(|place| sessions.ids().of(*place, 0) == id);
            of_id.next().map_or_else(String::new, |place| world.prefix(place).into_owned())
        };
        let ends = &self.lab.ends;
        let lost = self.lab.lost_at_home();
        let was_void =
            |site, revision| ends.was_void(site, revision) || lost.contains(&(site, revision));
        let order = self.lab.order();
        let mut ordering = Ordering::of(&order, &self.lab.own_writes, prefix_of, was_void);
        let unresolved =
            sessions.take_unresolved().into_iter().chain(std::mem::take(&mut self.unresolved));
        let mut unresolved: Vec<Unresolved> = unresolved.collect();
        let mut regions = self.lab.order_of.keys().copied();
        let only = regions.next().filter(|_| regions.next().is_none());
        let region_of = |site: &str| only.or_else(|| self.lab.region_of(site));
        if only.is_none() {
            for one in &mut unresolved {
                one.name_region(region_of);
            }
        }
        let fate_of = |site: &str, seen| {
            let region = region_of(site);
            (region, region.map_or(Fate::Kept, |region| self.lab.fate_of(region, seen)))
        };
        let left_out = leave_void_out(&mut unresolved, fate_of);
        let (own, gone) = (&self.lab.own_writes, &self.lab.removed_lost);
        ordering.note_lost(&unresolved, own, gone, &self.lab.ends);
        ordering.is_whole = self.lab.removed_lost.is_empty() && !self.lab.gave_places_up;
        history.requests = unresolved.into_iter().map(|one| ordering.request(one)).collect();
        history.positions = ordering.positions;
        if let Some(wrong) = ordering.wrong {
            self.fail(wrong);
        }
        if let Err(wrong) = left_out {
            self.fail(wrong);
        }
    }
}
