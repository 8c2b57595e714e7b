//! Counts what one driver sends and gets.

use super::raw::Delivery;
use super::tally::Tally;
use super::tracker::{Arrival, Bits, Tracker};
use super::{BIN, SentRange, Window};
use crate::num;
use crate::plan::Plan;
use crate::wire::Stamp;

/// Most bins of a series: three hours.
const MAX_BINS: usize = 108_000;

/// Where a delivery came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Number of the inbox, of [`Recorder::inbox`].
    pub(crate) inbox: usize,
    /// Number of the client among those that share the inbox.
    pub(crate) member: usize,
}

/// Messages that one receiver has got.
#[derive(Debug)]
struct Inbox {
    receiver: usize,
    streams: Vec<u32>,
    trackers: Vec<Tracker>,
    /// Of a shared subscription: the messages that all members have got together.
    together: Vec<Bits>,
    members: Vec<Vec<Tracker>>,
    shared: bool,
    /// Where the next message is expected to belong: publishers tend to come in turn.
    hint: usize,
    last_at: u64,
}

#[derive(Clone, Copy, Debug)]
struct StreamFacts {
    period: u64,
    probe: bool,
}

/// Counts what one driver sends and gets.
#[derive(Debug)]
pub(crate) struct Recorder {
    run: u32,
    window: Window,
    /// Where the series begin.
    origin: u64,
    probes: bool,
    facts: Vec<StreamFacts>,
    inboxes: Vec<Inbox>,
    /// Deliveries since they were asked for last, if they are kept.
    raw: Option<Vec<Delivery>>,
    pub(crate) tally: Tally,
}

impl Recorder {
    /// A recorder for run number `run` of `plan`, which counts nothing before it is told the window.
    pub(crate) fn new(run: u32, plan: &Plan) -> Self {
        let facts = plan.streams.iter().map(|stream| StreamFacts { period: stream.period, probe: stream.probe });
        Self {
            run,
            window: Window { start: u64::MAX, end: u64::MAX },
            origin: 0,
            probes: plan.probes,
            facts: facts.collect(),
            inboxes: Vec::new(),
            raw: None,
            tally: Tally { jitter_low: i64::MAX, jitter_high: i64::MIN, ..Tally::default() },
        }
    }

    /// Keeps every delivery from here on.
    pub(crate) fn keep_raw(&mut self) {
        self.raw = Some(Vec::new());
    }

    /// The deliveries since the last call, once they are at least so many.
    pub(crate) fn take_raw(&mut self, least: usize) -> Option<Vec<Delivery>> {
        self.raw.as_mut().filter(|raw| !raw.is_empty() && raw.len() >= least).map(std::mem::take)
    }

    /// Where a client that belongs to `receiver` gets its messages.
    pub(crate) fn inbox(&mut self, receiver: usize, plan: &Plan) -> Place {
        let known = plan.receivers.get(receiver);
        let shared = known.is_some_and(|receiver| receiver.shared);
        let existing = self.inboxes.iter_mut().position(|inbox| shared && inbox.receiver == receiver);
        if let Some(number) = existing
            && let Some(inbox) = self.inboxes.get_mut(number)
        {
            inbox.members.push(vec![Tracker::default(); inbox.streams.len()]);
            return Place { inbox: number, member: inbox.members.len() - 1 };
        }
        let streams = known.map_or_else(Vec::new, |receiver| receiver.streams.clone());
        let trackers = vec![Tracker::default(); streams.len()];
        let (members, together) = if shared {
            (vec![trackers.clone()], vec![Bits::default(); streams.len()])
        } else {
            (Vec::new(), Vec::new())
        };
        self.inboxes.push(Inbox { receiver, streams, trackers, together, members, shared, hint: 0, last_at: 0 });
        Place { inbox: self.inboxes.len() - 1, member: 0 }
    }

    /// Sets the window that is measured; series begin at `origin`.
    pub(crate) fn set_window(&mut self, origin: u64, window: Window) {
        self.origin = origin;
        self.window = window;
        for inbox in &mut self.inboxes {
            inbox.last_at = window.start;
        }
    }

    /// Ends the window at `end`, if it was to last longer.
    pub(crate) fn end_window(&mut self, end: u64) {
        self.window.end = self.window.end.min(end);
    }

    pub(crate) const fn window(&self) -> Window {
        self.window
    }

    /// Notes a message that was handed to the connection at `now`. Its own stamp may be earlier in the open loop.
    pub(crate) fn sent(&mut self, stamp: Stamp, now: u64) {
        self.tally.all_sent += 1;
        if self.facts.get(num::index(u64::from(stamp.stream))).is_some_and(|facts| facts.probe) {
            return;
        }
        if self.window.contains(stamp.sent) {
            self.tally.sent += 1;
        }
        add(&mut self.tally.ingress, self.origin, now);
    }

    /// Notes a delivery. Returns whether it is one of this run.
    pub(crate) fn arrived(&mut self, place: Place, stamp: Stamp, now: u64) -> bool {
        let facts = self.facts.get(num::index(u64::from(stamp.stream)));
        let (Some(facts), Some(inbox), true) =
            (facts.copied(), self.inboxes.get_mut(place.inbox), stamp.run == self.run)
        else {
            self.tally.foreign += 1;
            return false;
        };
        let Some((arrival, before)) = inbox.note(place.member, stamp, now) else {
            self.tally.foreign += 1;
            return false;
        };
        let tally = &mut self.tally;
        tally.all_received += 1;
        let counted = self.window.contains(stamp.sent);
        if !facts.probe {
            if self.window.contains(now) {
                tally.received += 1;
                tally.longest_gap = tally.longest_gap.max(now.saturating_sub(inbox.last_at.max(self.window.start)));
            }
            inbox.last_at = now;
            add(&mut tally.egress, self.origin, now);
            if counted {
                tally.duplicates += u64::from(arrival == Arrival::Again);
                tally.reordered += u64::from(arrival == Arrival::Late);
                tally.last_delivery = tally.last_delivery.max(now);
            }
        }
        let in_latency = facts.probe == self.probes && counted && arrival != Arrival::Again;
        if let Some(raw) = &mut self.raw {
            let receiver = u32::try_from(inbox.receiver).unwrap_or(u32::MAX);
            let Stamp { stream, sequence, sent, .. } = stamp;
            raw.push(Delivery { receiver, stream, sequence, sent, received: now, arrival, in_latency });
        }
        if in_latency {
            let latency = now.saturating_sub(stamp.sent);
            tally.latency.record(latency);
            keep_worst(&mut tally.worst_latency, self.origin, now, latency);
            if before > 0 && stamp.sent <= before {
                // It waited already when the one before it came.
                keep_worst(&mut tally.worst_pause, self.origin, now, now.saturating_sub(before));
            }
            if facts.period > 0 && before > 0 {
                self.jitter(before, now, facts.period);
            }
        }
        true
    }

    fn jitter(&mut self, before: u64, now: u64, period: u64) {
        let signed =
            i64::try_from(now.saturating_sub(before)).unwrap_or(i64::MAX) - i64::try_from(period).unwrap_or(i64::MAX);
        self.tally.jitter.record(signed.unsigned_abs());
        self.tally.jitter_low = self.tally.jitter_low.min(signed);
        self.tally.jitter_high = self.tally.jitter_high.max(signed);
        keep_worst(&mut self.tally.worst_jitter, self.origin, now, signed.unsigned_abs());
    }

    /// Counts what was lost, once nothing more comes. `sent` holds what all drivers sent, by stream.
    pub(crate) fn settle(&mut self, sent: &[SentRange]) {
        for inbox in &self.inboxes {
            for (number, stream) in inbox.streams.iter().enumerate() {
                let stream = num::index(u64::from(*stream));
                let probe = self.facts.get(stream).is_none_or(|facts| facts.probe);
                let Some(range) = sent.get(stream).filter(|_| !probe) else { continue };
                self.tally.lost += if inbox.shared {
                    inbox.together.get(number).map_or(0, |bits| bits.missing(range.first, range.end))
                } else {
                    inbox.trackers.get(number).map_or(0, |tracker| tracker.missing(range.first, range.end))
                };
            }
            let all_probes = inbox
                .streams
                .iter()
                .all(|stream| self.facts.get(num::index(u64::from(*stream))).is_none_or(|facts| facts.probe));
            if !all_probes {
                self.tally.longest_gap =
                    self.tally.longest_gap.max(self.window.end.saturating_sub(inbox.last_at.max(self.window.start)));
            }
        }
        if self.tally.jitter.count() == 0 {
            (self.tally.jitter_low, self.tally.jitter_high) = (0, 0);
        }
    }
}

impl Inbox {
    /// Notes a message; how it came and when the one before it in its stream did. None if nobody asked for it.
    fn note(&mut self, member: usize, stamp: Stamp, now: u64) -> Option<(Arrival, u64)> {
        let at = self.find(stamp.stream)?;
        if self.shared {
            let new = self.together.get_mut(at)?.set(stamp.sequence);
            let own = self.members.get_mut(member)?.get_mut(at)?;
            let before = std::mem::replace(&mut own.last_at, now);
            let arrival = own.arrive(stamp.sequence);
            return Some((if new { arrival } else { Arrival::Again }, before));
        }
        let tracker = self.trackers.get_mut(at)?;
        let before = std::mem::replace(&mut tracker.last_at, now);
        Some((tracker.arrive(stamp.sequence), before))
    }

    fn find(&mut self, stream: u32) -> Option<usize> {
        let at = if self.streams.get(self.hint) == Some(&stream) {
            self.hint
        } else {
            self.streams.binary_search(&stream).ok()?
        };
        self.hint = if at + 1 < self.streams.len() { at + 1 } else { 0 };
        Some(at)
    }
}

fn bin(origin: u64, now: u64) -> usize {
    num::index(now.saturating_sub(origin) / BIN).min(MAX_BINS)
}

fn slot(series: &mut Vec<u64>, bin: usize) -> Option<&mut u64> {
    if series.len() <= bin {
        series.resize(bin + 1, 0);
    }
    series.get_mut(bin)
}

fn add(series: &mut Vec<u64>, origin: u64, now: u64) {
    if let Some(count) = slot(series, bin(origin, now)) {
        *count += 1;
    }
}

fn keep_worst(series: &mut Vec<u64>, origin: u64, now: u64, value: u64) {
    if let Some(worst) = slot(series, bin(origin, now)) {
        *worst = (*worst).max(value);
    }
}
