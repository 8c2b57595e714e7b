//! State of one publisher: the messages it has sent and may send.

use crate::measure::{SentRange, Window};
use crate::num;
use crate::plan::{Plan, Stream};
use crate::scenario::Until;
use crate::wire::{Outgoing, Stamp, Template};

/// A message whose handshake is not complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) stamp: Stamp,
    pub(super) size: usize,
    /// Index of its stream among those of the publisher.
    pub(super) stream: usize,
    /// The broker has it (PUBREC), PUBREL is on its way.
    pub(super) released: bool,
    /// Place in the order of sending.
    pub(super) order: u64,
}

/// One stream of a publisher.
#[derive(Debug)]
struct Line {
    template: Template,
    fan_out: u64,
    next: u64,
    /// First and end of the messages sent in the window.
    range: Option<(u64, u64)>,
}

/// When a publisher may send its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// When the window has room (closed loop).
    Room,
    /// By the schedule (open loop).
    Schedule { interval: u64, phase: u64 },
    /// When the window has room, and not before so long after the last message (closed loop).
    LastMessage { interval: u64, not_before: u64 },
}

/// State of one publisher: the messages it has sent and may send.
#[derive(Debug)]
pub(super) struct Publisher {
    pub(super) client: usize,
    first_stream: u32,
    lines: Vec<Line>,
    turn: usize,
    pub(super) pace: Pace,
    /// Messages that are due by now (open loop).
    pub(super) due: u64,
    pub(super) sent: u64,
    limit: u64,
    until: Until,
    window: u16,
    /// Deliveries that the messages sent should cause, and the deliveries given up.
    pub(super) expected: u64,
    forgiven: u64,
    /// Handshakes under way, by packet identifier less one; empty at QoS 0.
    slots: Vec<Option<Slot>>,
    free: Vec<u16>,
    /// Messages that go together in the closed loop.
    burst: u16,
    /// In the closed loop, a burst is under way.
    bursting: bool,
    /// Deliveries that had come back at the last check.
    seen_returned: u64,
    /// When the closed loop last went on.
    pub(super) moved_at: u64,
}

/// Settings that all publishers have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) qos: u8,
    pub(super) version: sedge_mqtt::Version,
    pub(super) window: u16,
    pub(super) burst: u16,
    pub(super) until: Until,
    pub(super) limit: u64,
    /// Length of payloads the templates are prepared for.
    pub(super) size: usize,
}

/// A message about to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    /// Number of the run.
    pub(super) run: u32,
    /// When it is sent, or should have been.
    pub(super) sent: u64,
    /// Length of its payload.
    pub(super) size: usize,
}

impl Publisher {
    pub(super) fn new(
        client: usize,
        streams: std::ops::Range<usize>,
        pace: Pace,
        manner: Manner,
        (plan, filler): (&Plan, &[u8]),
    ) -> Self {
        let line = |stream: &Stream| Line {
            template: Template::new(&stream.topic, (manner.qos, manner.version), manner.size, filler),
            fan_out: stream.fan_out,
            next: 0,
            range: None,
        };
        let own = plan.streams.get(streams.clone()).unwrap_or_default();
        let slots = if manner.qos == 0 { 0 } else { usize::from(manner.window) };
        Self {
            client,
            first_stream: u32::try_from(streams.start).unwrap_or(u32::MAX),
            lines: own.iter().map(line).collect(),
            turn: 0,
            pace,
            due: 0,
            sent: 0,
            limit: manner.limit,
            until: if manner.qos == 0 { Until::Delivery } else { manner.until },
            window: manner.window,
            expected: 0,
            forgiven: 0,
            slots: vec![None; slots],
            free: (1..=u16::try_from(slots).unwrap_or(u16::MAX)).rev().filter(|_| slots > 0).collect(),
            burst: manner.burst,
            bursting: false,
            seen_returned: 0,
            moved_at: 0,
        }
    }

    /// Lets at most so many messages be unacknowledged, as the broker asks in its CONNACK.
    pub(super) fn set_receive_maximum(&mut self, most: u16) {
        let kept = self.slots.len().min(usize::from(most.max(1)));
        if self.slots.len() > kept && self.slots.iter().all(Option::is_none) {
            self.slots.truncate(kept);
            self.free.retain(|id| usize::from(*id) <= kept);
            // A burst that never has room would never begin.
            self.burst = self.burst.min(u16::try_from(kept).unwrap_or(u16::MAX));
        }
    }

    /// Whether all that may ever be sent has been.
    pub(super) const fn is_done(&self) -> bool {
        self.sent >= self.limit
    }

    /// Lets the first message go at its turn after `origin`, and says when that is, if the interval counts from messages.
    pub(super) const fn begin(&mut self, origin: u64) -> Option<u64> {
        let Pace::LastMessage { not_before, .. } = &mut self.pace else { return None };
        *not_before = origin.saturating_add(*not_before);
        Some(*not_before)
    }

    /// Counts the interval from a message sent `now`, and says when the next may go, if the interval counts from messages.
    pub(super) const fn pause(&mut self, now: u64) -> Option<u64> {
        let Pace::LastMessage { interval, not_before } = &mut self.pace else { return None };
        *not_before = now.saturating_add(*interval);
        Some(*not_before)
    }

    /// Whether the next message may go `now`, given how many deliveries have come back.
    pub(super) fn may_send(&mut self, returned: u64, now: u64) -> bool {
        if self.is_done() || !self.slots.is_empty() && self.free.is_empty() {
            self.bursting = false;
            return false;
        }
        match self.pace {
            Pace::Schedule { .. } => return self.sent < self.due,
            Pace::LastMessage { not_before, .. } => return now >= not_before,
            Pace::Room => {}
        }
        let room = self.room(returned);
        // One write for several messages, as any publisher with a window that is worth having does it.
        self.bursting = room >= u64::from(if self.bursting { 1 } else { self.burst });
        self.bursting
    }

    /// How many messages the window of the closed loop has room for.
    fn room(&self, returned: u64) -> u64 {
        let free = if self.slots.is_empty() { u64::MAX } else { num::count(self.free.len()) };
        if self.until == Until::Ack {
            return free;
        }
        let fan_out = self.lines.get(self.turn).map_or(0, |line| line.fan_out);
        let outstanding = self.expected.saturating_sub(self.forgiven.saturating_add(returned));
        // Without receivers nothing comes back, and only the connection sets a limit.
        outstanding.checked_div(fan_out).map_or(free, |messages| {
            let partly = u64::from(!outstanding.is_multiple_of(fan_out));
            free.min(u64::from(self.window).saturating_sub(messages + partly))
        })
    }

    /// Whether the closed loop waits for deliveries alone; then what does not come for long has to be given up.
    pub(super) fn waits_for_deliveries(&self, returned: u64) -> bool {
        let slots = self.slots.is_empty() || !self.free.is_empty();
        let open = self.pace == Pace::Room && self.until == Until::Delivery && !self.is_done();
        open && slots && self.room(returned) < u64::from(self.burst)
    }

    /// Keeps in mind when a delivery came back.
    pub(super) const fn note_returned(&mut self, returned: u64, now: u64) {
        if returned != self.seen_returned {
            self.seen_returned = returned;
            self.moved_at = now;
        }
    }

    /// Gives up the deliveries that have not come back.
    pub(super) const fn forgive(&mut self, returned: u64) {
        self.forgiven = self.expected.saturating_sub(returned);
    }

    /// Takes the next message and appends it to `out`.
    pub(super) fn send(&mut self, next: Next, window: Window, out: &mut Vec<u8>, filler: &[u8]) -> Stamp {
        let Next { run, sent, size } = next;
        let stream = self.turn;
        self.turn = if stream + 1 < self.lines.len() { stream + 1 } else { 0 };
        let number = self.first_stream + u32::try_from(stream).unwrap_or(0);
        let mut stamp = Stamp { run, stream: number, sequence: 0, sent };
        let Some(line) = self.lines.get_mut(stream) else { return stamp };
        stamp.sequence = line.next;
        line.next += 1;
        if window.contains(sent) {
            let first = line.range.map_or(stamp.sequence, |(first, _)| first);
            line.range = Some((first, line.next));
        }
        let id = self.free.pop().unwrap_or(0);
        let slot = Slot { stamp, size, stream, released: false, order: self.sent };
        if let Some(place) = usize::from(id).checked_sub(1).and_then(|at| self.slots.get_mut(at)) {
            *place = Some(slot);
        }
        line.template.write(Outgoing { stamp, id, dup: false, size }, filler, out);
        self.expected += line.fan_out;
        self.sent += 1;
        self.moved_at = sent;
        stamp
    }

    /// Ends the handshake of `id`; false if there was none.
    pub(super) fn complete(&mut self, id: u16) -> bool {
        let slot = usize::from(id).checked_sub(1).and_then(|at| self.slots.get_mut(at));
        let known = slot.and_then(Option::take).is_some();
        if known {
            self.free.push(id);
        }
        known
    }

    /// Notes that the broker has message `id`; false if it is unknown.
    pub(super) fn release(&mut self, id: u16) -> bool {
        let slot = usize::from(id).checked_sub(1).and_then(|at| self.slots.get_mut(at)).and_then(Option::as_mut);
        slot.is_some_and(|slot| {
            slot.released = true;
            true
        })
    }

    /// Handshakes under way.
    pub(super) fn inflight(&self) -> u64 {
        num::count(self.slots.len() - self.free.len())
    }

    /// After a new connection: identifiers and messages whose handshakes are not complete, in the order of sending.
    pub(super) fn unfinished(&self) -> Vec<(u16, Slot)> {
        let known = self.slots.iter().enumerate();
        let mut all: Vec<(u16, Slot)> =
            known.filter_map(|(at, slot)| Some((u16::try_from(at + 1).ok()?, (*slot)?))).collect();
        all.sort_unstable_by_key(|(_, slot)| slot.order);
        all
    }

    /// Appends message `id` once more.
    pub(super) fn resend(&self, id: u16, slot: &Slot, dup: bool, out: &mut Vec<u8>, filler: &[u8]) {
        if let Some(line) = self.lines.get(slot.stream) {
            line.template.write(Outgoing { stamp: slot.stamp, id, dup, size: slot.size }, filler, out);
        }
    }

    /// Messages that were sent within the window, a range for each stream.
    pub(super) fn ranges(&self) -> impl Iterator<Item = SentRange> {
        let numbers = self.first_stream..;
        numbers
            .zip(&self.lines)
            .filter_map(|(stream, line)| line.range.map(|(first, end)| SentRange { stream, first, end }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-05: a message that is never acknowledged keeps its packet identifier, and all others go round.
    #[test]
    fn an_open_handshake_stops_no_others() {
        let (qos, version, window) = (1, sedge_mqtt::Version::V5, 3);
        let manner = Manner { qos, version, window, burst: 1, until: Until::Ack, limit: u64::MAX, size: 0 };
        let topic = sedge_mqtt::TopicName::new("t").unwrap();
        let stream = Stream { topic, publisher: 0, fan_out: 0, probe: false, period: 0 };
        let plan = Plan { clients: Vec::new(), streams: vec![stream], receivers: Vec::new(), probes: false };
        let mut publisher = Publisher::new(0, 0..1, Pace::Room, manner, (&plan, &[0; 64]));
        let send = |publisher: &mut Publisher| {
            let before: Vec<u16> = publisher.unfinished().iter().map(|(id, _)| *id).collect();
            publisher.send(Next { run: 1, sent: 0, size: 64 }, Window { start: 0, end: 1 }, &mut Vec::new(), &[0; 64]);
            let sent = publisher.unfinished().last().map(|(id, _)| *id).unwrap();
            assert!(!before.contains(&sent));
            sent
        };
        let open = send(&mut publisher);
        for _ in 0..70_000 {
            assert!(publisher.may_send(0, 0));
            let id = send(&mut publisher);
            assert_ne!(id, open);
            assert!(publisher.complete(id));
        }
        assert_eq!(publisher.inflight(), 1);
    }

    /// BM-14: next send = the later of last send + interval and end of the handshake.
    #[test]
    fn an_interval_from_the_last_message_is_a_lower_bound() {
        let (qos, version, window) = (2, sedge_mqtt::Version::V311, 1);
        let manner = Manner { qos, version, window, burst: 1, until: Until::Ack, limit: 3, size: 0 };
        let topic = sedge_mqtt::TopicName::new("t").unwrap();
        let stream = Stream { topic, publisher: 0, fan_out: 0, probe: false, period: 0 };
        let plan = Plan { clients: Vec::new(), streams: vec![stream], receivers: Vec::new(), probes: false };
        let pace = Pace::LastMessage { interval: 100, not_before: 30 };
        let mut publisher = Publisher::new(0, 0..1, pace, manner, (&plan, &[0; 64]));
        assert_eq!(publisher.begin(1_000), Some(1_030));
        let send = |publisher: &mut Publisher, now: u64| {
            let next = Next { run: 1, sent: now, size: 64 };
            publisher.send(next, Window { start: 0, end: u64::MAX }, &mut Vec::new(), &[0; 64]);
            publisher.pause(now)
        };
        assert!(!publisher.may_send(0, 1_029) && publisher.may_send(0, 1_030));
        assert_eq!(send(&mut publisher, 1_035), Some(1_135));
        assert!(!publisher.may_send(0, 5_000), "its handshake is under way");
        assert!(publisher.complete(1));
        assert!(!publisher.may_send(0, 1_134) && publisher.may_send(0, 1_300));
        // The publisher skips publications whose time has passed.
        assert_eq!(send(&mut publisher, 1_300), Some(1_400));
        assert!(publisher.complete(1) && !publisher.may_send(0, 1_399));
        send(&mut publisher, 1_400);
        assert!(publisher.complete(1) && !publisher.may_send(0, 9_999), "it has sent all");
    }
}
