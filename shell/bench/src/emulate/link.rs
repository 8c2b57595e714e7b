//! One direction of a link: a queue, a rate, a delay. Time is an argument, so that a test can repeat it event for event.

use std::collections::VecDeque;

use sedge_base::Rng;

use super::setting::{Queue, Rate};
use crate::draw::{standard_normal, unit};
use crate::num;

/// How a link behaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkSetting {
    pub(super) rate: Rate,
    /// Propagation delay in ns.
    pub(super) delay: u64,
    /// Standard deviation of a packet's delay in ms.
    pub(super) jitter_ms: f64,
    /// Share of packets that get lost, 0 to 1.
    pub(super) loss: f64,
    pub(super) queue: Queue,
}

/// Counters of a link since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkCount {
    /// Packets and bytes that the link sent, lost ones included.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Packets that got lost after they were sent.
    pub(super) lost: u64,
    /// Packets for which the queue had no room.
    pub(super) dropped: u64,
    /// Packets that met a cut.
    pub(super) cut: u64,
    /// Most bytes that waited at once.
    pub(super) high_water: u64,
}

/// One direction of a link. `P` is what stands for a packet.
#[derive(Debug)]
pub(super) struct Link<P> {
    pub(super) setting: LinkSetting,
    pub(super) count: LinkCount,
    open: bool,
    rng: Rng,
    /// Packets that wait, the one that is being sent first, with their lengths.
    waiting: VecDeque<(u64, P)>,
    waiting_bytes: u64,
    /// When the first of those is sent.
    sent: u64,
    /// Packets under way with the time at which they arrive.
    wire: VecDeque<(u64, P)>,
    /// When the last packet that was sent arrives.
    last: u64,
}

impl<P> Link<P> {
    pub(super) const fn new(setting: LinkSetting, rng: Rng) -> Self {
        Self {
            setting,
            count: LinkCount { packets: 0, bytes: 0, lost: 0, dropped: 0, cut: 0, high_water: 0 },
            open: true,
            rng,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sent: 0,
            wire: VecDeque::new(),
            last: 0,
        }
    }

    /// Gives the link a packet of so many bytes. Says whether it took it.
    pub(super) fn offer(&mut self, now: u64, bytes: u64, packet: P) -> bool {
        self.advance(now);
        if !self.open {
            self.count.cut += 1;
            return false;
        }
        // The packet that is being sent needs no room: a queue of 0 bytes still lets packets through one by one.
        if !self.waiting.is_empty() && self.waiting_bytes + bytes > self.setting.queue.bytes(self.setting.rate) {
            self.count.dropped += 1;
            return false;
        }
        if self.waiting.is_empty() {
            self.sent = now.saturating_add(self.setting.rate.time_of(bytes));
        }
        self.waiting.push_back((bytes, packet));
        self.waiting_bytes += bytes;
        self.count.high_water = self.count.high_water.max(self.waiting_bytes);
        self.advance(now);
        true
    }

    /// Moves what has been sent by `now` from the queue to the wire, each at its own exact time.
    fn advance(&mut self, now: u64) {
        while self.sent <= now {
            let Some((bytes, packet)) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= bytes;
            self.count.packets += 1;
            self.count.bytes += bytes;
            let at = self.sent;
            if let Some((next, _)) = self.waiting.front() {
                self.sent = at.saturating_add(self.setting.rate.time_of(*next));
            }
            if self.setting.loss > 0.0 && unit(&mut self.rng) <= self.setting.loss {
                self.count.lost += 1;
                continue;
            }
            self.last = self.last.max(at.saturating_add(self.delay()));
            self.wire.push_back((self.last, packet));
        }
    }

    /// The delay of the next packet.
    fn delay(&mut self) -> u64 {
        if self.setting.jitter_ms > 0.0 {
            let off = self.setting.jitter_ms * standard_normal(&mut self.rng) / 1e3;
            num::nanos(num::seconds(self.setting.delay) + off)
        } else {
            self.setting.delay
        }
    }

    /// Takes the next packet that has arrived by `now`, with the time at which it did.
    pub(super) fn take(&mut self, now: u64) -> Option<(u64, P)> {
        self.advance(now);
        if self.wire.front()?.0 > now {
            return None;
        }
        self.wire.pop_front()
    }

    /// When to look next: at an arrival, or when a packet has been sent, as only then its delay is known.
    pub(super) fn next(&self) -> Option<u64> {
        let arrival = self.wire.front().map(|(at, _)| *at);
        // While something is under way, what waits arrives later: one look less for each packet.
        arrival.or_else(|| self.waiting.front().map(|_| self.sent))
    }

    /// Cuts or heals the link. What a cut link had taken is gone.
    pub(super) fn set_open(&mut self, open: bool, now: u64) {
        self.advance(now);
        self.open = open;
        if !open {
            self.count.cut += num::count(self.waiting.len() + self.wire.len());
            self.waiting.clear();
            self.waiting_bytes = 0;
            self.wire.clear();
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// Bytes that wait.
    pub(super) const fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Packets that wait or are under way.
    pub(super) fn held(&self) -> usize {
        self.waiting.len() + self.wire.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn setting() -> LinkSetting {
        LinkSetting {
            rate: Rate::bits_per_second(10_000_000),
            delay: 10 * MS,
            jitter_ms: 0.0,
            loss: 0.0,
            queue: Queue::Bytes(5_000),
        }
    }

    fn link(setting: LinkSetting) -> Link<u64> {
        Link::new(setting, Rng::new(5))
    }

    /// Everything that arrives, with its time, looked at exactly when the link wants it.
    fn arrivals(link: &mut Link<u64>) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        while let Some(at) = link.next() {
            all.extend(std::iter::from_fn(|| link.take(at)));
        }
        all
    }

    #[test]
    fn a_packet_arrives_after_its_serialization_and_the_delay() {
        let mut link = link(setting());
        assert!(link.offer(5 * MS, 1_250, 1));
        assert_eq!(link.take(16 * MS - 1), None);
        assert_eq!(link.take(16 * MS), Some((16 * MS, 1)));
        assert_eq!(link.next(), None);
    }

    #[test]
    fn packets_leave_one_after_another_at_the_rate() {
        let mut link = link(setting());
        for packet in 0..4 {
            assert!(link.offer(0, 1_250, packet));
        }
        assert_eq!(arrivals(&mut link), [(11 * MS, 0), (12 * MS, 1), (13 * MS, 2), (14 * MS, 3)]);
        assert_eq!((link.count.packets, link.count.bytes, link.count.high_water), (4, 5_000, 5_000));
    }

    #[test]
    fn a_late_look_shifts_nothing() {
        let mut link = link(setting());
        for packet in 0..3 {
            link.offer(0, 1_250, packet);
        }
        // Nobody looks for a second: the times are those of the link all the same.
        assert_eq!(link.take(1_000 * MS), Some((11 * MS, 0)));
        assert_eq!(link.take(1_000 * MS), Some((12 * MS, 1)));
        assert_eq!(link.take(1_000 * MS), Some((13 * MS, 2)));
    }

    #[test]
    fn a_full_queue_drops_what_comes_last_and_counts_it() {
        let mut link = link(setting());
        let taken = (0..6).filter(|packet| link.offer(0, 1_250, *packet)).count();
        assert_eq!((taken, link.count.dropped, link.waiting_bytes()), (4, 2, 5_000));
        // One has been sent by then: there is room for one.
        assert!(link.offer(MS, 1_250, 9) && !link.offer(MS, 1_250, 10));
        let packets: Vec<u64> = arrivals(&mut link).into_iter().map(|(_, packet)| packet).collect();
        assert_eq!(packets, [0, 1, 2, 3, 9]);
    }

    #[test]
    fn even_without_a_queue_single_packets_pass() {
        let mut link = link(LinkSetting { queue: Queue::Bytes(0), ..setting() });
        assert!(link.offer(0, 1_250, 0) && !link.offer(0, 1_250, 1));
        assert!(link.offer(MS, 1_250, 2));
    }

    #[test]
    fn jitter_keeps_the_order_and_the_mean() {
        let mut link = link(LinkSetting { jitter_ms: 2.0, rate: Rate::UNLIMITED, ..setting() });
        for packet in 0..2_000 {
            // Far enough apart for the order not to hold anything up.
            link.offer(packet * 100 * MS, 100, packet);
        }
        let arrivals = arrivals(&mut link);
        let delays: Vec<f64> =
            arrivals.iter().map(|(at, packet)| (num::real(*at) - num::real(packet * 100 * MS)) / 1e6).collect();
        let mean = delays.iter().sum::<f64>() / 2_000.0;
        let deviation = (delays.iter().map(|ms| (ms - mean).powi(2)).sum::<f64>() / 2_000.0).sqrt();
        assert!((mean - 10.0).abs() < 0.2 && (deviation - 2.0).abs() < 0.2, "{mean} {deviation}");
        let mut close = self::link(LinkSetting { jitter_ms: 5.0, rate: Rate::UNLIMITED, ..setting() });
        for packet in 0..1_000 {
            close.offer(packet, 100, packet);
        }
        let order: Vec<u64> = self::arrivals(&mut close).into_iter().map(|(_, packet)| packet).collect();
        assert!(order.is_sorted() && order.len() == 1_000);
    }

    #[test]
    fn loss_follows_its_share_and_its_seed() {
        let run = |seed| {
            let mut link: Link<u64> =
                Link::new(LinkSetting { loss: 0.1, rate: Rate::UNLIMITED, ..setting() }, Rng::new(seed));
            for packet in 0..10_000 {
                link.offer(packet, 100, packet);
            }
            (link.count.lost, arrivals(&mut link))
        };
        let (lost, arrived) = run(1);
        assert!((850..1_150).contains(&lost), "{lost}");
        assert_eq!(arrived.len(), 10_000 - num::index(lost));
        assert_eq!(run(1), run(1));
        assert_ne!(run(1).1, run(2).1);
    }

    #[test]
    fn nothing_crosses_a_cut_not_even_what_was_under_way() {
        let mut link = link(setting());
        for packet in 0..3 {
            link.offer(0, 1_250, packet);
        }
        link.set_open(false, MS);
        assert!(!link.offer(2 * MS, 1_250, 3));
        assert_eq!((arrivals(&mut link), link.count.cut), (Vec::new(), 4));
        link.set_open(true, 5 * MS);
        assert!(link.offer(5 * MS, 1_250, 4));
        assert_eq!(arrivals(&mut link), [(16 * MS, 4)]);
    }

    #[test]
    fn a_rate_that_changes_counts_from_the_next_packet() {
        let mut link = link(setting());
        link.offer(0, 1_250, 0);
        link.offer(0, 1_250, 1);
        link.setting.rate = Rate::bits_per_second(1_000_000);
        assert_eq!(arrivals(&mut link), [(11 * MS, 0), (21 * MS, 1)]);
    }
}
