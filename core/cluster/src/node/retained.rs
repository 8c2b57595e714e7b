//! Retained messages are on every node: the last writer wins, and replicas are compared when nodes meet and now and then.

use bytes::Bytes;
use sedge_base::NodeId;

use super::Node;
use crate::link::ControlTopic;
use crate::wire::{RetainedMail, WireError};

impl Node {
    /// Tells a neighbour what is here; it answers with what is different there.
    pub(super) fn offer_digests(&mut self, to: NodeId, answer: bool) {
        let mail = RetainedMail::Digests { answer, digests: Box::new(*self.retained.digests()) };
        self.send_control(to, ControlTopic::Retained, mail.encode());
    }

    /// Compares with one neighbour, chosen at random.
    pub(super) fn compare_with_someone(&mut self) {
        let linked: Vec<NodeId> =
            self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node).collect();
        if let Some(node) = self.rng.pick(&linked).copied() {
            self.offer_digests(node, true);
        }
    }

    pub(super) fn retained_mail(&mut self, from: NodeId, payload: Bytes) -> Result<(), WireError> {
        match RetainedMail::decode(payload)? {
            RetainedMail::Digests { answer, digests } => {
                let mine = self.retained.digests();
                let differ: Vec<usize> = mine
                    .iter()
                    .zip(digests.iter())
                    .enumerate()
                    .filter(|(_, (a, b))| a != b)
                    .map(|(at, _)| at)
                    .collect();
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.push_retained(differ.into_iter());
                }
                if answer {
                    self.offer_digests(from, false);
                }
                self.pump(from);
            }
            RetainedMail::Messages(messages) => {
                for message in &messages {
                    self.retain(message);
                }
            }
            RetainedMail::Done => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.retained_done = true;
                }
            }
        }
        Ok(())
    }
}
