//! Encrypted connections: the value that ties the proofs of a handshake to the connection that they are made over
//! (`docs/protocol/link.md`, "Encryption").
//!
//! The driver encrypts; this machine sees plain bytes. It is told a value that only the two ends of the encrypted connection
//! share, and both prove the cluster key over it: a node in the middle of two connections has two different values.

use core::fmt;

use sedge_base::Instant;

use super::closing::{Farewell, INSECURE};
use super::conn::Stage;
use super::links::Links;
use super::notices::Kind;
use crate::LinkId;

/// First byte of a TLS connection (RFC 8446 section 5.1, a handshake record); no MQTT packet that opens one begins with it.
const TLS_HANDSHAKE: u8 = 22;

/// The channel binding `tls-exporter` of a TLS 1.3 connection (RFC 9266).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Binding(pub [u8; 32]);

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Binding(***)")
    }
}

impl Links {
    /// The connection is encrypted from here on. To be told before [`Links::dialled`], and before the first bytes of an accepted one.
    pub fn secured(&mut self, link: LinkId, binding: Binding) {
        if let Some(conn) = self.conns.get_mut(&link) {
            conn.binding = Some(binding);
        }
    }

    /// The connection cannot be encrypted, or the other side cannot be trusted, and is gone. `why` in a few words.
    pub fn insecure(&mut self, now: Instant, link: LinkId, why: &str) {
        let Some(conn) = self.conns.get(&link) else { return };
        let (addr, node) = (conn.peer_addr, conn.node);
        let who = node.map_or_else(|| addr.to_string(), |node| format!("node {node} at {addr}"));
        self.counters.auth_failures += 1;
        self.warn(now, Kind::Encryption, || format!("no encrypted link with {who}: {why}"));
        if let Some(node) = node {
            self.distrust(now, node);
        }
        self.close(now, link, Farewell::Gone, INSECURE.to_owned());
    }

    /// Whether an accepted connection begins with TLS that this node is not set to. Ends it then.
    pub(super) fn is_foreign_tls(&mut self, now: Instant, link: LinkId, bytes: &[u8]) -> bool {
        let Some(conn) = self.conns.get(&link) else { return false };
        if bytes.first() != Some(&TLS_HANDSHAKE) || conn.binding.is_some() || conn.has_read {
            return false;
        }
        if !matches!(conn.stage, Stage::AwaitConnect) {
            return false;
        }
        self.insecure(
            now,
            link,
            "it wants one, this node has plain links; set cluster.key and cluster.encryption alike on all nodes",
        );
        true
    }
}
