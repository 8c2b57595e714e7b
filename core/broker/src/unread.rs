//! Publications that count as not read, because nobody outside the process knows of them and others may have got them from their publishers
//! meanwhile (FT-21, MQ-06).

use std::collections::BTreeSet;

use sedge_base::{ConnId, Now};
use sedge_mqtt::MessageId;

use crate::disconnect::Ending;
use crate::journal::kept;
use crate::session::{Session, session_of};
use crate::{Broker, Ticket};

impl Broker {
    /// The process stood still: the broker takes no packet of a client, not even one that it has in memory, until [`Broker::go_on`]. The client
    /// may have gone on at another node meanwhile, and have sent the same packets there.
    pub const fn stand_still(&mut self) {
        self.stands_still = true;
    }

    /// The clients that are still connected have gone on nowhere else: the broker takes their packets again, those in memory first.
    pub fn go_on(&mut self, now: Now) {
        self.now = now;
        if !core::mem::take(&mut self.stands_still) {
            return;
        }
        for key in self.connections.iter().map(|(key, _)| key).collect::<Vec<_>>() {
            let session = self.connections.get(key).and_then(|connection| connection.session);
            let is_held = |session| self.sessions.get(session).is_some_and(|session| session.is_held);
            if let Some(session) = session.filter(|session| self.parked.contains_key(&key) && !is_held(*session)) {
                self.unpark(session);
            }
            self.process(key);
        }
    }

    /// The others took this node for dead: every connection ends without a word, and the bytes that wait for it are lost. `had_copies`: others have
    /// copies of the sessions, and publish their wills. Returns the connections that have ended.
    pub fn taken_for_dead(&mut self, now: Now, had_copies: bool) -> Vec<ConnId> {
        self.now = now;
        if had_copies {
            for key in 0..self.sessions.capacity() {
                self.drop_will(key);
            }
        }
        let ended: Vec<_> = self.connections.iter().map(|(key, connection)| (key, connection.id)).collect();
        for (key, _) in &ended {
            self.end_connection(*key, Ending::taken_for_dead());
        }
        ended.into_iter().map(|(_, conn)| conn).collect()
    }

    /// The broker forgets these QoS 2 publications of its clients, and what its sessions were given of them. The connections of their
    /// publishers end without a word, and so do `conns`, which may have been given something of them; bytes that wait for those are
    /// lost. A publisher that still wants its publication to be taken sends it again. Returns the connections that have ended.
    pub fn unread(
        &mut self,
        now: Now,
        publications: &[(Ticket, MessageId)],
        mut conns: BTreeSet<ConnId>,
    ) -> BTreeSet<ConnId> {
        self.now = now;
        for (ticket, _) in publications {
            let key = self.publisher(*ticket).and_then(|session| session.connection);
            conns.extend(key.and_then(|key| self.connections.get(key)).map(|connection| connection.id));
        }
        for conn in &conns {
            self.on_closed(*conn);
        }
        for (ticket, id) in publications {
            self.forget_received(*ticket);
            self.forget_awaited(*id);
        }
        let ids: BTreeSet<MessageId> = publications.iter().map(|(_, id)| *id).collect();
        for key in 0..self.sessions.capacity() {
            self.forget_taken(key, &ids);
        }
        conns
    }

    /// The session that a ticket was handed out for, if it is here still.
    fn publisher(&mut self, ticket: Ticket) -> Option<&mut Session> {
        let (key, generation) = session_of(ticket)?;
        self.sessions.get_mut(key).map(Box::as_mut).filter(|session| session.generation == generation)
    }

    fn forget_received(&mut self, ticket: Ticket) {
        let Some((key, _)) = session_of(ticket) else { return };
        let received = self.publisher(ticket).and_then(|session| session.inbound.as_mut()?.unread(ticket.number));
        if let Some(packet_id) = received
            && let Some(session) = self.sessions.get(key)
            && let Some((journal, session)) = kept(self.journal.as_deref_mut(), session)
        {
            journal.forgotten(session, packet_id);
        }
    }
}
