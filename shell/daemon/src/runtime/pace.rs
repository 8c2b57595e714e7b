//! When a thread before a foreign broker waits for events.
//!
//! Most brokers send each packet in a TCP segment of its own. A thread that reads each segment at once spends four system calls on one publication,
//! and most of its time in the kernel. While clients have several packets under way, a pause lets some of them come with the same read.
//!
//! Where one packet is under way, the thread looks for the broker's answer without sleeping: to be woken takes the kernel longer than a broker
//! of the same machine takes to answer.

use std::time::Duration;

use sedge_base::Instant;

/// Length of a pause; the kernel's timers make it about 50 µs longer.
const PAUSE: Duration = Duration::from_micros(10);
/// The thread forgets its last turns when it has had nothing to do for so long.
const REST: Duration = Duration::from_millis(2);
/// The thread pauses only where ten reads bring this many packets. If each client waits for an answer to each of its packets, a read brings one
/// packet, and a pause would only delay it.
const PACKETS_OF_TEN_READS: u64 = 11;
/// Numbers of recent reads and packets are counted in parts of this size, so that rounding does not matter.
const PART: u64 = 64;
/// So many reads have to be known before the first pause.
const READS_MIN: u64 = 16;
/// With fewer events in a turn, too few connections share the cost of a pause. A turn with more is long enough for packets to gather.
const EVENTS: std::ops::RangeInclusive<usize> = 4..=64;

/// How long the thread looks for an answer of the broker before it sleeps.
const LINGER: Duration = Duration::from_micros(100);
/// The score of a broker that has answered within [`LINGER`] lately; below zero the thread sleeps at once. An answer adds one, a miss takes two.
const SCORE_MAX: i8 = 16;
/// While the score is below zero, one write of so many is a trial.
const WRITES_OF_TRIAL: u32 = 64;

/// Counts of a thread since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// Reads that brought bytes.
    pub(crate) reads: u64,
    /// Packets in these bytes.
    pub(crate) packets: u64,
}

/// Reads and packets of the last turns; each turn lowers the weight of those before it by an eighth.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    recent: Taken,
    seen: Taken,
    ended: Instant,
    /// Events of the last turn.
    events: usize,
    /// Whether nobody else can work while the thread looks for an answer.
    has_one_cpu: bool,
    score: i8,
    /// Turns that wrote to the broker while the score was below zero.
    writes: u32,
}

impl Pace {
    /// For a machine with so many processors.
    pub(crate) fn new(cpus: usize) -> Self {
        Self { has_one_cpu: cpus < 2, ..Self::default() }
    }

    /// A turn that began and ended at these times has handled so many events; `taken` are the thread's counts at its end.
    pub(crate) fn turned(&mut self, (begun, ended): (Instant, Instant), events: usize, taken: Taken) {
        if begun.since(self.ended) > REST {
            self.recent = Taken::default();
        }
        let add = |recent: u64, seen: u64, taken: u64| recent - recent / 8 + PART * taken.saturating_sub(seen);
        self.recent.reads = add(self.recent.reads, self.seen.reads, taken.reads);
        self.recent.packets = add(self.recent.packets, self.seen.packets, taken.packets);
        (self.seen, self.ended, self.events) = (taken, ended, events);
    }

    /// How long to wait before the next turn, if at all.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let Taken { reads, packets } = self.recent;
        let gathers = reads >= PART * READS_MIN && packets * 10 >= reads * PACKETS_OF_TEN_READS;
        (gathers && EVENTS.contains(&self.events)).then_some(PAUSE)
    }

    /// How long to look for the broker's answer before the thread sleeps, if at all.
    pub(crate) fn linger(&mut self, has_written: bool) -> Option<Duration> {
        if !has_written || self.has_one_cpu {
            return None;
        }
        if self.score < 0 {
            self.writes = (self.writes + 1) % WRITES_OF_TRIAL;
        }
        (self.score >= 0 || self.writes == 0).then_some(LINGER)
    }

    /// The thread has looked for an answer. `has_come`: something has happened meanwhile.
    pub(crate) fn lingered(&mut self, has_come: bool) {
        self.score = if has_come { (self.score + 1).min(SCORE_MAX) } else { (self.score - 2).max(-1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that takes 20 turns of 50 µs, `apart` from each other, each with `events` reads and so many packets.
    fn after(apart: Duration, events: usize, packets: u64) -> Pace {
        let (mut pace, mut taken, mut now) = (Pace::new(2), Taken::default(), Instant::ZERO);
        for _ in 0..20 {
            let begun = now + apart;
            now = begun + Duration::from_micros(50);
            taken = Taken { reads: taken.reads + events as u64, packets: taken.packets + packets };
            pace.turned((begun, now), events, taken);
        }
        pace
    }

    #[test]
    fn a_thread_pauses_while_reads_bring_several_packets() {
        let apart = Duration::from_micros(20);
        assert!(after(apart, 8, 16).pause().is_some());
        assert!(after(apart, 8, 8).pause().is_none(), "each read brings one packet");
        assert!(after(apart, 2, 16).pause().is_none(), "two connections");
        assert!(after(apart, 100, 200).pause().is_none(), "a long turn");
    }

    #[test]
    fn what_was_known_of_the_load_ends_with_a_rest() {
        assert!(after(Duration::from_millis(3), 8, 16).pause().is_none());
        let mut pace = after(Duration::from_micros(20), 8, 16);
        let later = Instant::from_millis(60_000);
        pace.turned((later, later), 8, Taken { reads: 168, packets: 336 });
        assert!(pace.pause().is_none());
    }

    #[test]
    fn packets_that_come_one_by_one_end_the_pauses() {
        let mut pace = after(Duration::from_micros(20), 8, 16);
        let (mut taken, mut now) = (pace.seen, pace.ended);
        let turns = (1..100).find(|_| {
            taken = Taken { reads: taken.reads + 8, packets: taken.packets + 8 };
            pace.turned((now, now), 8, taken);
            now = now + Duration::from_micros(50);
            pace.pause().is_none()
        });
        assert!(turns.is_some_and(|turns| turns < 30), "{turns:?}");
    }

    #[test]
    fn a_thread_looks_for_answers_while_they_come_soon() {
        let mut pace = Pace::new(2);
        assert!(pace.linger(false).is_none(), "nothing was written");
        assert!(pace.linger(true).is_some());
        pace.lingered(false);
        assert!(pace.linger(true).is_none(), "the broker is slow");
        let trial = (0..100).find(|_| pace.linger(true).is_some()).expect("a trial");
        assert_eq!(trial, 62);
        pace.lingered(true);
        assert!(pace.linger(true).is_some());
        assert!(Pace::new(1).linger(true).is_none(), "the broker needs the only processor");
    }
}
