//! Publications that count as not read, because nobody outside the process knows of them and others may have got them from their publishers
//! meanwhile (FT-21, MQ-06).

use std::collections::BTreeSet;

use sedge_base::{ConnId, Now};
use sedge_mqtt::MessageId;

use crate::journal::kept;
use crate::session::{Session, session_of};
use crate::{Broker, Ticket};

impl Broker {
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
