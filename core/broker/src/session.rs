//! One client's session (MQTT 5.0 section 4.1).

use sedge_base::{ClientId, Duration, Instant, Timestamp};
use sedge_mqtt::{Version, Will};

use crate::api::TicketKind;
use crate::connection::ConnKey;
use crate::inbound::Inbound;
use crate::inflight::Inflight;
use crate::queue::Queue;
use crate::subscription::Subscriptions;
use crate::{Identity, Ticket};

/// Index of a session in its slab.
pub(crate) type SessionKey = usize;

/// A will and when it is due.
#[derive(Debug)]
pub(crate) struct PendingWill {
    pub(crate) will: Box<Will>,
    /// Set when the connection is lost.
    pub(crate) due: Option<Instant>,
}

/// Everything that the broker keeps of a client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: ClientId,
    pub(crate) epoch: u64,
    /// The epoch of the last connection on which the client had repeated what it had begun elsewhere, before the session was held back, here or
    /// where the session was before; 0: there was none.
    pub(crate) resumed: u64,
    /// Identity of the client; `None` without access rules, or if the client has not been here since the session came from elsewhere.
    pub(crate) identity: Option<Box<Identity>>,
    /// Its connection, from CONNACK on.
    pub(crate) connection: Option<ConnKey>,
    pub(crate) disconnected_at: Timestamp,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) inflight: Inflight,
    pub(crate) queue: Queue,
    pub(crate) inbound: Option<Box<Inbound>>,
    pub(crate) will: Option<Box<PendingWill>>,
    /// When it ends; [`Instant::NEVER`] while it has a connection.
    pub(crate) expires: Instant,
    /// Last fan-out that found this session, and where it is in the list of receivers.
    pub(crate) mark: u64,
    pub(crate) place: u32,
    /// Its number in the journal; 0: it is not there.
    pub(crate) number: u64,
    /// Tells this session from others that had the same key.
    pub(crate) generation: u32,
    /// Seconds the session outlives its connection; `u32::MAX`: for ever.
    pub(crate) expiry_secs: u32,
    pub(crate) version: Version,
    /// Whether a CONNACK was sent for it, here or elsewhere: the next one says that it is present.
    pub(crate) begun: bool,
    /// Whether the journal has its subscriptions and messages, too, and not only its will: it outlives its connection, or other members get
    /// the messages that shared subscriptions chose it for.
    pub(crate) is_kept: bool,
    /// Whether everything waits: see [`crate::Broker::hold`].
    pub(crate) is_held: bool,
}

impl Session {
    /// Whether it may be chosen for messages that others get if it ends.
    pub(crate) fn shares(&self) -> bool {
        self.subscriptions.iter().any(crate::subscription::Subscription::is_shared)
    }

    pub(crate) fn new(client: ClientId, generation: u32) -> Self {
        Self {
            client,
            epoch: 0,
            resumed: 0,
            identity: None,
            connection: None,
            disconnected_at: Timestamp::default(),
            subscriptions: Subscriptions::default(),
            inflight: Inflight::default(),
            queue: Queue::default(),
            inbound: None,
            will: None,
            expires: Instant::NEVER,
            mark: 0,
            place: 0,
            number: 0,
            generation,
            expiry_secs: 0,
            version: Version::V311,
            begun: false,
            is_kept: false,
            is_held: false,
        }
    }

    /// It has no connection: it ends if none comes for this long, unless it outlives all.
    pub(crate) fn expires_in(&mut self, now: Instant, time: Duration) {
        self.expires = if self.expiry_secs == u32::MAX { Instant::NEVER } else { now + time };
    }

    /// A ticket for something this session waits for.
    pub(crate) const fn ticket(&self, key: SessionKey, kind: TicketKind, number: u32) -> Ticket {
        Ticket { session: (self.generation as u64) << 32 | key as u64 & 0xffff_ffff, kind, number }
    }
}

/// Key and generation of the session a ticket was handed out for.
pub(crate) fn session_of(ticket: Ticket) -> Option<(SessionKey, u32)> {
    let key = usize::try_from(ticket.session & 0xffff_ffff).ok()?;
    let generation = u32::try_from(ticket.session >> 32).ok()?;
    Some((key, generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;

    /// MQ-16: with names, timers and the tables' room an idle client costs less than 1 KiB.
    #[test]
    fn sessions_and_connections_are_small() {
        assert!(size_of::<Session>() <= 256, "{}", size_of::<Session>());
        // With what an allocator puts before it, 272 bytes.
        assert!(size_of::<Connection>() <= 264, "{}", size_of::<Connection>());
    }

    #[test]
    fn tickets_name_their_session() {
        let session = Session::new(ClientId::new("a"), u32::MAX);
        assert_eq!(session_of(session.ticket(7, TicketKind::Publish, 1)), Some((7, u32::MAX)));
    }
}
