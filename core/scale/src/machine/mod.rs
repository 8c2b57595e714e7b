//! The machine of a site: samples and answers in, actions out.

mod actions;
mod decide;
mod provision;
mod size;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::{Duration, Instant, Now};

use self::actions::Pending;
use crate::alarming::{Alarming, nanos};
use crate::api::{ActionId, Decision, Event, EventKind, ScaleInput, ScaleOutput};
use crate::group::{GroupState, Member};
use crate::history::History;
use crate::site::{Metric, Site, Stat, Strategy};
use crate::status::{AlarmStatus, GroupStatus, MemberState, MemberStatus, ScaleStatus};

/// Most decisions that are remembered.
const MAX_DECISIONS: usize = 64;

/// Times for which the machine waits for answers before it asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalerLimits {
    /// Time for a resource or a node to be made.
    pub create: Duration,
    /// Time for a node to be emptied and ended.
    pub remove: Duration,
    /// Time for clients to be moved.
    pub relieve: Duration,
    /// Time for a node to be given another size.
    pub resize: Duration,
}

impl Default for ScalerLimits {
    fn default() -> Self {
        Self {
            create: Duration::from_mins(1),
            remove: Duration::from_mins(15),
            relieve: Duration::from_mins(5),
            resize: Duration::from_mins(1),
        }
    }
}

/// The machine of one site: feed it [`ScaleInput`]s, take [`ScaleOutput`]s until there are none. Call [`Scaler::handle_timeout`]
/// once right after it was made and all nodes that run already were adopted.
#[derive(Clone, Debug)]
pub struct Scaler {
    site: Site,
    limits: ScalerLimits,
    now: Now,
    next_tick: Option<Instant>,
    alarming: Alarming,
    /// Another process evaluates alarms (EL-21).
    alarms_elsewhere: bool,
    groups: BTreeMap<String, GroupState>,
    histories: BTreeMap<String, History>,
    /// Resources that are no groups and are there.
    provided: BTreeSet<String>,
    /// Nodes that each load balancer was told last.
    balanced: BTreeMap<String, Vec<String>>,
    pending: BTreeMap<ActionId, Pending>,
    last_id: ActionId,
    /// Times at which policies acted, within the last hour.
    acted: VecDeque<Instant>,
    decisions: VecDeque<Decision>,
    paused: bool,
    outputs: VecDeque<ScaleOutput>,
}

impl Scaler {
    /// A machine for `site`. Numbers of its actions begin after `last_id`, so that a driver never meets an old one again.
    pub fn new(site: Site, limits: ScalerLimits, last_id: ActionId) -> Self {
        let groups = site.groups().map(|(name, group)| {
            let state = GroupState::new(group.min, group.member.millicpus());
            (name.to_owned(), state)
        });
        let groups = groups.collect();
        Self {
            alarming: Alarming::new(site.clone()),
            alarms_elsewhere: false,
            site,
            limits,
            now: Now::default(),
            next_tick: None,
            groups,
            histories: BTreeMap::new(),
            provided: BTreeSet::new(),
            balanced: BTreeMap::new(),
            pending: BTreeMap::new(),
            last_id,
            acted: VecDeque::new(),
            decisions: VecDeque::new(),
            paused: false,
            outputs: VecDeque::new(),
        }
    }

    /// Leaves alarms to another process, which reports them by [`ScaleInput::Alarm`].
    #[must_use]
    pub const fn with_alarms_elsewhere(mut self) -> Self {
        self.alarms_elsewhere = true;
        self
    }

    /// The groups with their serving nodes, and for how long these have been the same.
    pub fn serving(&self, now: Now) -> impl Iterator<Item = (&str, Vec<String>, Duration)> {
        self.groups.iter().map(move |(name, group)| (name.as_str(), group.serving(), now.instant.since(group.settled)))
    }

    /// Takes one event in.
    pub fn handle(&mut self, now: Now, input: ScaleInput) {
        self.now = now;
        match input {
            ScaleInput::Adopt { group, node } => self.adopt(&group, &node),
            ScaleInput::Sample { node, metric, value } => self.sample(&node, metric, value),
            ScaleInput::Done(id) => self.done(id),
            ScaleInput::Failed { action, why } => self.failed(action, &why),
            ScaleInput::Gone { node, why } => self.gone(&node, &why),
            ScaleInput::Pause(paused) => self.pause(paused),
            ScaleInput::Size { group, millicpus } => self.adopt_size(&group, millicpus),
            ScaleInput::Alarm { alarm, state, value } => {
                self.alarming.learn(now.instant, &alarm, state, value);
                self.tell_alarms();
            }
        }
    }

    /// Does everything that is due.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        let grain = self.alarming.grain();
        let due = self.next_tick.get_or_insert(now.instant + grain);
        if *due <= now.instant {
            self.next_tick = Some(now.instant + grain);
            self.tick();
        }
        self.remind();
        self.reconcile();
    }

    /// The next output for the owner, if there is one.
    pub fn poll_output(&mut self) -> Option<ScaleOutput> {
        self.outputs.pop_front()
    }

    /// Time at which [`Self::handle_timeout`] is wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.pending.values().map(Pending::due).filter(|_| !self.paused);
        due.chain(self.next_tick).min()
    }

    /// Whether everything the site says is there, and nothing is under way.
    pub fn is_converged(&self) -> bool {
        let provided = self.site.resources.iter().filter(|(_, resource)| provision::is_provided(&resource.kind));
        let all = provided.into_iter().all(|(name, _)| self.provided.contains(name));
        all && self.pending.is_empty() && self.groups.values().all(GroupState::is_calm)
    }

    /// The last decisions, oldest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter()
    }

    /// The number of the last action.
    pub const fn last_id(&self) -> ActionId {
        self.last_id
    }

    /// Everything at this moment.
    pub fn status(&self) -> ScaleStatus {
        let groups = self.site.groups().filter_map(|(name, spec)| {
            let group = self.groups.get(name)?;
            let members = group.members.iter().map(|(name, member)| MemberStatus {
                name: name.clone(),
                state: member.state,
                since: member.since,
                samples: self.alarming.store.latest(name),
            });
            let (name, members, hold) = (name.to_owned(), members.collect(), group.hold.clone());
            let (wanted, millicpus) = (group.target, group.millicpus);
            Some(GroupStatus { name, min: spec.min, max: spec.max, wanted, millicpus, hold, members })
        });
        let alarms = self.alarming.tracks.iter().map(|(name, track)| AlarmStatus {
            name: name.clone(),
            state: track.state,
            since: track.since,
            value: track.value,
        });
        ScaleStatus {
            paused: self.paused,
            groups: groups.collect(),
            alarms: alarms.collect(),
            pending: self.pending.values().map(|pending| pending.action.kind.to_string()).collect(),
            actions_left: self.actions_left(),
            dropped_samples: self.alarming.store.dropped(),
        }
    }

    /// Checks the invariants of the machine; for tests.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn validate(&self) -> Result<(), String> {
        for (name, spec) in self.site.groups() {
            let Some(group) = self.groups.get(name) else { return Err(format!("{name} has no state")) };
            if group.target < spec.min || group.target > spec.max {
                return Err(format!("{name} wants {} nodes, outside {} to {}", group.target, spec.min, spec.max));
            }
            if group.staying() > spec.max.max(group.target) && self.pending.is_empty() {
                return Err(format!("{name} has {} nodes, more than {}", group.staying(), spec.max));
            }
        }
        Ok(())
    }

    fn adopt(&mut self, group: &str, node: &str) {
        let now = self.now.instant;
        let spec = self.site.groups().find(|(name, _)| *name == group).map(|(_, spec)| spec.clone());
        let (Some(state), Some(spec)) = (self.groups.get_mut(group), spec) else {
            self.event(EventKind::Decision, node, "is of no group of this site".to_owned());
            self.remove_stray(group, node);
            return;
        };
        state.members.insert(node.to_owned(), Member::new(MemberState::Serving, now));
        state.target = state.staying().clamp(spec.min, spec.max);
        state.settled = now;
        self.event(EventKind::Started, node, format!("runs already, as a node of {group}"));
    }

    fn sample(&mut self, node: &str, metric: Metric, value: f64) {
        if self.groups.values().any(|group| group.members.contains_key(node)) {
            self.alarming.store.add(node, metric, self.now.instant, value);
        }
    }

    fn gone(&mut self, node: &str, why: &str) {
        let now = self.now.instant;
        let Some((name, group)) = self.groups.iter_mut().find(|(_, group)| group.members.contains_key(node)) else {
            return;
        };
        let name = name.clone();
        let Some(member) = group.members.get_mut(node) else { return };
        match member.state {
            MemberState::Serving => {
                let wait = member.fail(now);
                member.enter(MemberState::Starting, now);
                group.settled = now;
                self.alarming.store.forget(node);
                self.event(EventKind::Lost, node, why.to_owned());
                self.balance();
                self.create(&name, node.to_owned(), wait);
            }
            // The answer to the action that is under way says the same.
            MemberState::Starting | MemberState::Leaving => {}
        }
    }

    fn pause(&mut self, paused: bool) {
        if self.paused != paused {
            self.paused = paused;
            let text = if paused { "no action begins until the controller is resumed" } else { "actions begin again" };
            self.event(EventKind::Request, "controller", text.to_owned());
            self.remind();
            self.reconcile();
        }
    }

    /// Evaluates all alarms, then asks the policies.
    fn tick(&mut self) {
        for (name, group) in &self.groups {
            self.alarming.serve(name, group.serving(), group.settled);
        }
        if !self.alarms_elsewhere {
            self.alarming.evaluate(self.now.instant);
        }
        self.tell_alarms();
        self.remember_load();
        let names: Vec<String> = self.groups.keys().cloned().collect();
        for name in names {
            self.decide(&name);
        }
    }

    fn tell_alarms(&mut self) {
        while let Some(notice) = self.alarming.poll_output() {
            let measured = notice.value.map_or_else(String::new, |value| format!(" at {value:.1}"));
            self.event(EventKind::Alarm, &notice.alarm.clone(), format!("{} -> {}{measured}", notice.from, notice.to));
            self.outputs.push_back(ScaleOutput::Notice(notice));
        }
    }

    /// Keeps the measurements of groups with a forecast, for later days.
    fn remember_load(&mut self) {
        for (name, policy) in self.site.policies() {
            let Strategy::Forecast(target) = &policy.strategy else { continue };
            let Some(group) = self.groups.get(&policy.group) else { continue };
            let from = Instant::from_nanos(self.now.instant.as_nanos().saturating_sub(nanos(target.period)));
            let nodes = group.serving();
            let sum =
                crate::alarm::measure(&self.alarming.store, &nodes, target.metric, Stat::Sum, from, self.now.instant);
            if let Some(sum) = sum {
                self.histories.entry(name.to_owned()).or_default().add(self.now.wall, sum);
            }
        }
    }

    fn event(&mut self, kind: EventKind, subject: &str, text: String) {
        let event = Event { at: self.now.wall, kind, subject: subject.to_owned(), text };
        self.outputs.push_back(ScaleOutput::Event(event));
    }

    fn decided(&mut self, decision: Decision) {
        let text = format!("{} -> {}: {}", decision.from, decision.to, decision.reason);
        self.event(EventKind::Decision, &decision.group.clone(), text);
        self.decisions.push_back(decision);
        while self.decisions.len() > MAX_DECISIONS {
            self.decisions.pop_front();
        }
    }
}
