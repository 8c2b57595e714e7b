//! The encrypted connection of one link.

use std::io::{BufRead as _, ErrorKind, IoSlice, Write};

use bytes::BytesMut;
use rustls::{Connection, Error};
use sedge_base::Outbox;
use sedge_cluster::link::Binding;

use crate::runtime::Departure;

/// Most bytes that wait below the outbox, encrypted or to be: as many as one write of a plain link takes.
const BUFFERED_BYTES_MAX: usize = 1024 * 1024;
/// Pieces of an outbox looked at in one go.
const PIECES_MAX: usize = 64;
/// Label of the value that only the two ends share (RFC 9266).
const EXPORTER: &[u8] = b"EXPORTER-Channel-Binding";

/// See the module. Of the two interfaces of `rustls` this is the one that can export keying material.
pub(crate) struct Secured {
    session: Box<Connection>,
    is_open: bool,
}

impl Secured {
    pub(super) fn new(mut session: Connection) -> Self {
        session.set_buffer_limit(Some(BUFFERED_BYTES_MAX));
        Self { session: Box::new(session), is_open: false }
    }

    /// Takes what came from the socket, appends what it holds to `plain`, and says whether the other side has said its last word.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], plain: &mut BytesMut) -> Result<bool, Error> {
        let mut has_ended = false;
        while !bytes.is_empty() && !has_ended {
            // The session takes a few kilobytes at a time, and says that it is full when it has a record.
            let before = bytes.len();
            while !bytes.is_empty() {
                match self.session.read_tls(&mut bytes) {
                    Ok(0) => return Ok(true),
                    Ok(_) => {}
                    Err(_) if bytes.len() < before => break,
                    Err(error) => return Err(Error::General(error.to_string())),
                }
            }
            has_ended = self.session.process_new_packets()?.peer_has_closed();
            let mut reader = self.session.reader();
            while let Ok(piece) = reader.fill_buf() {
                if piece.is_empty() {
                    break;
                }
                plain.extend_from_slice(piece);
                let length = piece.len();
                reader.consume(length);
            }
        }
        Ok(has_ended)
    }

    /// Once, when the handshake is over: a secret that only the two ends of this connection share.
    pub(crate) fn opened(&mut self) -> Result<Option<Binding>, Error> {
        if self.is_open || self.session.is_handshaking() {
            return Ok(None);
        }
        self.is_open = true;
        self.session.export_keying_material([0; 32], EXPORTER, None).map(|value| Some(Binding(value)))
    }

    /// Whether something waits for the socket.
    pub(crate) fn has_output(&self) -> bool {
        self.session.wants_write()
    }

    /// Encrypts the front of `outbox`, at most `limit` bytes, and writes as much as the socket takes. Says how much of the outbox
    /// was taken.
    pub(crate) fn write(&mut self, to: &mut impl Write, outbox: Option<&Outbox>, limit: usize) -> Departure {
        let mut taken = 0;
        if let Some(outbox) = outbox.filter(|_| self.is_open && !self.session.wants_write()) {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let filled = outbox.io_slices_up_to(limit, &mut slices);
            match self.session.writer().write_vectored(slices.get(..filled).unwrap_or_default()) {
                Ok(bytes) => taken = bytes,
                Err(_) => return Departure::Broken,
            }
        }
        while self.session.wants_write() {
            match self.session.write_tls(to) {
                Ok(0) => return Departure::Broken,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Departure::Written(taken, false),
                Err(_) => return Departure::Broken,
            }
        }
        Departure::Written(taken, true)
    }

    /// Says that nothing more comes.
    pub(crate) fn finish(&mut self) {
        self.session.send_close_notify();
    }
}

impl std::fmt::Debug for Secured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secured").field("is_open", &self.is_open).finish_non_exhaustive()
    }
}

/// A failure in words that an operator can do something with.
pub(crate) fn explain(error: &Error) -> String {
    let is_certificate = matches!(error, Error::InvalidCertificate(_) | Error::NoCertificatesPresented);
    let is_mixture =
        matches!(error, Error::InvalidMessage(_) | Error::PeerIncompatible(_) | Error::InappropriateMessage { .. });
    if is_certificate {
        format!("its certificate is not accepted here (TLS: {error})")
    } else if is_mixture {
        format!("set cluster.key, cluster.encryption and cluster.cert_file alike on all nodes (TLS: {error})")
    } else if matches!(error, Error::AlertReceived(_)) {
        format!("the other side has ended the TLS handshake; its log says why (TLS: {error})")
    } else {
        format!("TLS: {error}")
    }
}
