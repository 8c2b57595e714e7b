//! Messages that are aggregated together, and their open windows.

use std::collections::VecDeque;

use sedge_mqtt::TopicName;

use super::FORGET;
use crate::aggregate::{Extent, State};
use crate::definition::Rule;
use crate::input::CHAIN_MAX;
use crate::value::Value;
use crate::window::{Shape, Windowing};

/// Bytes of a group and of a window without the parts that grow.
const GROUP_BYTES: usize = 256;
const WINDOW_BYTES: usize = 160;

/// Messages with the same values of `group_by`.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Open windows, by their begin.
    pub(super) windows: VecDeque<Window>,
    /// The latest time of a message.
    pub(super) latest: u64,
    /// Time at which the last message came.
    pub(super) seen: u64,
    /// No message before this time is counted any more: a window that ended here has been put out.
    pub(super) closed: u64,
    /// The watched values that were put out last.
    pub(super) memory: Option<Box<[u8]>>,
    /// Topic of the last message.
    pub(super) source: Option<TopicName>,
    /// Time at which the machine looks at the group.
    pub(super) timer: Option<u64>,
}

/// A window that is open.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) begin: u64,
    /// End of the window; for session windows: the gap behind the last message.
    pub(super) end: u64,
    /// Times of the first and the last message.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Time at which the window's first message came.
    pub(super) opened: u64,
    pub(super) count: u64,
    pub(super) states: Vec<State>,
    /// Rules that had a part in its messages.
    pub(super) chain: Vec<Box<str>>,
}

/// A message as a window counts it.
pub(super) struct Message<'a> {
    /// Time at which the message came.
    pub(super) now: u64,
    /// Time that the message bears, by which windows are chosen.
    pub(super) time: u64,
    /// Values of the aggregates' arguments for the message.
    pub(super) values: &'a [Value<'a>],
    /// Rules that had a part in the message.
    pub(super) chain: &'a [&'a str],
}

/// Outcome of adding a message to a group.
#[derive(Clone, Copy, Default)]
pub(super) struct Added {
    /// At least one window counts the message.
    pub(super) counted: bool,
    /// All windows of the message had closed.
    pub(super) late: bool,
    /// There was no room for a window.
    pub(super) full: bool,
}

impl Window {
    fn open(rule: &Rule, (begin, end): (u64, u64), at: &Message<'_>) -> Self {
        Self {
            begin,
            end,
            first: at.time,
            last: at.time,
            opened: at.now,
            count: 0,
            states: rule.aggregates.iter().map(crate::aggregate::Aggregate::start).collect(),
            chain: Vec::new(),
        }
    }

    fn add(&mut self, rule: &Rule, message: &Message<'_>) {
        self.first = self.first.min(message.time);
        self.last = self.last.max(message.time);
        self.count += 1;
        for ((aggregate, state), value) in rule.aggregates.iter().zip(&mut self.states).zip(message.values) {
            aggregate.add(state, message.time, value);
        }
        self.mark(message.chain.iter().copied());
    }

    fn join(&mut self, rule: &Rule, other: Self) {
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.opened = self.opened.min(other.opened);
        self.count += other.count;
        for ((aggregate, state), theirs) in rule.aggregates.iter().zip(&mut self.states).zip(other.states) {
            aggregate.join(state, theirs);
        }
        self.mark(other.chain.iter().map(|name| &**name));
    }

    fn mark<'a>(&mut self, chain: impl Iterator<Item = &'a str>) {
        for name in chain {
            if !self.chain.iter().any(|known| **known == *name) && self.chain.len() < CHAIN_MAX {
                self.chain.push(name.into());
            }
        }
    }

    pub(super) fn extent(&self, rule: &Rule) -> Extent {
        let by_messages = is_by_messages(rule);
        let length = if by_messages { self.last - self.first } else { self.end - self.begin };
        Extent { length, by_messages }
    }

    /// Begin and end as `window_start()` and `window_end()` give them: of sessions and counts the times of the first and last message.
    pub(super) fn shown(&self, rule: &Rule) -> (u64, u64) {
        if is_by_messages(rule) { (self.first, self.last) } else { (self.begin, self.end) }
    }

    fn bytes(&self) -> usize {
        let states: usize = self.states.iter().map(|state| size_of::<State>() + state.heap()).sum();
        WINDOW_BYTES + states + self.chain.iter().map(|name| 16 + name.len()).sum::<usize>()
    }
}

fn is_by_messages(rule: &Rule) -> bool {
    let shape = rule.window.as_ref().map(|window| window.shape);
    matches!(shape, Some(Shape::Session { .. } | Shape::Count { .. }))
}

impl Windowing {
    /// When a window is over by the clock: by the time of messages it may be earlier.
    fn due(&self, group: &Group, window: &Window) -> u64 {
        let by_age = match self.shape {
            Shape::Count { longest, .. } => window.opened + longest,
            Shape::Session { .. } | Shape::Tumbling { .. } | Shape::Hopping { .. } => u64::MAX,
        };
        let by_time = match (&self.event_time, self.shape) {
            (_, Shape::Count { .. }) => u64::MAX,
            (None, _) => window.end,
            (Some(_), _) => group.seen + self.idle,
        };
        by_age.min(by_time)
    }

    fn is_over(&self, group: &Group, window: &Window, now: u64) -> bool {
        let complete = match self.shape {
            Shape::Count { count, .. } => window.count >= count,
            Shape::Session { longest, .. } => window.last - window.first >= longest,
            Shape::Tumbling { .. } | Shape::Hopping { .. } => false,
        };
        let passed = self.event_time.is_some()
            && !matches!(self.shape, Shape::Count { .. })
            && window.end + self.lateness <= group.latest;
        complete || passed || self.due(group, window) <= now
    }
}

impl Group {
    /// Bytes that the group takes.
    pub(super) fn bytes(&self, key: &[u8]) -> usize {
        let windows: usize = self.windows.iter().map(Window::bytes).sum();
        let source = self.source.as_ref().map_or(0, |topic| topic.as_bytes().len());
        GROUP_BYTES + 2 * key.len() + windows + source + self.memory.as_ref().map_or(0, |memory| memory.len())
    }

    /// Whether nothing is known of it.
    pub(super) fn is_new(&self) -> bool {
        self.windows.is_empty() && self.memory.is_none() && self.closed == 0 && self.latest == 0
    }

    /// Counts a message in the windows that it belongs to; `room` is for how many new ones.
    pub(super) fn add(&mut self, rule: &Rule, at: &Message<'_>, mut room: usize) -> Added {
        let Some(windowing) = &rule.window else { return Added::default() };
        let mut added = Added { late: true, ..Added::default() };
        match windowing.shape {
            Shape::Count { .. } => {
                added.late = false;
                if self.windows.is_empty() && room == 0 {
                    added.full = true;
                    return added;
                }
                if self.windows.is_empty() {
                    self.windows.push_back(Window::open(rule, (at.time, at.time), at));
                }
                self.windows.iter_mut().for_each(|window| window.add(rule, at));
                added.counted = true;
            }
            Shape::Session { gap, longest } => self.add_to_session(rule, at, (gap, longest, room), &mut added),
            shape @ (Shape::Tumbling { .. } | Shape::Hopping { .. }) => {
                let watermark = self.latest.saturating_sub(windowing.lateness);
                for (begin, end) in shape.windows_of(at.time) {
                    if end <= self.closed || windowing.event_time.is_some() && end <= watermark {
                        continue;
                    }
                    added.late = false;
                    let place = self.windows.partition_point(|window| window.begin < begin);
                    if self.windows.get(place).is_none_or(|window| window.begin != begin) {
                        if room == 0 {
                            added.full = true;
                            continue;
                        }
                        room -= 1;
                        self.windows.insert(place, Window::open(rule, (begin, end), at));
                    }
                    if let Some(window) = self.windows.get_mut(place) {
                        window.add(rule, at);
                        added.counted = true;
                    }
                }
            }
        }
        if added.counted {
            self.latest = self.latest.max(at.time);
            self.seen = at.now;
        }
        added
    }

    fn add_to_session(
        &mut self,
        rule: &Rule,
        at: &Message<'_>,
        (gap, longest, room): (u64, u64, usize),
        added: &mut Added,
    ) {
        let joins = |window: &Window| {
            let near = at.time < window.end && at.time + gap > window.first;
            near && window.last.max(at.time) - window.first.min(at.time) <= longest
        };
        let place = self.windows.iter().position(joins);
        let lateness = rule.window.as_ref().map_or(0, |window| window.lateness);
        let late = at.time < self.closed || at.time + gap + lateness <= self.latest;
        let place = match place {
            Some(place) => place,
            None if late => return,
            None if room == 0 => {
                (added.late, added.full) = (false, true);
                return;
            }
            None => {
                let place = self.windows.partition_point(|window| window.begin < at.time);
                self.windows.insert(place, Window::open(rule, (at.time, at.time + gap), at));
                place
            }
        };
        (added.late, added.counted) = (false, true);
        let Some(window) = self.windows.get_mut(place) else { return };
        window.add(rule, at);
        window.begin = window.first;
        window.end = window.last + gap;
        // A message between two sessions makes them one.
        while let (Some(window), Some(next)) = (self.windows.get(place), self.windows.get(place + 1)) {
            let apart = next.first >= window.end || next.last.max(window.last) - window.first > longest;
            if apart {
                break;
            }
            let Some(next) = self.windows.remove(place + 1) else { break };
            if let Some(window) = self.windows.get_mut(place) {
                window.join(rule, next);
            }
        }
    }

    /// Takes out the windows that are over.
    pub(super) fn end_due(&mut self, rule: &Rule, now: u64) -> Vec<Window> {
        let Some(windowing) = &rule.window else { return Vec::new() };
        let is_over = |group: &Self, window: &Window| windowing.is_over(group, window, now);
        if !self.windows.iter().any(|window| is_over(self, window)) {
            return Vec::new();
        }
        let over: Vec<bool> = self.windows.iter().map(|window| is_over(self, window)).collect();
        let (mut ended, mut open) = (Vec::new(), VecDeque::new());
        for (window, over) in core::mem::take(&mut self.windows).into_iter().zip(over) {
            if over {
                ended.push(window);
            } else {
                open.push_back(window);
            }
        }
        self.windows = open;
        for window in &ended {
            self.note_end(rule, window);
        }
        ended
    }

    /// Takes out all windows.
    pub(super) fn end_all(&mut self) -> Vec<Window> {
        core::mem::take(&mut self.windows).into()
    }

    fn note_end(&mut self, rule: &Rule, window: &Window) {
        let end = match rule.window.as_ref().map(|window| window.shape) {
            // A session that was closed for its length goes on in the next.
            Some(Shape::Session { longest, .. }) if window.last - window.first >= longest => window.last,
            Some(Shape::Tumbling { .. } | Shape::Hopping { .. } | Shape::Session { .. }) => window.end,
            Some(Shape::Count { .. }) | None => 0,
        };
        self.closed = self.closed.max(end);
    }

    /// Time at which the machine is to look at the group again.
    pub(super) fn due(&self, rule: &Rule) -> u64 {
        let Some(windowing) = &rule.window else { return self.seen + FORGET };
        let due = self.windows.iter().map(|window| windowing.due(self, window)).min();
        due.unwrap_or_else(|| self.forget_at(rule))
    }

    /// Time from which the group without open windows may be forgotten.
    fn forget_at(&self, rule: &Rule) -> u64 {
        match &rule.window {
            _ if self.memory.is_some() => self.seen + FORGET,
            // Late messages are recognised by the end of the windows that were put out.
            Some(windowing) if windowing.event_time.is_some() => self.seen + windowing.idle + windowing.lateness,
            _ => self.seen,
        }
    }

    pub(super) fn is_forgotten(&self, rule: &Rule, now: u64) -> bool {
        self.windows.is_empty() && self.forget_at(rule) <= now
    }
}
