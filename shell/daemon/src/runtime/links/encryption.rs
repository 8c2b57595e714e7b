//! Encrypted links: the handshake before the machine hears of a connection's bytes, and what comes of it.

use std::net::SocketAddr;

use bytes::BytesMut;
use sedge_base::Now;
use sedge_cluster::{LinkId, NodeInput};

use super::{Hub, Phase};
use crate::transport::explain;

/// First byte of a TLS connection (RFC 8446 section 5.1: a handshake record).
const TLS_HANDSHAKE: u8 = 22;
/// Reason that the log gives when the other side goes before the handshake is over.
const HUNG_UP: &str = "it has hung up in the middle of the TLS handshake; set cluster.key, cluster.encryption and cluster.cert_file alike on all nodes";

impl Hub {
    /// Somebody has connected.
    pub(super) fn accepted(&mut self, now: Now, id: LinkId, peer: SocketAddr) {
        self.node.handle(now, NodeInput::LinkAccepted { link: id, peer });
        let session = self.links.tls.as_ref().map(|tls| tls.accept()).transpose();
        match (session, self.links.get_mut(id)) {
            (Ok(session), Some(link)) => link.secured = session,
            (Err(error), _) => self.distrust(now, id, &explain(&error)),
            (Ok(_), None) => {}
        }
    }

    /// A dialled connection stands.
    pub(super) fn dialled(&mut self, now: Now, id: LinkId) {
        let Some(link) = self.links.by_id.get(&id).and_then(|&index| self.links.slots.get_mut(index)) else { return };
        let Some(tls) = &self.links.tls else {
            link.phase = Phase::Up;
            return self.node.handle(now, NodeInput::LinkDialled { link: id });
        };
        let Ok(peer) = link.stream.peer_addr() else { return self.lose(now, id) };
        match tls.dial(peer) {
            Ok(session) => {
                link.phase = Phase::Securing;
                link.secured = Some(session);
                self.links.mark_dirty(id);
            }
            Err(error) => self.distrust(now, id, &explain(&error)),
        }
    }

    /// Bytes came from the socket of a link.
    pub(super) fn took(&mut self, now: Now, id: LinkId, bytes: BytesMut) {
        let Some(link) = self.links.get_mut(id) else { return };
        let is_first = !std::mem::replace(&mut link.has_read, true);
        if is_first && link.phase == Phase::Up && bytes.first() != Some(&TLS_HANDSHAKE) {
            // The machine refuses it in words that the other side understands.
            link.secured = None;
        }
        let Some(secured) = &mut link.secured else {
            return self.node.handle(now, NodeInput::LinkReceived { link: id, bytes: bytes.freeze() });
        };
        let mut plain = BytesMut::new();
        let received = secured.receive(&bytes, &mut plain);
        let opened = secured.opened();
        let (is_dialled, has_output) = (link.phase == Phase::Securing, secured.has_output());
        let (has_ended, binding) = match (received, opened) {
            (Ok(has_ended), Ok(binding)) => (has_ended, binding),
            (Err(error), _) | (_, Err(error)) => return self.distrust(now, id, &explain(&error)),
        };
        if let Some(binding) = binding {
            link.phase = Phase::Up;
            self.node.handle(now, NodeInput::LinkSecured { link: id, binding });
            if is_dialled {
                self.node.handle(now, NodeInput::LinkDialled { link: id });
            }
        }
        if has_output {
            self.links.mark_dirty(id);
        }
        if !plain.is_empty() {
            self.node.handle(now, NodeInput::LinkReceived { link: id, bytes: plain.freeze() });
        }
        if has_ended {
            self.lose(now, id);
        }
    }

    /// Drops a connection that cannot be trusted.
    fn distrust(&mut self, now: Now, id: LinkId, why: &str) {
        let Some(mut link) = self.links.remove(id) else { return };
        if let Some(secured) = &mut link.secured {
            // The alert that tells the other side; it may get lost.
            secured.write(&mut link.stream, None, 0);
        }
        if link.phase != Phase::Closing {
            self.node.handle(now, NodeInput::LinkInsecure { link: id, why: why.to_owned() });
        }
    }

    /// A connection is gone.
    pub(super) fn lose(&mut self, now: Now, id: LinkId) {
        match self.links.remove(id).map(|link| link.phase) {
            None | Some(Phase::Closing) => {}
            Some(Phase::Securing) => {
                self.node.handle(now, NodeInput::LinkInsecure { link: id, why: HUNG_UP.to_owned() });
            }
            Some(Phase::Dialling | Phase::Up) => self.node.handle(now, NodeInput::LinkClosed { link: id }),
        }
    }
}
