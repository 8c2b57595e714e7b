//! The sidecar reads the bytes that come from the broker, at once or later.
//!
//! Retained messages, and publications of clients that are connected to the broker only, come as fast as the broker sends. Where a client has no
//! room for more of them, its conversation is not read ([`crate::Input::Hold`]): the broker keeps them, as for any client that reads slowly.

use bytes::Bytes;
use sedge_base::{ClientId, Now};
use sedge_mqtt::Version;

use crate::conversation::{Key, Phase, Reading};
use crate::expected::RECOGNISED;
use crate::{Event, LinkId, Output, Sidecar};

/// Deliveries that do not come from this node and are read before the owner may stop the reading.
const FOREIGN_AT_ONCE: u64 = 16;
/// A conversation is not held any longer when so many deliveries are expected, or would be repeated ones: what the client has no room for is
/// dropped by the rules of its queue then.
const HELD_ENTRIES_MAX: usize = 10_000;

impl Sidecar {
    pub(crate) fn on_received(&mut self, link: LinkId, bytes: Bytes) {
        let Some(key) = self.conversation_of(link) else { return };
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        conversation.last_heard = self.now.instant;
        conversation.pinged = None;
        conversation.hangs_since = None;
        conversation.decoder.feed(bytes);
        if conversation.reading != Reading::Held {
            self.read_some(key, link);
        }
    }

    /// Reads packets of a connection, and few deliveries that do not come from this node: the owner may stop the reading between them.
    pub(crate) fn read_some(&mut self, key: Key, link: LinkId) {
        let foreign = self.counters.foreign;
        loop {
            let is_enough = self.counters.foreign >= foreign + FOREIGN_AT_ONCE;
            let Some(conversation) = self.conversations.get_mut(key) else { return };
            if conversation.link != Some(link) {
                return;
            }
            if is_enough {
                conversation.reading = Reading::Later;
                self.unread.insert(key);
                return;
            }
            match conversation.decoder.next() {
                Ok(Some(packet)) => self.on_packet(key, packet),
                Ok(None) => return,
                Err(error) => {
                    // A 3.1.1 broker answers a 5.0 CONNECT with a CONNACK of its own version.
                    if conversation.phase == Phase::Greeting && conversation.version == Version::V5 && !self.has_v5 {
                        return self.fall_back(key);
                    }
                    self.outputs.push_back(Output::Event(Event::Garbage(error.to_string())));
                    return self.fail(key, &format!("the broker breaks the rules of MQTT: {error}"));
                }
            }
        }
    }

    /// Goes on reading where [`Input::Received`](crate::Input::Received) has left something; says whether there was something. To be called once all
    /// outputs are carried out.
    pub fn read_on(&mut self, now: Now) -> bool {
        self.now = now;
        let Some(key) = self.unread.pop_first() else { return false };
        let Some(conversation) = self.conversations.get_mut(key) else { return true };
        if let (Reading::Later, Some(link)) = (conversation.reading, conversation.link) {
            conversation.reading = Reading::Now;
            self.read_some(key, link);
        }
        true
    }

    pub(crate) fn on_hold(&mut self, client: &ClientId, held: bool) {
        let Some(&key) = self.clients.get(client) else { return };
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let entries = conversation.expected.as_ref().map_or(0, |expected| expected.entries());
        let is_held = conversation.reading == Reading::Held;
        match conversation.link {
            Some(link) if held && !is_held && entries < HELD_ENTRIES_MAX / 2 => {
                conversation.reading = Reading::Held;
                self.counters.holds += 1;
                // The broker's answers may wait unread: nobody takes the connection for dead.
                let waiting = conversation.pings.iter_mut().filter_map(Option::take);
                self.outputs.extend(waiting.map(Output::Ponged));
                self.outputs.push_back(Output::Hold(link, true));
            }
            Some(_) if !held && is_held => self.release(key),
            Some(_) | None => {}
        }
    }

    /// A conversation is read again. What has come meanwhile is recognised, however long that took.
    fn release(&mut self, key: Key) {
        let until = self.now.instant + RECOGNISED;
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        conversation.reading = Reading::Later;
        conversation.behind_until = until;
        conversation.last_heard = self.now.instant;
        conversation.hangs_since = None;
        if let Some(expected) = &mut conversation.expected {
            expected.recognise_until(until);
        }
        let link = conversation.link;
        self.unread.insert(key);
        self.outputs.extend(link.map(|link| Output::Hold(link, false)));
    }

    /// A conversation owes deliveries that may wait unread, since it is held or was until just now. The client gets the copies here, as from a broker
    /// that hangs. False for any other conversation.
    pub(crate) fn cover_held(&mut self, key: Key) -> bool {
        let now = self.now.instant;
        let Some(conversation) = self.conversations.get_mut(key) else { return false };
        let is_held = conversation.reading == Reading::Held;
        if !is_held && conversation.behind_until <= now {
            return false;
        }
        if is_held {
            conversation.hangs_since.get_or_insert(now);
        }
        if let Some(expected) = &mut conversation.expected {
            expected.recognise_until(now + RECOGNISED);
        }
        self.cover(key);
        let entries =
            self.conversations.get(key).and_then(|found| found.expected.as_ref()).map_or(0, |all| all.entries());
        if is_held && entries >= HELD_ENTRIES_MAX {
            self.release(key);
        }
        true
    }
}
