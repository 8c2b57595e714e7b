//! Drives the machines of a host as the daemon does: feed, then take outputs until there are none.

use bytes::Bytes;
use sedge_base::{ConnId, Duration, ShardId};
use sedge_cluster::mail::{ToNode, ToShard};
use sedge_cluster::{LinkId, NodeInput, NodeOutput, ShardInput, ShardOutput};

use super::World;
use crate::Sabotage;
use crate::disk::Mail;
use crate::host::{address, host_at};
use crate::network::{End, WireId};
use crate::schedule::{Actor, Event, delay};

impl World {
    pub(super) fn alive(&self, host: usize, life: u64) -> bool {
        self.hosts[host].up && self.hosts[host].life == life
    }

    pub(super) fn mail_to_shard(&mut self, host: usize, life: u64, shard: ShardId, mail: ToShard) {
        if self.alive(host, life) {
            self.trace.note(self.now, format_args!("host {host} shard {} mail {mail:?}", shard.0));
            let moves = matches!(mail, ToShard::Session(_));
            self.shard_input(host, shard, ShardInput::Mail(mail));
            if moves {
                self.note_owners();
            }
        }
    }

    pub(super) fn mail_to_node(&mut self, host: usize, life: u64, from: ShardId, mail: ToNode) {
        if self.alive(host, life) {
            self.trace.note(self.now, format_args!("host {host} node mail from {} {mail:?}", from.0));
            self.node_input(host, NodeInput::Mail { from, mail });
        }
    }

    pub(super) fn timer(&mut self, host: usize, life: u64, actor: Actor) {
        if !self.alive(host, life) || self.hosts[host].timers.get(&actor).is_none_or(|at| *at > self.now) {
            return;
        }
        self.hosts[host].timers.remove(&actor);
        self.wake(host, actor);
    }

    fn wake(&mut self, host: usize, actor: Actor) {
        let now = self.clocks(host);
        match actor {
            Actor::Node => {
                self.hosts[host].node.handle_timeout(now);
                if !self.hosts[host].turn_open {
                    self.drain_node(host);
                }
            }
            Actor::Shard(shard) => {
                self.hosts[host].shard(shard).handle_timeout(now);
                self.drain_shard(host, shard);
            }
        }
    }

    /// Lets every machine of a host begin.
    pub(super) fn wake_all(&mut self, host: usize) {
        for shard in 0..self.options.shards {
            self.wake(host, Actor::Shard(ShardId(shard)));
        }
        self.wake(host, Actor::Node);
    }

    pub(super) fn datagram(&mut self, from: usize, to: usize, bytes: Bytes) {
        if self.hosts[to].up && !self.network.is_cut(from, to) {
            self.trace.note(self.now, format_args!("host {to} datagram from {from}, {} bytes", bytes.len()));
            self.node_input(to, NodeInput::Datagram { from: address(from), bytes });
        }
    }

    pub(super) fn dialled(&mut self, host: usize, life: u64, link: LinkId, to: usize) {
        if !self.alive(host, life) {
            return;
        }
        if self.network.is_cut(host, to) || self.network.is_cut(to, host) {
            self.node_input(host, NodeInput::LinkClosed { link });
            return;
        }
        if !self.hosts[to].up {
            self.node_input(host, NodeInput::LinkRefused { link });
            return;
        }
        let accepted = self.hosts[to].next_link();
        let ends = [End::Link { host, link }, End::Link { host: to, link: accepted }];
        let wire = self.network.connect(ends, self.now);
        self.hosts[host].links.insert(link, wire);
        self.hosts[to].links.insert(accepted, wire);
        self.trace.note(self.now, format_args!("host {host} linked to {to}"));
        self.node_input(to, NodeInput::LinkAccepted { link: accepted, peer: address(host) });
        self.node_input(host, NodeInput::LinkDialled { link });
    }

    pub(super) fn node_input(&mut self, host: usize, input: NodeInput) {
        let now = self.clocks(host);
        self.hosts[host].node.handle(now, input);
        if self.hosts[host].turn_open {
            return;
        }
        if self.options.turn > Duration::ZERO && self.turn_rng.chance(1, 4) {
            self.begin_turn(host);
        } else {
            self.drain_node(host);
        }
    }

    /// The daemon tells a node of more, and runs its timers, before it takes outputs.
    fn begin_turn(&mut self, host: usize) {
        self.hosts[host].turn_open = true;
        let life = self.hosts[host].life;
        let when = self.now + delay(&mut self.turn_rng, self.options.turn);
        self.schedule.at(when, Event::TurnEnds { host, life });
    }

    pub(super) fn turn_ends(&mut self, host: usize, life: u64) {
        if self.alive(host, life) && self.hosts[host].turn_open {
            self.drain_node(host);
        }
    }

    pub(super) fn shard_input(&mut self, host: usize, shard: ShardId, input: ShardInput) {
        let now = self.clocks(host);
        self.hosts[host].shard(shard).handle(now, input);
        self.drain_shard(host, shard);
    }

    pub(super) fn drain_node(&mut self, host: usize) {
        self.hosts[host].turn_open = false;
        while let Some(output) = self.hosts[host].node.poll_output() {
            let life = self.hosts[host].life;
            match output {
                NodeOutput::ToShard(shard, mail) => self.post_to_shard(host, Actor::Node, shard, mail),
                NodeOutput::Datagram { to, bytes } => self.send_datagram(host, to, bytes),
                NodeOutput::Dial { link, to } => {
                    let when = self.now + delay(&mut self.net_rng, self.options.net_delay);
                    match host_at(to) {
                        Some(to) if to < self.hosts.len() => {
                            self.schedule.at(when, Event::Dialled { host, life, link, to });
                        }
                        _ => self.oracle.protocol.push(format!("host {host} dials {to}")),
                    }
                }
                NodeOutput::LinkTransmit(link) if self.waits_for_disk(host) => self.touch_link(host, link),
                NodeOutput::LinkTransmit(link) => {
                    if let Some(wire) = self.hosts[host].links.get(&link).copied() {
                        self.transmit_from(host, wire);
                    }
                }
                NodeOutput::LinkClose(link) => {
                    if let Some(wire) = self.hosts[host].links.remove(&link) {
                        self.close_by_host(host, wire);
                    }
                }
                // No operator is simulated.
                NodeOutput::Refuse { .. }
                | NodeOutput::Kicked { .. }
                | NodeOutput::Asked { .. }
                | NodeOutput::Answered { .. } => {}
                NodeOutput::SetTime { ahead } => self.corrections[host] += ahead,
                NodeOutput::Drained => self.drained(host),
                NodeOutput::Event(event) => self.trace.note(self.now, format_args!("host {host}: {}", event.message)),
            }
        }
        self.commit(host, ShardId(0));
        let wanted = self.hosts[host].node.poll_timeout();
        self.set_timer(host, Actor::Node, wanted);
    }

    fn send_datagram(&mut self, host: usize, to: core::net::SocketAddr, bytes: Bytes) {
        let lost = self.net_rng.chance(self.options.loss, 1_000) && !self.calm;
        let when = self.now + delay(&mut self.net_rng, self.options.net_delay);
        match host_at(to) {
            Some(to) if to < self.hosts.len() && !lost => {
                if self.options.repeats > 0 && self.net_rng.chance(self.options.repeats, 1_000) {
                    let again = when + delay(&mut self.net_rng, self.options.net_delay);
                    self.schedule.at(again, Event::Datagram { from: host, to, bytes: bytes.clone() });
                }
                self.schedule.at(when, Event::Datagram { from: host, to, bytes });
            }
            _ => {}
        }
    }

    pub(super) fn drain_shard(&mut self, host: usize, shard: ShardId) {
        if self.hosts[host].reads_again(shard) {
            self.resume_wires();
        }
        self.take_outputs(host, shard);
        let now = self.clocks(host);
        loop {
            self.hosts[host].shard(shard).end_turn(now);
            self.take_outputs(host, shard);
            if !self.hosts[host].shard(shard).is_turn_open() {
                break;
            }
        }
        self.commit(host, shard);
        let wanted = self.hosts[host].shard(shard).poll_timeout();
        self.set_timer(host, Actor::Shard(shard), wanted);
    }

    /// Writes the changes of a host to its disk, if it has one, before anything that rests on them arrives anywhere.
    pub(super) fn commit(&mut self, host: usize, thread: ShardId) {
        let Some(disk) = self.disks.get_mut(host) else { return };
        self.hosts[host].write_to(disk);
        if self.waits_for_disk(host) {
            self.end_turn(host, thread);
        }
    }

    fn take_outputs(&mut self, host: usize, shard: ShardId) {
        while let Some(output) = self.hosts[host].shard(shard).poll_output() {
            match output {
                ShardOutput::Transmit(conn) if self.waits_for_disk(host) => self.touch_conn(host, shard, conn),
                ShardOutput::Transmit(conn) => {
                    if let Some(wire) = self.hosts[host].conns.get(&conn).copied() {
                        self.transmit_from(host, wire);
                    }
                }
                ShardOutput::Close(conn) => {
                    if let Some(wire) = self.hosts[host].conns.remove(&conn) {
                        self.close_by_host(host, wire);
                    }
                }
                // Simulated nodes have no accounts, and no broker behind them.
                ShardOutput::Authenticate(_) | ShardOutput::Proceed { .. } | ShardOutput::Upstream(_) => {}
                ShardOutput::Hold(conn) => self.hold(host, conn, true),
                ShardOutput::Release(conn) => self.hold(host, conn, false),
                ShardOutput::ToNode(mail) => self.post_to_node(host, shard, mail),
                ShardOutput::ToShard(to, mail) => self.post_to_shard(host, Actor::Shard(shard), to, mail),
                ShardOutput::Event(event) => self.trace.note(self.now, format_args!("host {host}: {event:?}")),
            }
        }
    }

    fn hold(&mut self, host: usize, conn: ConnId, held: bool) {
        if let Some(wire) = self.hosts[host].conns.get(&conn).copied() {
            self.hold_wire(host, wire, held);
        }
    }

    fn set_timer(&mut self, host: usize, actor: Actor, wanted: Option<sedge_base::Instant>) {
        let life = self.hosts[host].life;
        let timers = &mut self.hosts[host].timers;
        match wanted {
            Some(at) if timers.get(&actor) != Some(&at) => {
                timers.insert(actor, at);
                // A timer that is due already still lets a little time pass, or the world would stand still.
                let when = at.max(self.now + Duration::from_nanos(1));
                if when > at {
                    self.hosts[host].timers.insert(actor, when);
                }
                self.schedule.at(when, Event::Timer { host, life, actor });
            }
            Some(_) => {}
            None => {
                timers.remove(&actor);
            }
        }
    }

    fn post_to_node(&mut self, host: usize, from: ShardId, mail: ToNode) {
        if let ToNode::Batch { number, .. } = &mail
            && self.options.sabotage == Sabotage::BelieveCopied
        {
            self.post_to_shard(host, Actor::Node, from, ToShard::Copied(*number));
        }
        if from != ShardId(0) && self.waits_for_disk(host) {
            return self.put_mail(host, Actor::Shard(from), ShardId(0), Mail::Node(from, mail));
        }
        let life = self.hosts[host].life;
        let when = self.now + delay(&mut self.host_rng, self.options.mail_delay);
        self.schedule.mail(when, (host, Actor::Shard(from), Actor::Node), Event::ToNode { host, life, from, mail });
    }

    fn post_to_shard(&mut self, host: usize, from: Actor, shard: ShardId, mail: ToShard) {
        if Self::thread_of(from) != shard && self.waits_for_disk(host) {
            return self.put_mail(host, from, shard, Mail::Shard(mail));
        }
        let life = self.hosts[host].life;
        let when = self.now + delay(&mut self.host_rng, self.options.mail_delay);
        let path = (host, from, Actor::Shard(shard));
        if let ToShard::Plain(message) = &mail {
            if self.sabotage(Sabotage::LoseMail) {
                return;
            }
            if self.sabotage(Sabotage::RepeatMail) {
                let again = ToShard::Plain(message.clone());
                self.schedule.mail(when, path, Event::ToShard { host, life, shard, mail: again });
            }
            if self.sabotage(Sabotage::ReorderMail) {
                let late = when + Duration::from_millis(500);
                self.schedule.at(late, Event::ToShard { host, life, shard, mail });
                return;
            }
        }
        if matches!(&mail, ToShard::Table(_)) && self.sabotage(Sabotage::LoseTable) {
            return;
        }
        self.schedule.mail(when, path, Event::ToShard { host, life, shard, mail });
    }

    fn close_by_host(&mut self, host: usize, wire: WireId) {
        self.flush(wire, host);
        self.close(wire, host);
    }
}
