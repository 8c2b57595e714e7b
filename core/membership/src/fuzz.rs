//! Body of the fuzz target: whatever may come in datagrams. A stable test runs it, too, over the committed corpus and over mutations of
//! it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::{Buf, Bytes};
use sedge_base::{Incarnation, Instant, NodeId, Now, Rng, Timestamp};

use crate::wire::Datagram;
use crate::{Config, Input, Member, Membership, Output};

/// Node id of the membership under test.
const ME: u64 = 1;
/// Nodes that are kept in mind: fewer than a datagram may name.
const MEMBERS_MAX: usize = 8;
/// Datagrams that one datagram may cause. Most are of a node that hears that it is taken for dead: it tells and calls others.
const ANSWERS_MAX: usize = 16;

/// Reads a datagram. Holds: no panic; an accepted datagram is written again byte for byte.
pub fn decode(data: &[u8]) {
    if let Ok(datagram) = Datagram::decode(data) {
        let mut again = Vec::new();
        assert_eq!(datagram.encode(&mut again), Ok(()));
        assert_eq!(again, data);
    }
}

/// Feeds steps to the membership of node 1. All numbers are big-endian:
///
/// ```text
/// step   0 a datagram comes     length u16 | datagram
///        1 time passes          milliseconds u16
///        2 what is due next happens
///        3 evidence of a death  node u8
///        4 a refused link       node u8
///        5 a word over a link   node u8
///        6 the node leaves
/// ```
///
/// Holds: no panic; a datagram that is read is written as it came; one datagram causes a handful of others, none longer than allowed, all of which
/// can be read; nodes come and go in turn, and no more of them than there is room for; nothing is due again at once.
pub fn datagram(data: &[u8]) {
    let mut subject = Subject::new();
    let mut input = data;
    while subject.step(&mut input).is_some() {}
}

/// The machine and its owner's knowledge of it.
struct Subject {
    machine: Membership,
    now: Instant,
    members: BTreeSet<NodeId>,
    left: bool,
    /// Since the last step.
    sent: Vec<(SocketAddr, Bytes)>,
}

fn address(node: u64) -> SocketAddr {
    let [.., last] = node.to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), 7883))
}

fn member(node: u64, incarnation: u64) -> Member {
    Member::new(NodeId::new(node), Incarnation::new(incarnation), address(node), address(node))
}

impl Subject {
    fn new() -> Self {
        let config = Config { seeds: vec![address(2)], max_members: MEMBERS_MAX, ..Config::default() };
        let machine = Membership::new(&config, member(ME, 5), Rng::new(ME));
        let Ok(machine) = machine else { unreachable!("the settings are good") };
        let (members, sent) = (BTreeSet::new(), Vec::new());
        Self { machine, now: Instant::from_millis(1_000), members, left: false, sent }
    }

    /// Takes one step; none if there is no more.
    fn step(&mut self, input: &mut &[u8]) -> Option<()> {
        self.sent.clear();
        match input.try_get_u8().ok()? {
            0 => {
                let len = usize::from(input.try_get_u16().ok()?).min(input.len());
                let (bytes, rest) = input.split_at_checked(len)?;
                *input = rest;
                decode(bytes);
                self.feed(Input::Datagram { from: address(2), bytes: Bytes::copy_from_slice(bytes) });
                assert!(self.sent.len() <= ANSWERS_MAX, "{} datagrams in answer to one", self.sent.len());
            }
            1 => self.pass(u64::from(input.try_get_u16().ok()?)),
            2 => {
                let due = self.machine.poll_timeout().unwrap_or(self.now);
                self.pass(due.since(self.now).as_nanos().div_ceil(1_000_000).try_into().ok()?);
            }
            3 => self.feed(Input::Suspect { node: NodeId::new(input.try_get_u8().ok()?.into()) }),
            4 => self.feed(Input::Refused { node: NodeId::new(input.try_get_u8().ok()?.into()) }),
            5 => self.machine.heard(NodeId::new(input.try_get_u8().ok()?.into()), self.now),
            6 => {
                self.feed(Input::Leave);
                self.left = true;
            }
            _ => return None,
        }
        Some(())
    }

    fn clock(&self) -> Now {
        Now { instant: self.now, wall: Timestamp::from_millis(0) }
    }

    fn feed(&mut self, input: Input) {
        self.machine.handle(self.clock(), input);
        self.poll();
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now + core::time::Duration::from_millis(millis);
        self.machine.handle_timeout(self.clock());
        self.poll();
        assert!(self.machine.poll_timeout().is_none_or(|due| due > self.now), "due again at once");
    }

    fn poll(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Datagram { to, bytes } => self.check_sent(to, bytes),
                Output::Up(member) => assert!(!member.departed && self.members.insert(member.node), "up twice"),
                Output::Down { member, .. } => assert!(self.members.remove(&member.node), "down twice"),
                Output::Moved(member) => assert!(self.members.contains(&member.node), "a stranger has moved"),
                Output::Rejoined(me) => assert_eq!(me.node, NodeId::new(ME)),
                Output::Outranked | Output::SameId { .. } => {}
            }
        }
        assert!(self.machine.members().map(|member| member.node).eq(self.members.iter().copied()));
        assert!(!self.members.contains(&NodeId::new(ME)) && self.members.len() <= MEMBERS_MAX);
        assert!(self.machine.dead().count() <= MEMBERS_MAX);
        assert!(!self.left || self.machine.poll_timeout().is_none());
    }

    fn check_sent(&mut self, to: SocketAddr, bytes: Bytes) {
        assert!(!self.left, "a word after the farewell");
        assert!(bytes.len() <= Config::default().max_packet);
        let datagram = Datagram::decode(&bytes);
        assert!(datagram.is_ok_and(|datagram| datagram.header.src.node == NodeId::new(ME)), "{bytes:02x?}");
        self.sent.push((to, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    /// EL-02
    #[test]
    fn the_datagram_corpus_and_mutations_of_it_pass() {
        replay(env!("CARGO_MANIFEST_DIR"), "datagram", 5_000, super::datagram);
    }
}

#[cfg(test)]
#[path = "../../../check/replay/mod.rs"]
mod replay;
