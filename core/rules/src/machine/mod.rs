//! One rule at work.

mod decode;
mod emit;
mod group;
mod state;
mod transform;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sedge_base::Timestamp;
use sedge_sparkplug::Decoder;
use smallvec::SmallVec;

use self::group::Group;
pub use self::state::{Change, RestoreError};
use crate::aggregate::Aggregate;
use crate::codec::{Reader, Writer};
use crate::counters::Counters;
use crate::definition::Rule;
use crate::expression::Scope;
use crate::input::{CHAIN_MAX, Input, Output};
use crate::limits::Overflow;
use crate::transform::Transform;
use crate::value::{Value, to_u64};

/// Longest key of a group in bytes.
const KEY_MAX: usize = 1024;
/// Time for which a group without windows is remembered, because of its last output: a day, in milliseconds.
const FORGET: u64 = 86_400_000;
/// Most outputs that wait for the owner, beyond one for each window.
const OUTPUTS_SLACK: usize = 1024;
/// Latest time that a message may have: the end of the year 9999. Times computed from it stay far within 64 bits.
const TIME_MAX: u64 = 253_402_300_799_999;

/// A group's key: its values as bytes.
type Key = Arc<[u8]>;

/// Runs a [`Rule`]. Times are wall-clock times, because windows are cut by the wall clock and outlive the process; a clock that is set back
/// stands still here.
#[derive(Debug)]
pub struct Machine {
    rule: Arc<Rule>,
    groups: BTreeMap<Key, Group>,
    /// Times at which groups want to be looked at.
    timers: BTreeSet<(u64, Key)>,
    /// Open windows of all groups.
    windows: usize,
    /// Bytes of all groups.
    bytes: usize,
    outputs: VecDeque<Output>,
    /// Groups that have changed since the owner took the changes.
    changed: BTreeSet<Key>,
    counters: Counters,
    /// Reads payloads of Sparkplug B, if the rule wants that.
    decoder: Option<Box<Decoder>>,
    /// Runs the rule's program, if the rule has one and the owner has given a [`Transform`].
    programs: Option<Box<dyn Transform>>,
    /// Error of the last message from which the program made no output.
    note: Option<String>,
    /// Reason why the last message has to come once more.
    broken: Option<String>,
    /// The latest time that was handed in, in milliseconds.
    now: u64,
}

impl Machine {
    /// A machine that has seen nothing.
    pub fn new(rule: Arc<Rule>) -> Self {
        let decoder = rule.reads_sparkplug().then(Box::default);
        Self {
            rule,
            decoder,
            programs: None,
            note: None,
            broken: None,
            groups: BTreeMap::new(),
            timers: BTreeSet::new(),
            windows: 0,
            bytes: 0,
            outputs: VecDeque::new(),
            changed: BTreeSet::new(),
            counters: Counters::default(),
            now: 0,
        }
    }

    /// The rule that it runs.
    pub const fn rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    /// Counts since the machine was made.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Number of groups that the machine keeps.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Windows that are open.
    pub const fn window_count(&self) -> usize {
        self.windows
    }

    /// Bytes that groups and windows take, about.
    pub const fn state_bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a publication. Closes first the windows that are due at `now`.
    pub fn handle(&mut self, now: Timestamp, input: &Input<'_>) {
        self.handle_timeout(now);
        self.counters.seen += 1;
        let rule = Arc::clone(&self.rule);
        let decoded = match self.decode(&rule, input) {
            decode::Read::AsItIs => None,
            decode::Read::Json(json) => Some(json),
            decode::Read::Nothing => return,
        };
        let input = &decoded.as_ref().map_or(*input, |payload| Input { payload, ..*input });
        if !rule.from.is_empty() && !rule.from.iter().any(|filter| filter.matches(input.topic)) {
            return;
        }
        if input.chain().any(|name| name == &*rule.name) || input.chain().count() >= CHAIN_MAX {
            self.counters.loops += 1;
            return;
        }
        let mut scope = Scope::of_message(&rule.fields, input, self.now);
        if decoded.is_none() && input.payload.len() > rule.limits.payload_bytes {
            scope.opaque = true;
            self.counters.too_large += 1;
        }
        if rule.condition.as_ref().is_some_and(|condition| !scope.evaluate(condition).is_true()) {
            return;
        }
        self.counters.selected += 1;
        if rule.jq.is_some() {
            self.transform(&rule, input, &mut scope);
            return;
        }
        if !rule.has_state() {
            if let Some(output) = emit::of_message(&rule, input, &mut scope) {
                self.put_out(output);
            } else {
                self.counters.failed += 1;
            }
            return;
        }
        let mut writer = Writer::default();
        rule.group_by.iter().for_each(|value| writer.value(&scope.evaluate(value)));
        if writer.0.len() > KEY_MAX {
            self.counters.over_limit += 1;
            return;
        }
        if rule.window.is_some() {
            self.add_to_window(&rule, &writer.0, input, &mut scope);
        } else {
            self.past_memory(&rule, &writer.0, input, &mut scope);
        }
    }

    /// Closes the windows that are due at `now`.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.now = self.now.max(now.as_millis().min(TIME_MAX));
        while self.timers.first().is_some_and(|(due, _)| *due <= self.now) {
            let Some((_, key)) = self.timers.pop_first() else { return };
            let Some(mut group) = self.take(&key) else { continue };
            group.timer = None;
            let rule = Arc::clone(&self.rule);
            let ended = group.end_due(&rule, self.now);
            let touched = !ended.is_empty();
            self.close(&rule, &key, &mut group, ended);
            let forgotten = group.is_forgotten(&rule, self.now);
            if touched || forgotten {
                self.changed.insert(Arc::clone(&key));
            }
            if !forgotten {
                self.give_back(&rule, key, group);
            }
        }
    }

    /// When [`Self::handle_timeout`] is next wanted.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.first().map(|(due, _)| Timestamp::from_millis(*due))
    }

    /// The next output of the rule, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn put_out(&mut self, output: Output) {
        if self.outputs.len() >= self.rule.limits.windows.saturating_add(OUTPUTS_SLACK) {
            self.counters.failed += 1;
            return;
        }
        self.counters.outputs += 1;
        self.outputs.push_back(output);
    }

    /// Takes a group out of all tables, to be changed.
    fn take(&mut self, key: &[u8]) -> Option<Group> {
        let group = self.groups.remove(key)?;
        self.windows -= group.windows.len();
        self.bytes -= group.bytes(key);
        Some(group)
    }

    /// Puts a group back where it was, with the timer that it wants now. A timer that is too early is harmless and cheap.
    fn give_back(&mut self, rule: &Rule, key: Key, mut group: Group) {
        let due = group.due(rule);
        if group.timer.is_none_or(|timer| due < timer) {
            if let Some(timer) = group.timer {
                self.timers.remove(&(timer, Arc::clone(&key)));
            }
            group.timer = Some(due);
            self.timers.insert((due, Arc::clone(&key)));
        }
        self.windows += group.windows.len();
        self.bytes += group.bytes(&key);
        self.groups.insert(key, group);
    }

    /// The group of this key, taken out; a new one if there is room.
    fn group(&mut self, rule: &Rule, bytes: &[u8]) -> Option<(Key, Group)> {
        if let Some((key, _)) = self.groups.get_key_value(bytes) {
            let key = Arc::clone(key);
            if self.bytes >= rule.limits.state_bytes || self.windows >= rule.limits.windows {
                self.make_room(rule, Some(&key));
            }
            if self.bytes >= rule.limits.state_bytes && rule.aggregates.iter().any(Aggregate::grows) {
                return None;
            }
            return self.take(&key).map(|group| (key, group));
        }
        if self.is_full(rule) {
            self.make_room(rule, None);
        }
        if self.is_full(rule) { None } else { Some((Arc::from(bytes), Group::default())) }
    }

    fn is_full(&self, rule: &Rule) -> bool {
        self.groups.len() >= rule.limits.groups
            || self.bytes >= rule.limits.state_bytes
            || self.windows >= rule.limits.windows
    }

    /// Closes the windows of the group that is due first, if the rule's policy is that; but not those of `except`.
    fn make_room(&mut self, rule: &Rule, except: Option<&Key>) {
        if rule.limits.overflow == Overflow::Drop {
            return;
        }
        let first = self.timers.iter().find(|(_, key)| Some(key) != except).cloned();
        let Some((due, key)) = first else { return };
        self.timers.remove(&(due, Arc::clone(&key)));
        let Some(mut group) = self.take(&key) else { return };
        self.counters.closed_early += 1;
        let ended = group.end_all();
        self.close(rule, &key, &mut group, ended);
        self.changed.insert(key);
    }

    /// Puts out the results of a group's windows that have ended.
    fn close(&mut self, rule: &Rule, key: &Key, group: &mut Group, ended: Vec<group::Window>) {
        for window in ended {
            match emit::of_window(rule, key, group, &window) {
                emit::Emitted::Output(output) => self.put_out(*output),
                emit::Emitted::HeldBack => self.counters.held_back += 1,
                emit::Emitted::Failed => self.counters.failed += 1,
            }
        }
    }

    fn add_to_window<'a>(&mut self, rule: &'a Rule, bytes: &[u8], input: &Input<'_>, scope: &mut Scope<'a>) {
        let Some(windowing) = &rule.window else { return };
        let time = match &windowing.event_time {
            None => Some(self.now),
            Some(time) => scope.evaluate(time).as_number().and_then(to_u64),
        };
        let latest = (self.now + windowing.ahead).min(TIME_MAX);
        let Some(time) = time.filter(|time| windowing.event_time.is_none() || *time <= latest) else {
            self.counters.bad_time += 1;
            return;
        };
        let Some((key, mut group)) = self.group(rule, bytes) else {
            self.counters.over_limit += 1;
            return;
        };
        let values: SmallVec<[Value<'a>; 8]> = rule
            .aggregates
            .iter()
            .map(|aggregate| aggregate.argument.as_ref().map_or(Value::Null, |argument| scope.evaluate(argument)))
            .collect();
        let room = rule.limits.windows.saturating_sub(self.windows + group.windows.len());
        let room = if self.bytes >= rule.limits.state_bytes { 0 } else { room };
        let chain: SmallVec<[&str; 2]> = input.chain().collect();
        let message = group::Message { now: self.now, time, values: &values, chain: &chain };
        let added = group.add(rule, &message, room);
        if added.full {
            self.counters.over_limit += 1;
        }
        if added.late {
            self.counters.late += 1;
        }
        if added.counted {
            if group.source.as_ref() != Some(input.topic) {
                group.source = Some(input.topic.detached());
            }
            if !self.changed.contains(&key) {
                self.changed.insert(Arc::clone(&key));
            }
        }
        let ended = group.end_due(rule, self.now);
        self.close(rule, &key, &mut group, ended);
        if group.is_new() {
            // The message was late or over a limit: nothing is known of its group.
            if let Some(timer) = group.timer {
                self.timers.remove(&(timer, key));
            }
            return;
        }
        self.give_back(rule, key, group);
    }

    /// A message of a rule without a window that puts out changes only.
    fn past_memory<'a>(&mut self, rule: &'a Rule, bytes: &[u8], input: &'a Input<'a>, scope: &mut Scope<'a>) {
        let values = emit::values(rule, scope);
        let Some((key, mut group)) = self.group(rule, bytes) else {
            self.counters.over_limit += 1;
            return;
        };
        group.seen = self.now;
        if group.memory.as_ref().is_some_and(|memory| !emit::has_moved(rule, Reader(memory), &values)) {
            self.counters.held_back += 1;
        } else if let Some(output) = emit::of_values(rule, input, scope, &values) {
            group.memory = Some(emit::memory(rule, &values));
            self.changed.insert(Arc::clone(&key));
            self.put_out(output);
        } else {
            self.counters.failed += 1;
        }
        if group.memory.is_some() {
            self.give_back(rule, key, group);
        }
    }
}
