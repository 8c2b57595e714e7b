//! The full mesh of links, without any input or output: packets in, packets out, time as an argument.

use std::net::Ipv4Addr;

use bytes::Bytes;
use sedge_base::{Deadlines, Instant, Rng};

use super::link::{Link, LinkSetting};
use super::meter::Meter;
use super::setting::NetworkPlan;
use super::status::Carried;
use crate::num;

/// Most packets that all links together hold: what comes above is dropped and counted. At 1,500 bytes some 100 MB.
const HELD: usize = 65_536;

/// All links of a network. Nodes are counted from 0.
pub(super) struct Fabric {
    nodes: usize,
    /// Link from `a` to `b` at `a * nodes + b`; those from a node to itself are never used.
    links: Vec<Link<Bytes>>,
    /// Meter of each link, which counts the traffic.
    meters: Vec<Meter>,
    due: Deadlines<usize>,
    held: usize,
    /// Packets for which the network as a whole had no room.
    pub(super) overflow: u64,
    /// Packets that no node is to have: of another protocol, or to an address that is not there.
    pub(super) stray: u64,
}

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    Node(usize),
    Everybody,
    Nobody,
}

impl Fabric {
    pub(super) fn new(plan: &NetworkPlan) -> Self {
        let mut rng = Rng::new(plan.seed);
        // Delays first and in pairs, so that they are the same whatever else a plan asks for.
        let mut delays = vec![0; plan.nodes * plan.nodes];
        for a in 0..plan.nodes {
            for b in a + 1..plan.nodes {
                let delay = plan.delay.draw(&mut rng);
                for at in [a * plan.nodes + b, b * plan.nodes + a] {
                    if let Some(place) = delays.get_mut(at) {
                        *place = delay;
                    }
                }
            }
        }
        let link = |(at, delay)| {
            let setting = LinkSetting {
                rate: plan.rate,
                delay,
                jitter_ms: plan.jitter_ms,
                loss: plan.loss_percent / 100.0,
                queue: plan.queue,
            };
            Link::new(setting, rng.split(num::count(at)))
        };
        let links: Vec<_> = delays.into_iter().enumerate().map(link).collect();
        let meters = links.iter().map(|_| Meter::default()).collect();
        Self { nodes: plan.nodes, links, meters, due: Deadlines::new(), held: 0, overflow: 0, stray: 0 }
    }

    pub(super) const fn nodes(&self) -> usize {
        self.nodes
    }

    pub(super) fn link(&self, from: usize, to: usize) -> Option<&Link<Bytes>> {
        self.links.get(self.index(from, to)?)
    }

    pub(super) fn carried(&self, from: usize, to: usize) -> Option<&Carried> {
        self.meters.get(self.index(from, to)?).map(|meter| &meter.carried)
    }

    /// Changes the links that are meant, by sender and receiver.
    pub(super) fn each(&mut self, is_meant: &dyn Fn(usize, usize) -> bool, mut change: impl FnMut(&mut Link<Bytes>)) {
        for index in 0..self.links.len() {
            if !is_meant(index / self.nodes, index % self.nodes) {
                continue;
            }
            if let Some(link) = self.links.get_mut(index) {
                let before = link.held();
                change(link);
                self.held = self.held + link.held() - before;
            }
            self.schedule(index);
        }
    }

    fn index(&self, from: usize, to: usize) -> Option<usize> {
        (from != to && from < self.nodes && to < self.nodes).then_some(from * self.nodes + to)
    }

    /// Takes a packet that node `from` sent.
    pub(super) fn offer(&mut self, now: u64, from: usize, packet: &[u8]) {
        match self.destination(packet) {
            Destination::Node(to) => self.forward(now, from, to, Bytes::copy_from_slice(packet)),
            Destination::Everybody => {
                let packet = Bytes::copy_from_slice(packet);
                for to in (0..self.nodes).filter(|to| *to != from) {
                    self.forward(now, from, to, packet.clone());
                }
            }
            Destination::Nobody => self.stray += 1,
        }
    }

    fn forward(&mut self, now: u64, from: usize, to: usize, packet: Bytes) {
        let Some(index) = self.index(from, to) else { return };
        if self.held >= HELD {
            self.overflow += 1;
            return;
        }
        if let Some(meter) = self.meters.get_mut(index) {
            meter.packet(&packet);
        }
        if let Some(link) = self.links.get_mut(index) {
            let before = link.held();
            link.offer(now, num::count(packet.len()), packet);
            // Fewer than before, if others got lost meanwhile.
            self.held = self.held + link.held() - before;
        }
        self.schedule(index);
    }

    /// Destination of an IPv4 packet. Nodes are told apart by the last byte of their address, from 1.
    fn destination(&self, packet: &[u8]) -> Destination {
        let (Some(first), Some(address)) = (packet.first(), packet.get(16..20)) else { return Destination::Nobody };
        if first >> 4 != 4 {
            return Destination::Nobody;
        }
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| address.get(at).copied().unwrap_or(0));
        if Ipv4Addr::new(a, b, c, d).is_multicast() || d == 255 {
            return Destination::Everybody;
        }
        match usize::from(d).checked_sub(1) {
            Some(node) if node < self.nodes => Destination::Node(node),
            Some(_) | None => Destination::Nobody,
        }
    }

    /// Takes the next packet that has arrived by `now`: when, at which node, what.
    pub(super) fn take(&mut self, now: u64) -> Option<(u64, usize, Bytes)> {
        while let Some(index) = self.due.pop_due(Instant::from_nanos(now)) {
            let Some(link) = self.links.get_mut(index) else { continue };
            let before = link.held();
            let taken = link.take(now);
            self.held = self.held + link.held() - before;
            self.schedule(index);
            if let Some((at, packet)) = taken {
                return Some((at, index % self.nodes, packet));
            }
        }
        None
    }

    /// When something arrives next.
    pub(super) fn next(&self) -> Option<u64> {
        self.due.next().map(Instant::as_nanos)
    }

    fn schedule(&mut self, index: usize) {
        match self.links.get(index).and_then(Link::next) {
            Some(at) => self.due.set(index, Instant::from_nanos(at)),
            None => {
                self.due.cancel(&index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulate::setting::{Delay, Rate};

    const MS: u64 = 1_000_000;

    fn fabric(nodes: usize, delay: Delay) -> Fabric {
        Fabric::new(&NetworkPlan { nodes, delay, rate: Rate::bits_per_second(10_000_000), ..NetworkPlan::default() })
    }

    /// An IPv4 packet of 1,250 bytes to this address.
    fn packet(to: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 1_250];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&to);
        packet
    }

    fn drain(fabric: &mut Fabric) -> Vec<(u64, usize)> {
        let mut all = Vec::new();
        while let Some(at) = fabric.next() {
            all.extend(std::iter::from_fn(|| fabric.take(at)).map(|(at, node, _)| (at, node)));
        }
        all
    }

    #[test]
    fn a_packet_goes_to_the_node_it_names() {
        let mut fabric = fabric(3, Delay::Fixed(10.0));
        fabric.offer(0, 0, &packet([198, 19, 0, 3]));
        assert_eq!(drain(&mut fabric), [(11 * MS, 2)]);
        assert_eq!(fabric.link(0, 2).map(|link| link.count.bytes), Some(1_250));
        assert_eq!((fabric.held, fabric.stray), (0, 0));
    }

    #[test]
    fn multicast_and_broadcast_go_to_everybody_else() {
        for to in [[239, 1, 2, 3], [198, 19, 0, 255], [255, 255, 255, 255]] {
            let mut fabric = fabric(4, Delay::Fixed(10.0));
            fabric.offer(0, 1, &packet(to));
            assert_eq!(drain(&mut fabric), [(11 * MS, 0), (11 * MS, 2), (11 * MS, 3)]);
        }
    }

    #[test]
    fn what_is_for_nobody_is_counted() {
        let mut fabric = fabric(2, Delay::Fixed(1.0));
        let mut six = packet([0; 4]);
        six[0] = 0x60;
        for stray in [&six, &packet([198, 19, 0, 9]), &packet([198, 19, 0, 0]), &vec![0x45; 10], &vec![]] {
            fabric.offer(0, 0, stray);
        }
        assert_eq!((drain(&mut fabric), fabric.stray), (Vec::new(), 5));
    }

    #[test]
    fn links_do_not_share_their_rate() {
        let mut fabric = fabric(3, Delay::Fixed(0.0));
        for to in [2, 3, 2, 3] {
            fabric.offer(0, 0, &packet([198, 19, 0, to]));
        }
        fabric.offer(0, 1, &packet([198, 19, 0, 1]));
        let mut arrivals = drain(&mut fabric);
        arrivals.sort_unstable();
        assert_eq!(arrivals, [(MS, 0), (MS, 1), (MS, 2), (2 * MS, 1), (2 * MS, 2)]);
    }

    #[test]
    fn a_link_has_one_delay_for_both_directions_and_a_seed_repeats_it() {
        let delays = |seed| {
            let delay = Delay::Normal(10.0, 2.5);
            let fabric = Fabric::new(&NetworkPlan { nodes: 5, delay, seed, ..NetworkPlan::default() });
            let delay = |a, b| fabric.link(a, b).map(|link| link.setting.delay);
            for a in 0..5 {
                for b in 0..5 {
                    assert_eq!(delay(a, b), delay(b, a));
                }
            }
            (1..5).map(|b| delay(0, b)).collect::<Vec<_>>()
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
        let mut different = delays(1);
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 4, "each link draws its own");
    }

    #[test]
    fn the_network_holds_so_much_and_no_more() {
        let plan = NetworkPlan { delay: Delay::Fixed(1_000.0), ..NetworkPlan::default() };
        let mut fabric = Fabric::new(&plan);
        for _ in 0..HELD + 5 {
            fabric.offer(0, 0, &packet([198, 19, 0, 2])[..20]);
        }
        assert_eq!((fabric.held, fabric.overflow), (HELD, 5));
        assert_eq!(drain(&mut fabric).len(), HELD);
        assert_eq!(fabric.held, 0);
    }

    #[test]
    fn a_cut_empties_what_it_held() {
        let mut fabric = fabric(2, Delay::Fixed(10.0));
        fabric.offer(0, 0, &packet([198, 19, 0, 2]));
        fabric.each(&|from, to| (from, to) == (0, 1), |link| link.set_open(false, MS));
        assert_eq!((fabric.held, fabric.next()), (0, None));
    }
}
