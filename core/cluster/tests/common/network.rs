//! Connections between nodes that break.

use super::{End, Event, LinkId, World};

impl World {
    /// Each end learns of it after at most so many microseconds.
    pub(super) fn break_wire(&mut self, end: (u64, LinkId), longest: u64) {
        let Some(other) = self.wires.remove(&end) else { return };
        self.wires.remove(&other);
        for (node, link) in [end, other] {
            self.send(End::Link(node, link), End::Link(node, link), longest, Event::LinkClosed { node, link });
        }
    }

    /// Breaks the TCP connections between two nodes; bytes on their way are lost. Datagrams go on.
    pub(crate) fn break_links(&mut self, a: u64, b: u64) {
        let between = |(from, to): (&(u64, LinkId), &(u64, LinkId))| from.0 == a && to.0 == b;
        let ends: Vec<_> = self.wires.iter().filter(|pair| between(*pair)).map(|(end, _)| *end).collect();
        for end in ends {
            let other = self.wires[&end];
            self.events.retain(|_, event| {
                !matches!(event, Event::LinkBytes { node, link, .. } if [end, other].contains(&(*node, *link)))
            });
            self.break_wire(end, 0);
        }
    }

    /// Cuts two nodes off from each other, datagrams and all.
    pub(crate) fn cut(&mut self, a: u64, b: u64) {
        self.break_links(a, b);
        self.cut.insert((a, b));
        self.cut.insert((b, a));
    }

    /// Lets no links stand between two nodes, as a firewall does that knows one of two ports.
    pub(crate) fn block(&mut self, a: u64, b: u64) {
        self.break_links(a, b);
        self.blocked.insert((a, b));
        self.blocked.insert((b, a));
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        self.blocked.clear();
    }
}
