//! Nodes whose datagrams this node does not take, or that do not take those of this node: an operator is told what to do.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use sedge_base::{Duration, Instant};

use crate::node::Node;
use crate::{Mistrust, NodeOutput};

/// Most addresses that are kept; of more nothing is said.
const MISTRUSTED_MAX: usize = 16;
/// How long an address is kept from which nothing more comes. Seeds are asked every 5 seconds.
const KEPT: Duration = Duration::from_mins(1);
/// How long until the log names an address once more.
const REMINDER: Duration = Duration::from_mins(10);
/// Shortest time between two answers to one address.
const ANSWER_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Entry {
    cause: Mistrust,
    last: Instant,
    said: Instant,
    answered: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Mistrusted {
    by_address: BTreeMap<SocketAddr, Entry>,
    /// How often another node was seen that has the id of this one.
    pub(in crate::node) same_id: u64,
}

impl Mistrusted {
    /// Addresses, and the causes of mistrust.
    pub(in crate::node) fn lines(&self, now: Instant) -> impl Iterator<Item = (SocketAddr, Mistrust)> {
        let recent = self.by_address.iter().filter(move |(_, entry)| now.since(entry.last) < KEPT);
        recent.map(|(address, entry)| (*address, entry.cause))
    }

    /// The mistake of the node at this address.
    pub(in crate::node) fn cause(&self, now: Instant, address: SocketAddr) -> Option<Mistrust> {
        self.by_address.get(&address).filter(|entry| now.since(entry.last) < KEPT).map(|entry| entry.cause)
    }

    /// The node at this address is a member now.
    pub(in crate::node) fn trusts(&mut self, address: SocketAddr) {
        self.by_address.remove(&address);
    }

    /// Returns whether the log has to name it, and whether the address may be answered.
    fn note(&mut self, now: Instant, address: SocketAddr, cause: Mistrust) -> (bool, bool) {
        if let Some(entry) = self.by_address.get_mut(&address) {
            let is_news = entry.cause != cause || now.since(entry.said) >= REMINDER;
            let may_answer = entry.answered.is_none_or(|answered| now.since(answered) >= ANSWER_PAUSE);
            (entry.cause, entry.last) = (cause, now);
            if is_news {
                entry.said = now;
            }
            if may_answer {
                entry.answered = Some(now);
            }
            return (is_news, may_answer);
        }
        if self.by_address.len() >= MISTRUSTED_MAX {
            self.by_address.retain(|_, entry| now.since(entry.last) < KEPT);
        }
        if self.by_address.len() >= MISTRUSTED_MAX {
            return (false, false);
        }
        self.by_address.insert(address, Entry { cause, last: now, said: now, answered: Some(now) });
        (true, true)
    }
}

impl Node {
    /// A datagram has come that is not taken. Its sender is told, so that both sides can say what is wrong: nobody has proven who it is,
    /// but the answer is shorter than what it answers, and rare.
    pub(in crate::node) fn mistrusts(&mut self, from: SocketAddr, cause: Mistrust) {
        self.count_mistrust(cause);
        let (is_news, may_answer) = self.mistrusted.note(self.now.instant, from, cause);
        if is_news {
            self.event(true, cause.explain(from));
        }
        if may_answer {
            self.outputs.push_back(NodeOutput::Refuse { to: from, cause });
        }
    }

    /// Another node says that it does not take the datagrams of this one. Anybody could say so: only those are believed whom this node
    /// asks.
    pub(in crate::node) fn is_mistrusted(&mut self, by: SocketAddr, theirs: Mistrust) {
        let is_asked = self.membership.unreached_seeds().any(|seed| seed == by)
            || self.membership.dead().any(|(member, _)| member.swim == by);
        if !is_asked {
            return;
        }
        let cause = theirs.mirrored();
        self.count_mistrust(cause);
        if self.mistrusted.note(self.now.instant, by, cause).0 {
            self.event(true, cause.explain(by));
        }
    }

    /// Another process runs with the id of this node. It is called, so that it finds out as well.
    pub(in crate::node) fn shares_its_id(&mut self, at: SocketAddr) {
        self.count_mistrust(Mistrust::SameId);
        let (is_news, may_answer) = self.mistrusted.note(self.now.instant, at, Mistrust::SameId);
        if is_news {
            self.event(true, Mistrust::SameId.explain(at));
        }
        if may_answer {
            self.membership.handle(self.now, sedge_membership::Input::Call { to: at });
        }
    }

    fn count_mistrust(&mut self, cause: Mistrust) {
        if cause == Mistrust::SameId {
            self.mistrusted.same_id += 1;
        } else {
            self.links.count_auth_failure();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], number))
    }

    #[test]
    fn few_addresses_are_kept_and_each_is_named_and_answered_rarely() {
        let mut kept = Mistrusted::default();
        let at = |seconds: u64| Instant::from_millis(seconds * 1_000);
        assert_eq!(kept.note(at(0), address(1), Mistrust::OtherKey), (true, true));
        assert_eq!(kept.note(at(0), address(1), Mistrust::OtherKey), (false, false));
        assert_eq!(kept.note(at(2), address(1), Mistrust::OtherKey), (false, true));
        assert_eq!(kept.note(at(2), address(1), Mistrust::KeyHereOnly), (true, false));
        for number in 2..=16 {
            assert!(kept.note(at(3), address(number), Mistrust::NoKey).0);
        }
        assert_eq!(kept.note(at(3), address(17), Mistrust::NoKey), (false, false));
        assert_eq!(kept.lines(at(61)).count(), 16);
        assert_eq!(kept.lines(at(62)).count(), 15, "nothing has come from the first for a minute");
        assert_eq!(kept.note(at(64), address(17), Mistrust::NoKey), (true, true));
        kept.trusts(address(17));
        assert_eq!(kept.cause(at(64), address(17)), None);
    }
}
