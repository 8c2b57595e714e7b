//! TLS of one connection. The session of `rustls` keeps no buffers: ciphertext is decrypted where it was read, and only an
//! incomplete record is kept until the rest of it comes, so that an idle connection holds no more than its keys.

use std::sync::Arc;

use bytes::{Buf as _, BytesMut};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus};

use super::{Fault, Flow};

/// Most bytes of records that are kept because they are not complete: a handshake message may have 64 KiB.
const INCOMPLETE_BYTES_MAX: usize = 160 * 1024;
/// Bytes of a record of 16 KiB beside its content: header, content type and tag, and an initial vector in TLS 1.2.
const RECORD_EXTRA: usize = 40;
const RECORD_BYTES: usize = 16 * 1024;

/// The session.
pub(super) struct Tls {
    session: Box<UnbufferedServerConnection>,
    /// Records that are not complete.
    incoming: BytesMut,
    ended: bool,
    /// The session has failed: it is asked for nothing more.
    broken: bool,
}

/// The next task, as soon as the session is ready for it.
enum Task<'a> {
    Nothing,
    Encrypt(&'a [u8]),
    Finish,
}

impl Tls {
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let session = Box::new(UnbufferedServerConnection::new(config)?);
        Ok(Self { session, incoming: BytesMut::new(), ended: false, broken: false })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.session.is_handshaking()
    }

    /// The certificate that the client has shown and proven to own.
    pub(super) fn client_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.session.peer_certificates()?.first()
    }

    /// Takes records: their content is appended to `plain`, the answer of the handshake to `out`.
    pub(super) fn receive(&mut self, bytes: BytesMut, plain: &mut BytesMut, out: &mut BytesMut) -> Result<Flow, Fault> {
        if self.incoming.is_empty() {
            self.incoming = bytes;
        } else {
            self.incoming.extend_from_slice(&bytes);
        }
        self.run(Task::Nothing, plain, out).map_err(Fault::Tls)?;
        if self.incoming.len() > INCOMPLETE_BYTES_MAX {
            return Err(Fault::Tls(rustls::Error::General("a message of the handshake that is too long".to_owned())));
        }
        // A copy: the rest of a record must not keep the whole read buffer alive.
        self.incoming = BytesMut::from(&self.incoming[..]);
        Ok(if self.ended { Flow::End } else { Flow::Open })
    }

    /// Encrypts `data` behind what is in `out`.
    pub(super) fn encrypt(&mut self, data: &[u8], out: &mut BytesMut) -> Result<(), Fault> {
        self.run(Task::Encrypt(data), &mut BytesMut::new(), out).map_err(Fault::Tls)
    }

    /// Says that nothing more comes.
    pub(super) fn finish(&mut self, out: &mut BytesMut) {
        // A connection that is broken already has nothing to say.
        let _ = self.run(Task::Finish, &mut BytesMut::new(), out);
    }

    /// Lets the session go on until it wants more bytes.
    fn run(&mut self, task: Task<'_>, plain: &mut BytesMut, out: &mut BytesMut) -> Result<(), rustls::Error> {
        if self.broken {
            return Err(rustls::Error::HandshakeNotComplete);
        }
        let result = self.steps(task, plain, out);
        if result.is_err() {
            self.broken = true;
            // One step more gives the alert that tells the client why; another would process what is wrong once more.
            let UnbufferedStatus { state, .. } = self.session.process_tls_records(&mut self.incoming);
            if let Ok(ConnectionState::EncodeTlsData(mut alert)) = state {
                append(out, 64, |room| alert.encode(room));
            }
        }
        result
    }

    fn steps(&mut self, mut task: Task<'_>, plain: &mut BytesMut, out: &mut BytesMut) -> Result<(), rustls::Error> {
        loop {
            let UnbufferedStatus { mut discard, state } = self.session.process_tls_records(&mut self.incoming);
            let done = match state {
                Err(error) => Some(Err(error)),
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                    None
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(out, 1024, |room| data.encode(room));
                    None
                }
                Ok(ConnectionState::TransmitTlsData(sent)) => {
                    sent.done();
                    None
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    match std::mem::replace(&mut task, Task::Nothing) {
                        Task::Nothing => {}
                        Task::Encrypt(data) => {
                            let room = data.len() + (data.len() / RECORD_BYTES + 1) * RECORD_EXTRA;
                            append(out, room, |room| traffic.encrypt(data, room));
                        }
                        Task::Finish => append(out, RECORD_EXTRA, |room| traffic.queue_close_notify(room)),
                    }
                    Some(Ok(()))
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.ended = true;
                    None
                }
                Ok(ConnectionState::Closed) => {
                    self.ended = true;
                    Some(Ok(()))
                }
                // Early data is not offered, and what other states there may be want nothing from us.
                Ok(_) => Some(Ok(())),
            };
            self.incoming.advance(discard.min(self.incoming.len()));
            if let Some(done) = done {
                return done;
            }
        }
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("handshaking", &self.session.is_handshaking()).finish_non_exhaustive()
    }
}

/// The two errors that ask for more room.
trait AsksForRoom {
    fn wanted(&self) -> Option<usize>;
}

impl AsksForRoom for EncodeError {
    fn wanted(&self) -> Option<usize> {
        match self {
            Self::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
            Self::AlreadyEncoded => None,
        }
    }
}

impl AsksForRoom for EncryptError {
    fn wanted(&self) -> Option<usize> {
        match self {
            Self::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
            Self::EncryptExhausted => None,
        }
    }
}

/// Lets `write` fill `room` bytes behind what is in `out`, or as many as it asks for.
fn append<E: AsksForRoom>(out: &mut BytesMut, room: usize, mut write: impl FnMut(&mut [u8]) -> Result<usize, E>) {
    let before = out.len();
    let mut room = room;
    let written = loop {
        out.resize(before + room, 0);
        match write(out.get_mut(before..).unwrap_or_default()) {
            Ok(written) => break written,
            Err(error) => match error.wanted().filter(|wanted| *wanted > room) {
                Some(wanted) => room = wanted,
                None => break 0,
            },
        }
    };
    out.truncate(before + written);
}
