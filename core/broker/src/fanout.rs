//! From one message to the sessions that get it.

use std::collections::BTreeSet;
use std::sync::Arc;

use sedge_base::{ClientId, Now};
use sedge_mqtt::{Message, QoS, TopicFilter, TopicName};

use crate::access::may_receive;
use crate::outgoing::{Buffer, Copies, Ids, Outgoing};
use crate::room::Room;
use crate::send::{Encoded, Env, Link};
use crate::session::{Session, SessionKey};
use crate::subscription::Granted;
use crate::{BounceReason, Broker, Deliver, Output};

/// One receiver of a message.
#[derive(Debug)]
struct Receiver {
    session: SessionKey,
    qos: QoS,
    retain_as_published: bool,
    ids: Ids,
}

/// Memory that one fan-out needs, kept for the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    receivers: Vec<Receiver>,
    encoded: Encoded,
    /// Number of the fan-out: marks the sessions it has found.
    pass: u64,
}

impl Broker {
    /// A message of another shard or node, or the share of a group that was chosen here.
    pub(crate) fn deliver(&mut self, deliver: Deliver) {
        let Deliver { message, plain, groups } = deliver;
        self.clock.observe(message.stamp);
        if plain {
            self.fan_out(&message, Buffer::Read);
        }
        for group in groups {
            self.deliver_to_group(&message, group);
        }
    }

    /// A message of another node for the ordinary subscriptions of these clients: the others did not want it when it was published.
    pub fn deliver_to_some(&mut self, now: Now, message: &Arc<Message>, clients: &BTreeSet<ClientId>) {
        self.now = now;
        self.clock.observe(message.stamp);
        self.fan_out_where(message, |session| clients.contains(&session.client));
    }

    /// A message of another node for the ordinary subscriptions of all clients but these, who had it in a former life of this node.
    pub fn deliver_to_others(&mut self, now: Now, message: &Arc<Message>, clients: &BTreeSet<ClientId>) {
        self.now = now;
        self.clock.observe(message.stamp);
        self.fan_out_where(message, |session| !clients.contains(&session.client));
    }

    /// Delivers to the ordinary subscriptions that match; says whether there is one.
    pub(crate) fn fan_out(&mut self, message: &Arc<Message>, buffer: Buffer) -> bool {
        if self.tracer.is_some() {
            self.trace_fan_out(message);
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        self.find_receivers(message, &mut scratch);
        let matched = !scratch.receivers.is_empty();
        let many = scratch.receivers.len() > 1;
        let mut copies = Copies::default();
        for receiver in scratch.receivers.drain(..) {
            let encoded = if many { Some(&mut scratch.encoded) } else { None };
            self.deliver_to((message, buffer), receiver, &mut copies, encoded);
        }
        if many {
            scratch.encoded.clear();
        }
        self.scratch = scratch;
        matched
    }

    /// Delivers to one session only, if one of its ordinary subscriptions matches. Whoever asks for it notes it for traces.
    pub(crate) fn fan_out_to(&mut self, session: &ClientId, message: &Arc<Message>) {
        self.fan_out_untraced(message, |receiver| receiver.client == *session);
    }

    fn fan_out_where(&mut self, message: &Arc<Message>, gets_it: impl Fn(&Session) -> bool) {
        if self.tracer.is_some() {
            self.trace_fan_out(message);
        }
        self.fan_out_untraced(message, gets_it);
    }

    fn fan_out_untraced(&mut self, message: &Arc<Message>, gets_it: impl Fn(&Session) -> bool) {
        let mut scratch = core::mem::take(&mut self.scratch);
        self.find_receivers(message, &mut scratch);
        for receiver in scratch.receivers.drain(..) {
            if self.sessions.get(receiver.session).is_some_and(|session| gets_it(session)) {
                self.deliver_to((message, Buffer::Read), receiver, &mut Copies::default(), None);
            }
        }
        self.scratch = scratch;
    }

    /// Lists the sessions with a matching subscription, each once: with overlapping subscriptions the highest QoS and all
    /// identifiers count (MQTT 5.0 section 3.3.4).
    fn find_receivers(&mut self, message: &Message, scratch: &mut Scratch) {
        scratch.pass += 1;
        let pass = scratch.pass;
        let (sessions, receivers) = (&mut self.sessions, &mut scratch.receivers);
        let (rules, refused) = (self.policy.rules.as_deref(), &mut self.counters.dropped.not_authorized);
        self.subscriptions.matches(&message.topic, |&key, granted: &Granted| {
            let Some(session) = sessions.get_mut(key) else { return };
            if granted.no_local && message.publisher.as_ref() == Some(&session.client) {
                return;
            }
            if granted.checked && !may_receive(rules, session, &message.topic) {
                *refused += 1;
                return;
            }
            if session.mark == pass {
                if let Some(receiver) = receivers.get_mut(session.place as usize) {
                    receiver.qos = receiver.qos.max(granted.qos);
                    receiver.retain_as_published |= granted.retain_as_published;
                    receiver.ids.add(granted.id);
                }
                return;
            }
            session.mark = pass;
            session.place = u32::try_from(receivers.len()).unwrap_or(u32::MAX);
            let Granted { id, qos, no_local: _, retain_as_published, checked: _ } = *granted;
            receivers.push(Receiver { session: key, qos, retain_as_published, ids: Ids::One(id) });
        });
    }

    fn deliver_to(
        &mut self,
        (message, buffer): (&Arc<Message>, Buffer),
        receiver: Receiver,
        copies: &mut Copies,
        encoded: Option<&mut Encoded>,
    ) {
        let qos = message.qos.min(receiver.qos);
        if self.merged.has(receiver.session, message.id) {
            return;
        }
        let Some(mut link) = self.link(receiver.session) else { return };
        let retain = receiver.retain_as_published && message.retain;
        let outgoing = Outgoing { message: Arc::clone(message), ids: receiver.ids, group: 0, qos, retain, buffer };
        if let Some(connection) = &mut link.connection
            && message.retain
            && !connection.requests.is_empty()
        {
            connection.remember(message);
        }
        link.offer(outgoing, None, encoded, copies);
    }

    /// Delivers to one member of a shared subscription: a connected one with room, else a connected one, else one that is
    /// away. Without members the message goes back.
    pub(crate) fn deliver_to_group(&mut self, message: &Arc<Message>, filter: TopicFilter) {
        let Some((member, granted, number)) = self.choose_member(message, &filter) else {
            self.counters.bounced += 1;
            self.outputs.push_back(Output::Bounced {
                message: Arc::clone(message),
                group: filter,
                reason: BounceReason::NoMember,
            });
            return;
        };
        if self.tracer.is_some() {
            self.trace_group(message, &filter, member);
        }
        let Some(mut link) = self.link(member) else { return };
        let outgoing = Outgoing {
            message: Arc::clone(message),
            ids: Ids::One(granted.id),
            group: number,
            qos: message.qos.min(granted.qos),
            retain: granted.retain_as_published && message.retain,
            buffer: Buffer::Read,
        };
        link.offer(outgoing, Some(&filter), None, &mut Copies::default());
    }

    fn choose_member(&mut self, message: &Message, filter: &TopicFilter) -> Option<(SessionKey, Granted, u32)> {
        let size = message.payload.len() + message.topic.as_bytes().len() + 64;
        let (index, key, granted) = self.best_member((&message.topic, message.qos, size), filter)?;
        let group = self.groups.get_mut(filter)?;
        group.next = (index + 1) % group.members.len();
        Some((key, granted, group.number))
    }

    /// The member of a shared subscription whose turn it is, for a message of `size` bytes: its place in the group, and what it was granted.
    pub(crate) fn best_member(
        &self,
        (topic, qos, size): (&TopicName, QoS, usize),
        filter: &TopicFilter,
    ) -> Option<(usize, SessionKey, Granted)> {
        let group = self.groups.get(filter)?;
        let (mut best, mut best_rank) = (None, 0);
        let count = group.members.len();
        for turn in 0..count {
            let index = (group.next + turn) % count;
            let (key, granted) = group.members[index];
            let Some(session) = self.sessions.get(key) else { continue };
            if granted.checked && !may_receive(self.policy.rules.as_deref(), session, topic) {
                continue;
            }
            let connection = session.connection.and_then(|key| self.connections.get(key));
            let shared = Room::of(&self.config, session, connection);
            let room = session.queue.has_room(size, shared, &self.counters);
            let qos = qos.min(granted.qos);
            let rank = match connection {
                Some(connection)
                    if crate::send::may_send(session, connection, (qos, size), (&self.config, &self.counters)) =>
                {
                    4
                }
                Some(_) if room => 3,
                None if room && (qos != QoS::AtMostOnce || self.config.queue_qos0_offline) => 2,
                Some(_) | None => 1,
            };
            if rank > best_rank {
                (best, best_rank) = (Some((index, key, granted)), rank);
            }
            if rank == 4 {
                break;
            }
        }
        best
    }

    /// A session with its live connection, ready for sending.
    pub(crate) fn link(&mut self, key: SessionKey) -> Option<Link<'_>> {
        let session = self.sessions.get_mut(key)?;
        let connection = session.connection.and_then(|key| self.connections.get_mut(key));
        let env = Env {
            config: &self.config,
            counters: &mut self.counters,
            outputs: &mut self.outputs,
            buffers: &mut self.buffers,
            chunks: &mut self.chunks,
            journal: self.journal.as_deref_mut(),
            tracer: self.tracer.as_deref_mut(),
            sampler: &mut self.sampled_deliveries,
            now: self.now,
        };
        Some(Link { session, connection, env })
    }
}
