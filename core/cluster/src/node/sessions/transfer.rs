//! Sessions on their way between nodes, cut into pieces.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sedge_base::{ClientId, NodeId};
use sedge_broker::SessionState;
use sedge_mqtt::Message;

use crate::link::ControlTopic;
use crate::mail::{Known, SessionStep, ToShard};
use crate::node::Node;
use crate::reception::shard_of;
use crate::wire::{Reader, SessionMail, WireError, Writer, read_message, read_session, write_session};

/// Size of a piece.
const PIECE_BYTES: usize = 512 * 1024;
/// Largest session that is put together; a session's own limits are far below.
const MAX_SESSION_BYTES: usize = 512 * 1024 * 1024;

/// Sessions that have come in part, by sender, client, epoch and kind.
#[derive(Debug, Default)]
pub(in crate::node) struct Transfers {
    parts: BTreeMap<(NodeId, ClientId, u64, bool), BytesMut>,
}

impl Transfers {
    /// A node will not send the rest.
    pub(in crate::node) fn purge(&mut self, node: NodeId) {
        self.parts.retain(|(from, ..), _| *from != node);
    }
}

impl Node {
    pub(in crate::node) fn send_session(
        &mut self,
        to: NodeId,
        client: &ClientId,
        epoch: u64,
        session: Option<&SessionState>,
    ) {
        let mut out = Writer::default();
        if let Some(session) = session {
            write_session(&mut out, session);
            self.counters.sessions_sent += 1;
        }
        self.send_parts(to, client, epoch, false, out.finish());
    }

    pub(in crate::node) fn send_parts(
        &mut self,
        to: NodeId,
        client: &ClientId,
        epoch: u64,
        leftovers: bool,
        mut bytes: Bytes,
    ) {
        // A session may be given away before the link to its new owner has ever been up.
        let peer = self.peers.entry(to).or_default();
        loop {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            let last = bytes.is_empty();
            let mail = SessionMail::Part { client: client.clone(), epoch, leftovers, last, bytes: piece };
            peer.push_bulk(ControlTopic::Session, mail.encode(), last);
            if last {
                break;
            }
        }
        self.pump(to);
    }

    pub(in crate::node) fn session_mail(&mut self, from: NodeId, payload: Bytes) -> Result<(), WireError> {
        match SessionMail::decode(payload)? {
            SessionMail::Part { client, epoch, leftovers, last, bytes } => {
                self.session_is_coming(&client);
                let key = (from, client.clone(), epoch, leftovers);
                let parts = &mut self.transfers.parts;
                let whole = if last && !parts.contains_key(&key) {
                    bytes
                } else {
                    let so_far = parts.entry(key.clone()).or_default();
                    if so_far.len() + bytes.len() > MAX_SESSION_BYTES {
                        return Err(WireError("a session too large"));
                    }
                    so_far.extend_from_slice(&bytes);
                    if !last {
                        return Ok(());
                    }
                    parts.remove(&key).unwrap_or_default().freeze()
                };
                if leftovers {
                    let messages = read_leftovers(whole)?;
                    self.leftovers_arrived(from, &client, epoch, messages);
                } else {
                    let session = read_whole(whole)?;
                    self.session_arrived(from, &client, epoch, session.map(Box::new));
                }
            }
            SessionMail::Release { client, epoch, known_to } => self.release_for(client, epoch, known_to),
            SessionMail::Had { client, marks, gaps, fills, came } => {
                self.check_known(2)?;
                self.had.arrives(self.now.instant, from, client.clone(), (&marks, &gaps, fills));
                self.had.came_before_from(from, &client, came);
            }
            SessionMail::Safe { client, epoch } => {
                self.check_known(2)?;
                self.is_safe(from, client, epoch);
            }
            SessionMail::Known(known) => {
                // A node says of a session of its journal that it is of a former life which was taken over.
                if known.from.node == from && known.from != self.life_of(from) {
                    self.claims.early.note_restored(&known.client, from);
                }
                self.knows(from, known);
            }
        }
        Ok(())
    }
}

impl Node {
    /// A session is about to come that goes on from the copy of another node.
    fn knows(&mut self, from: NodeId, known: Known) {
        let client = &known.client;
        if self.claims.owns(client) && !self.claims.wants(client) {
            let of = known.from.node;
            // It is put together with the one here. If its former node lives, that node may have given the one here away later.
            if !self.knows_alive(known.from) {
                self.had.goes_on_beside(client, of, from);
            }
            // The one here does not have what the other one came with, if it leaves ahead of the other one, or came from that node itself, which has had
            // the other one back since.
            let has_come_back = from == of && self.had.came_from(client, of);
            if has_come_back || self.claims.is_leaving(client) {
                return;
            }
        }
        let shard = shard_of(client, self.config.shards);
        self.tell_shard(shard, ToShard::Session(Box::new(SessionStep::Known(known))));
    }
}

fn read_whole(bytes: Bytes) -> Result<Option<SessionState>, WireError> {
    let mut from = Reader::new(bytes);
    if from.is_empty() {
        return Ok(None);
    }
    let session = read_session(&mut from)?;
    from.end()?;
    Ok(Some(session))
}

fn read_leftovers(bytes: Bytes) -> Result<Vec<Arc<Message>>, WireError> {
    let mut from = Reader::new(bytes);
    let messages = from.list(read_message)?;
    from.end()?;
    Ok(messages)
}
