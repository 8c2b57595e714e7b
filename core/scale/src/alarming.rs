//! Alarming: keeps measurements, compares them with thresholds, and says when an alarm changes its state (Pham; EL-11, EL-13, EL-14).
//!
//! It is a part of [`crate::Scaler`], or a machine of its own where the modules of a site run as several processes (EL-21).

use std::collections::{BTreeMap, VecDeque};

use sedge_base::{Duration, Instant, Now};

use crate::alarm::{AlarmState, evaluate, looks_no_further_than};
use crate::api::Notice;
use crate::site::{Metric, Site};
use crate::store::Store;

/// One event for [`Alarming`].
#[derive(Clone, Debug, PartialEq)]
pub enum AlarmInput {
    /// A measurement at a node.
    Sample {
        /// Name of the node.
        node: String,
        /// Metric that was measured.
        metric: Metric,
        /// The value.
        value: f64,
    },
    /// Which nodes of a group serve. Samples of nodes that are in no group are dropped.
    Group {
        /// Name of the group.
        group: String,
        /// Names of the nodes that serve.
        nodes: Vec<String>,
        /// Time for which these have been the group's nodes: earlier measurements say nothing about the group.
        settled: Duration,
    },
}

/// The state of an alarm.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Track {
    pub(crate) state: AlarmState,
    pub(crate) since: Instant,
    /// Measurement of the last period, if there is one.
    pub(crate) value: Option<f64>,
}

#[derive(Clone, Debug, Default)]
struct Serving {
    nodes: Vec<String>,
    settled: Instant,
}

/// The machine: feed it [`AlarmInput`]s, take [`Notice`]s until there are none.
#[derive(Clone, Debug)]
pub struct Alarming {
    site: Site,
    grain: Duration,
    next_tick: Option<Instant>,
    pub(crate) store: Store,
    groups: BTreeMap<String, Serving>,
    pub(crate) tracks: BTreeMap<String, Track>,
    notices: VecDeque<Notice>,
}

impl Alarming {
    /// A machine for the alarms of `site`; every alarm begins with insufficient data.
    pub fn new(site: Site) -> Self {
        let tracks = site.alarms().map(|(name, _)| (name.to_owned(), Track::default())).collect();
        let grain = grain(&site);
        let store = Store::new(grain);
        Self { site, grain, next_tick: None, store, groups: BTreeMap::new(), tracks, notices: VecDeque::new() }
    }

    /// Takes one event in.
    pub fn handle(&mut self, now: Now, input: AlarmInput) {
        match input {
            AlarmInput::Sample { node, metric, value } => {
                if self.groups.values().any(|group| group.nodes.contains(&node)) {
                    self.store.add(&node, metric, now.instant, value);
                }
            }
            AlarmInput::Group { group, nodes, settled } => {
                let settled = Instant::from_nanos(now.instant.as_nanos().saturating_sub(nanos(settled)));
                let before = self.serve(&group, nodes, settled);
                let gone =
                    before.into_iter().filter(|node| !self.groups.values().any(|group| group.nodes.contains(node)));
                gone.collect::<Vec<_>>().iter().for_each(|node| self.store.forget(node));
            }
        }
    }

    /// Evaluates all alarms when that is due.
    pub fn handle_timeout(&mut self, now: Now) {
        let due = self.next_tick.get_or_insert(now.instant + self.grain);
        if *due <= now.instant {
            self.next_tick = Some(now.instant + self.grain);
            self.evaluate(now.instant);
        }
    }

    /// The next alarm that has changed its state, if any.
    pub fn poll_output(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Time at which [`Self::handle_timeout`] is wanted.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.next_tick
    }

    /// State and measurement of each alarm, by name.
    pub fn states(&self) -> impl Iterator<Item = (&str, AlarmState, Option<f64>)> {
        self.tracks.iter().map(|(name, track)| (name.as_str(), track.state, track.value))
    }

    /// Length of the store's buckets.
    pub(crate) const fn grain(&self) -> Duration {
        self.grain
    }

    /// The nodes of a group from now on, and since when; says which they were before.
    pub(crate) fn serve(&mut self, group: &str, nodes: Vec<String>, settled: Instant) -> Vec<String> {
        let serving = self.groups.entry(group.to_owned()).or_default();
        serving.settled = settled;
        core::mem::replace(&mut serving.nodes, nodes)
    }

    pub(crate) fn evaluate(&mut self, end: Instant) {
        for (name, alarm) in self.site.alarms() {
            let (Some(track), Some(group)) = (self.tracks.get_mut(name), self.groups.get(&alarm.of)) else { continue };
            if !looks_no_further_than(alarm, group.settled, end) {
                continue;
            }
            let (state, value) = evaluate(alarm, &self.store, &group.nodes, end);
            self.notices.extend(change(name, track, state, value, end));
        }
    }

    /// Another process has evaluated an alarm.
    pub(crate) fn learn(&mut self, now: Instant, name: &str, state: AlarmState, value: Option<f64>) {
        if let Some(track) = self.tracks.get_mut(name) {
            self.notices.extend(change(name, track, state, value, now));
        }
    }
}

/// Notes the state of an alarm; a notice if that is another one than before.
fn change(name: &str, track: &mut Track, state: AlarmState, value: Option<f64>, at: Instant) -> Option<Notice> {
    let from = core::mem::replace(&mut track.state, state);
    track.value = value;
    if from == state {
        return None;
    }
    track.since = at;
    Some(Notice { alarm: name.to_owned(), from, to: state, value })
}

/// Nanoseconds of a duration.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Length of the store's buckets: a quarter of the shortest period, between 25 ms and 10 s.
fn grain(site: &Site) -> Duration {
    let tracked = site.policies().filter_map(|(_, policy)| policy.tracked()).map(|target| target.period);
    let shortest = site.alarms().map(|(_, alarm)| alarm.period).chain(tracked).min();
    let quarter = shortest.unwrap_or(Duration::from_secs(10)) / 4;
    quarter.clamp(Duration::from_millis(25), Duration::from_secs(10))
}
