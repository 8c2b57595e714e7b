//! Outputs of the machines inside the node, and their consequences.

use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{Incarnation, NodeId, ShardId};
use sedge_broker::Ticket;
use sedge_membership::{DownCause, Input as MembershipInput, Output as MembershipOutput};
use sedge_mqtt::{QoS, ReasonCode};
use sedge_overlay::{Advertised, Input, Neighbour, Output, Token};

use crate::NodeOutput;
use crate::link::{ControlTopic, Frame, FrameSeq, Hello, Lost, Output as LinkOutput, Publication};
use crate::mail::{Life, TableChange, ToShard};
use crate::node::Node;
use crate::node::delivery::copied::Source;
use crate::node::peers::Standing;
use crate::node::sessions::claims::Silence;
use crate::wire::{Stray, WireError};

impl Node {
    pub(in crate::node) fn overlay_output(&mut self, output: Output) {
        match output {
            Output::Signal { to, bytes } => self.signal(to, bytes),
            Output::Link { node, wanted } => self.want_link(node, wanted),
            Output::Table(Advertised::Remote { filter, wanted }) => {
                if self.orphans.note_route(&filter, wanted) {
                    self.table.push(TableChange::Remote { filter, wanted });
                }
            }
            Output::Table(Advertised::Group { node, group, online, offline }) => {
                self.members_at(node, group, online, offline);
            }
            Output::Barrier(barrier) => {
                self.flush_table();
                let number = self.settles.barrier_for_overlay(barrier, self.config.shards);
                self.tell_all_shards(|| ToShard::Barrier(number));
            }
            Output::Settled(Token(number)) => {
                if let Some(waiter) = self.settles.settled(number) {
                    self.finish_wait(waiter);
                }
            }
            Output::Synced { node } => {
                if let Some(peer) = self.peers.get_mut(&node) {
                    peer.overlay_synced = true;
                }
                self.release_reunions();
                self.release_again();
                // Gives messages that were published since the link came up.
                let life = self.life_of(node);
                self.give_kept(life);
                self.has_returned(life);
            }
            Output::Cut { node } => self.neighbours.ended(node),
            Output::Protocol { node, detail } => self.reset_link(node, &detail),
        }
    }

    fn signal(&mut self, to: NodeId, bytes: Bytes) {
        match self.peers.get_mut(&to).filter(|peer| peer.standing == Standing::Lost) {
            Some(peer) => {
                if !peer.hold(bytes) {
                    self.reset_link(to, "too much to tell while it is down");
                }
            }
            None => {
                self.send_control(to, ControlTopic::Overlay, bytes);
            }
        }
    }

    fn want_link(&mut self, node: NodeId, wanted: bool) {
        if wanted {
            self.wanted.insert(node);
            if let Some(member) = self.membership.member(node) {
                self.links.want(self.now.instant, node, member.incarnation, member.link);
            }
        } else if self.wanted.remove(&node) {
            self.drop_link(node);
        }
    }

    /// Gives the link up with all that is on its way. Publishers that wait for the neighbour wait no longer.
    fn drop_link(&mut self, node: NodeId) {
        self.links.forget(self.now.instant, node);
        self.relay.asking.note_news();
        let accepted = &mut self.accepted;
        self.acks.gone(node, |shard, ticket, reason| note(accepted, shard, ticket, reason));
        if let Some(peer) = self.peers.get_mut(&node)
            && peer.is_linked()
        {
            peer.restart();
            self.overlay.handle(self.now, Input::NeighbourDown { node, gone: false });
        }
        self.transfers.purge(node);
    }

    /// Gives the link to a member up that lives, and dials anew. Sessions that are on their way are sent again.
    pub(in crate::node) fn begin_link_anew(&mut self, node: NodeId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let known = (peer.incarnation, peer.former, core::mem::take(&mut peer.backups));
        let was_linked = peer.is_linked();
        peer.begin_anew();
        (peer.incarnation, peer.former, peer.backups) = known;
        if was_linked {
            self.overlay.handle(self.now, Input::NeighbourDown { node, gone: false });
        }
        self.drop_link(node);
        self.want_link(node, true);
    }

    /// The neighbour said something impossible, or cannot be told what it has to know: the link begins anew.
    pub(in crate::node) fn reset_link(&mut self, node: NodeId, detail: &str) {
        self.counters.links_reset += 1;
        self.event(true, format!("The link to node {node} begins anew: {detail}"));
        self.drop_link(node);
        if self.wanted.contains(&node) {
            self.want_link(node, true);
        }
    }

    pub(in crate::node) fn link_output(&mut self, output: LinkOutput) {
        match output {
            LinkOutput::Dial { link, to } => self.outputs.push_back(NodeOutput::Dial { link, to }),
            LinkOutput::Transmit { link } => self.outputs.push_back(NodeOutput::LinkTransmit(link)),
            LinkOutput::Close { link } => self.outputs.push_back(NodeOutput::LinkClose(link)),
            LinkOutput::Up { peer, resumed, lost } => self.link_up(peer, resumed, &lost),
            LinkOutput::Down { node, silent, .. } => self.link_down(node, silent),
            LinkOutput::Refused { node } => self.membership.handle(self.now, MembershipInput::Refused { node }),
            LinkOutput::Frame { from, number, frame } => self.frame(from, number, frame),
            LinkOutput::Acked { node, up_to } => {
                self.taken(node, up_to);
                self.backup_took(node, up_to);
                if let Some(peer) = self.peers.get_mut(&node) {
                    peer.acked(up_to);
                    self.pump(node);
                }
            }
            LinkOutput::RoundTrip { node, micros } => {
                self.overlay.handle(self.now, Input::RoundTrip { node, micros });
            }
            LinkOutput::Event(event) => self.outputs.push_back(NodeOutput::Event(event)),
        }
    }

    fn taken(&mut self, node: NodeId, up_to: FrameSeq) {
        let accepted = &mut self.accepted;
        self.acks.taken(node, up_to, |shard, ticket, reason| note(accepted, shard, ticket, reason));
    }

    /// A link that is resumed has lost nothing, so that nothing has happened for the overlay. Otherwise everything the neighbour
    /// has to know is told again.
    fn link_up(&mut self, hello: Hello, resumed: bool, lost: &Lost) {
        let Hello { node, incarnation, capacity, link_addr } = hello;
        if self.is_ahead_of_membership(node, incarnation) {
            return;
        }
        let accepted = &mut self.accepted;
        self.acks.lost(node, lost, |shard, ticket, reason| note(accepted, shard, ticket, reason));
        let peer = self.peers.entry(node).or_default();
        let was_linked = peer.is_linked();
        (peer.standing, peer.missed_at) = (Standing::Up, None);
        self.orphans.lives(Life { node, incarnation });
        self.out_of_reach.forget(node);
        let peer = self.peers.entry(node).or_default();
        if resumed && was_linked {
            for signal in peer.take_held() {
                self.signal(node, signal);
            }
            self.give_kept(Life { node, incarnation });
            self.pump(node);
            self.end_given_up(node);
            self.choose_backups();
            return;
        }
        self.open_all_fences(node);
        let peer = self.peers.entry(node).or_default();
        let knew = peer.incarnation;
        if knew == Some(incarnation) {
            peer.begin_anew();
        } else {
            peer.restart();
        }
        (peer.standing, peer.incarnation) = (Standing::Up, Some(incarnation));
        self.marks.forget(Source::Link(node));
        self.had.breaks(self.now.instant, node);
        self.relay_restarts(node);
        self.give_kept(Life { node, incarnation });
        self.ask_who_is_back(Life { node, incarnation });
        self.backup_restarts(node);
        if was_linked {
            self.overlay.handle(self.now, Input::NeighbourDown { node, gone: false });
        }
        self.transfers.purge(node);
        self.meets(Neighbour { node, incarnation, capacity, address: link_addr }, knew);
        self.introduce(node);
        self.offer_digests(node, false);
        self.tell_taken(node);
        self.register_inherited_with(node);
        self.register_all_with(node);
        self.ask_to_hear(node);
        self.claims_without(node, Silence::Forgotten);
        self.tell_backups(node);
        self.end_given_up(node);
        self.choose_backups();
        self.takeover_lives(Life { node, incarnation });
        self.tell_serving(node);
        self.pump(node);
    }

    /// Whether a node has started again before membership has told of the end of its former life. The former life is seen to first: the
    /// new life links again afterwards.
    fn is_ahead_of_membership(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        let former = self.peers.get_mut(&node).filter(|peer| peer.incarnation.is_some_and(|known| known < incarnation));
        let Some(peer) = former else { return false };
        if peer.is_linked() {
            peer.standing = Standing::Lost;
        }
        self.links.forget(self.now.instant, node);
        self.membership.handle(self.now, MembershipInput::Suspect { node });
        true
    }

    /// The neighbour's frames wait for the link to come back, or for membership to say that the node is gone. A silent node may be busy: membership
    /// has its own ways to find out.
    fn link_down(&mut self, node: NodeId, silent: bool) {
        if let Some(peer) = self.peers.get_mut(&node).filter(|peer| peer.is_linked()) {
            peer.standing = Standing::Lost;
            self.watch_backup(node);
            self.watch_reach(node);
        }
        if !silent {
            self.membership.handle(self.now, MembershipInput::Suspect { node });
        }
        if self.membership.member(node).is_none()
            && let Some(peer) = self.peers.get(&node)
        {
            self.gone(node, peer.incarnation, false);
        }
    }

    pub(in crate::node) fn frame(&mut self, from: NodeId, number: u64, frame: Frame) {
        let Some(frame) = self.admit(from, number, frame) else { return };
        let result = match frame {
            Frame::Publication(publication) => {
                if publication.waybill.is_some() {
                    self.relayed(from, publication);
                } else {
                    self.publication(Source::Link(from), number, publication);
                }
                Ok(())
            }
            Frame::Control { topic: ControlTopic::Overlay, payload } => {
                self.relay.asking.note_news();
                self.overlay.handle(self.now, Input::Signal { from, bytes: payload });
                Ok(())
            }
            Frame::Control { topic: ControlTopic::Directory, payload } => self.directory_bytes(from, payload),
            Frame::Control { topic: ControlTopic::Session, payload } => self.session_mail(from, payload),
            Frame::Control { topic: ControlTopic::Retained, payload } => self.retained_mail(from, payload),
            Frame::Control { topic: ControlTopic::Node, payload } => self.node_mail(from, payload),
            Frame::Control { topic: ControlTopic::Replica, payload } => self.replica_mail(from, payload),
            Frame::Control { topic: ControlTopic::Relay, payload } => self.relay_mail(from, payload),
            // The links keep it to themselves.
            Frame::Control { topic: ControlTopic::Carry, .. } => Ok(()),
        };
        match result {
            Ok(()) => {}
            Err(WireError::UNKNOWN) if self.links.is_newer(from) => self.counters.mail_passed_over += 1,
            Err(error) => self.reset_link(from, &error.to_string()),
        }
    }

    pub(in crate::node) fn membership_output(&mut self, output: MembershipOutput) {
        match output {
            MembershipOutput::Datagram { to, bytes } => self.outputs.push_back(NodeOutput::Datagram { to, bytes }),
            MembershipOutput::Up(member) => {
                let (node, incarnation) = (member.node, member.incarnation);
                self.mistrusted.trusts(member.swim);
                self.event(false, format!("Node {node} at {} is a member", member.link));
                self.orphans.lives(Life { node, incarnation });
                let address = member.link;
                self.overlay.handle(self.now, Input::MemberUp(Neighbour { node, incarnation, capacity: 1, address }));
                // The links have to exist before anything is said over them.
                self.drain_overlay();
                self.find_neighbours();
                self.watch_reach(node);
                self.members_changed(Some(node));
            }
            MembershipOutput::Down { member, cause } => {
                let why = match cause {
                    DownCause::Left => "has left",
                    DownCause::Dead => "does not answer any more",
                    DownCause::Restarted => "has started again",
                };
                self.event(cause == DownCause::Dead, format!("Node {} {why}", member.node));
                self.gone(member.node, Some(member.incarnation), cause == DownCause::Left);
            }
            MembershipOutput::Moved(member) => {
                if self.wanted.contains(&member.node) {
                    self.links.want(self.now.instant, member.node, member.incarnation, member.link);
                }
                self.find_neighbours();
            }
            MembershipOutput::Rejoined(_) => {
                self.event(true, "The others had taken this node for dead; it is back".to_owned());
                self.was_taken_for_dead();
            }
            MembershipOutput::SameId { at } => self.shares_its_id(at),
            MembershipOutput::Outranked => {
                self.event(true, "Another process runs with the same node id, or an older start was later".to_owned());
            }
        }
    }

    pub(in crate::node) fn drain_overlay(&mut self) {
        while let Some(output) = self.overlay.poll_output() {
            self.overlay_output(output);
        }
    }

    /// A node is gone. Its sessions go on at its successor, if it has one; if not, messages for them are kept, unless it has said farewell.
    fn gone(&mut self, node: NodeId, incarnation: Option<Incarnation>, has_left: bool) {
        // Its link may have said so before membership did.
        if incarnation.is_some_and(|incarnation| !self.orphans.ends(Life { node, incarnation })) {
            return;
        }
        if !has_left {
            self.note_failure(node, incarnation.unwrap_or_default());
            self.orphans.is_away(self.now.instant, self.had.latest_stamp(self.now), node);
        }
        self.open_all_fences(node);
        let mut successors = self.peers.get(&node).map(|peer| peer.backups.clone()).unwrap_or_default();
        if self.replicas.has_whole(node) && !successors.contains(&self.config.node) {
            successors.push(self.config.node);
        }
        let (strays, entries) = self.take_strays(node);
        let before = self.note_members();
        self.reunions.departs(self.now.instant, node, incarnation.filter(|_| !has_left));
        let lives = |successor: &NodeId| self.ring.binary_search(successor).is_ok();
        let heir = successors.iter().copied().find(lives);
        let has_successor = heir.is_some();
        let life = incarnation.map(|incarnation| Life { node, incarnation });
        let is_kept = has_successor || !has_left;
        let life = life.filter(|_| is_kept);
        let is_taken = life.is_some_and(|life| self.orphans.is_taken(life, self.now.instant));
        if is_taken {
            successors.clear();
        }
        let has_successor = has_successor && !is_taken;
        if life.is_some() && has_successor {
            self.acks.orphan(node, entries.into_iter());
        } else {
            let accepted = &mut self.accepted;
            for entry in entries {
                self.acks.arrived(entry, |shard, ticket, reason| note(accepted, shard, ticket, reason));
            }
        }
        let was_met = self.peers.get(&node).is_some_and(|peer| peer.incarnation == incarnation);
        self.drop_link(node);
        self.forget_peer(node);
        self.tell_closed_topics();
        let late = if is_taken { strays.clone() } else { Vec::new() };
        if let Some(life) = life {
            self.orphan(life, successors, strays);
        }
        if self.successor_of(node) == Some(self.config.node) {
            self.take_over(node);
        } else if life.is_none() || !has_successor {
            self.replicas.forget(node);
        }
        self.overlay.handle(self.now, Input::NeighbourDown { node, gone: true });
        self.overlay.handle(self.now, Input::MemberDown { node });
        self.drain_overlay();
        // A successor has the node's sessions already, and did not hear of these.
        for stray in late.into_iter().filter(|stray| stray.plain) {
            self.publish_for(&stray.message);
        }
        // A successor owns the sessions that it takes over before it says that it has registered all its sessions.
        self.orphans_without();
        self.reclaim_from(node, heir);
        if let Some(life) = life {
            self.give_early(life);
        }
        self.register_moved(&before);
        self.claims_without(node, if was_met { Silence::Gone } else { Silence::Unmet });
        self.answer_early();
        self.answer_keepers();
        self.takeovers_without(node);
        self.reunions_without(node);
        self.kicks_without(node);
        self.asks_without(node);
        self.choose_backups();
        self.tell_serving_to_guests();
    }

    fn forget_peer(&mut self, node: NodeId) {
        self.wanted.remove(&node);
        self.peers.remove(&node);
        self.copies.unreached.forget(node);
        self.out_of_reach.forget(node);
        self.marks.forget(Source::Link(node));
        self.marks.forget(Source::Stream(node));
        self.relay_without(node);
        self.directory.home.purge(node);
    }

    /// Publications that were on their way to a node that is gone, straight or over others, and the entries that wait for relayed ones.
    pub(in crate::node) fn take_strays(&mut self, node: NodeId) -> (Vec<Stray>, Vec<u64>) {
        let straight = self.links.publications_for(node).filter(|publication| publication.waybill.is_none());
        let strays = straight.filter(|publication| publication.message.qos > QoS::AtMostOnce);
        let strays: Vec<Stray> = strays.map(stray_of).collect();
        let former = self.links.take_former(node).into_iter().filter(|publication| publication.waybill.is_none());
        let mut strays: Vec<Stray> = former.map(|publication| stray_of(&publication)).chain(strays).collect();
        let mut relayed = self.relay.outgoing.take(node);
        relayed.extend(self.relay.asking.forget(node));
        let plain = relayed.iter().filter(|open| open.plain);
        strays.extend(plain.map(|open| Stray { message: Arc::clone(&open.message), plain: true, groups: Vec::new() }));
        (strays, relayed.into_iter().filter_map(|open| open.entry).collect())
    }
}

fn stray_of(publication: &Publication) -> Stray {
    let Publication { message, plain, groups, .. } = publication;
    Stray { message: Arc::clone(message), plain: *plain, groups: groups.to_vec() }
}

pub(in crate::node) fn note(
    accepted: &mut [Vec<(Ticket, ReasonCode)>],
    shard: ShardId,
    ticket: Ticket,
    reason: ReasonCode,
) {
    if let Some(accepted) = accepted.get_mut(usize::from(shard.0)) {
        accepted.push((ticket, reason));
    }
}
