//! The layers between a socket and MQTT.

use std::io::{ErrorKind, IoSlice, Write};
use std::net::SocketAddr;

use bytes::{Buf as _, Bytes, BytesMut};
use sedge_base::Outbox;

use super::certificates::common_name;
use super::proxy::Preface;
use super::tls::Tls;
use super::websocket::WebSocket;
use super::{Fault, Flow};
use crate::runtime::Departure;

/// Bytes of MQTT that are wrapped in one go, and so the most that waits below the outbox, but for frames and records around it.
const WRAPPED_BYTES_MAX: usize = 64 * 1024;
/// The same for a client that lags behind, a record of TLS (RFC 8446, section 5.1): bytes that wait here do not count toward those that may
/// be held for all clients.
const WRAPPED_BYTES_MAX_SLOW: usize = 16 * 1024;
/// Pieces of an outbox looked at in one go.
const PIECES_MAX: usize = 64;

/// See the module. Those that are there, from the socket upwards.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    proxy: Option<Preface>,
    tls: Option<Tls>,
    websocket: Option<WebSocket>,
    /// Wrapped and not taken by the socket yet.
    out: BytesMut,
    /// The socket has not taken everything since the outbox was empty last.
    slow: bool,
    /// Address of the client that the balancer has named.
    source: Option<SocketAddr>,
    ended: bool,
    finished: bool,
}

impl Layers {
    pub(super) fn new(proxy: Option<Preface>, tls: Option<Tls>, websocket: Option<WebSocket>) -> Self {
        Self { proxy, tls, websocket, ..Self::default() }
    }

    /// Takes what came from the socket; bytes of MQTT go to `into`.
    pub(crate) fn receive(&mut self, bytes: BytesMut, into: &mut Vec<Bytes>) -> Result<Flow, Fault> {
        if self.ended {
            return Ok(Flow::End);
        }
        let result = self.unwrap(bytes, into);
        self.ended = !matches!(result, Ok(Flow::Open));
        result
    }

    fn unwrap(&mut self, mut bytes: BytesMut, into: &mut Vec<Bytes>) -> Result<Flow, Fault> {
        if let Some(proxy) = &mut self.proxy {
            let Some(complete) = proxy.feed(&bytes)? else { return Ok(Flow::Open) };
            self.source = complete.source;
            self.proxy = None;
            bytes = complete.rest;
        }
        let mut flow = Flow::Open;
        if let Some(tls) = &mut self.tls {
            let mut plain = BytesMut::new();
            flow = tls.receive(bytes, &mut plain, &mut self.out)?;
            bytes = plain;
        }
        if bytes.is_empty() {
            return Ok(flow);
        }
        let Some(websocket) = &mut self.websocket else {
            into.push(bytes.freeze());
            return Ok(flow);
        };
        let mut replies = BytesMut::new();
        let above = websocket.receive(bytes, &mut replies, into);
        self.wrap(&replies)?;
        if above? == Flow::End { Ok(Flow::End) } else { Ok(flow) }
    }

    /// Puts bytes that are on top of TLS on their way.
    fn wrap(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match &mut self.tls {
            Some(_) if bytes.is_empty() => Ok(()),
            Some(tls) => tls.encrypt(bytes, &mut self.out),
            None => {
                self.out.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// The client that a balancer has named, once.
    pub(crate) const fn take_source(&mut self) -> Option<SocketAddr> {
        self.source.take()
    }

    /// The certificate that the client has proven to own.
    pub(crate) fn client_certificate(&self) -> Option<&rustls::pki_types::CertificateDer<'static>> {
        self.tls.as_ref().and_then(Tls::client_certificate)
    }

    /// The common name in that certificate.
    pub(crate) fn certificate_name(&self) -> Option<String> {
        self.client_certificate().and_then(common_name)
    }

    /// Whether all handshakes below MQTT are done.
    pub(crate) fn is_open(&self) -> bool {
        self.proxy.is_none()
            && self.tls.as_ref().is_none_or(Tls::is_open)
            && self.websocket.as_ref().is_none_or(WebSocket::is_open)
    }

    /// Whether nothing is left to do: the connection is plain from here on.
    pub(crate) const fn is_spent(&self) -> bool {
        self.proxy.is_none() && self.tls.is_none() && self.websocket.is_none()
    }

    /// Whether the other side has said its last word.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether something waits for the socket.
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Says good-bye in each layer; whether there is something more to write.
    pub(crate) fn finish(&mut self) -> bool {
        if std::mem::replace(&mut self.finished, true) {
            return false;
        }
        if let Some(websocket) = &mut self.websocket {
            let mut last = BytesMut::new();
            websocket.finish(&mut last);
            // A session that cannot encrypt any more has no last words.
            let _ = self.wrap(&last);
        }
        if let Some(tls) = &mut self.tls {
            tls.finish(&mut self.out);
        }
        self.has_output()
    }

    /// One write of what is wrapped; wraps the front of `outbox`, at most `limit` bytes, before if nothing is. Says how much of the outbox was taken.
    pub(crate) fn write(&mut self, to: &mut impl Write, outbox: Option<&Outbox>, limit: usize) -> Departure {
        let mut taken = 0;
        if self.out.is_empty()
            && let Some(outbox) = outbox
        {
            match self.wrap_outbox(outbox, limit) {
                Ok(bytes) => taken = bytes,
                Err(_) => return Departure::Broken,
            }
        }
        while !self.out.is_empty() {
            match to.write(&self.out) {
                Ok(0) => return Departure::Broken,
                Ok(written) if written == self.out.len() => {
                    // Gives the memory back.
                    self.out = BytesMut::new();
                    return Departure::Written(taken, true);
                }
                Ok(written) => {
                    self.out.advance(written);
                    self.slow = true;
                    return Departure::Written(taken, false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.slow = true;
                    return Departure::Written(taken, false);
                }
                Err(_) => return Departure::Broken,
            }
        }
        Departure::Written(taken, true)
    }

    /// Wraps the front of `outbox`, at most `limit` bytes; how many bytes of it.
    fn wrap_outbox(&mut self, outbox: &Outbox, limit: usize) -> Result<usize, Fault> {
        let closed = self.websocket.as_ref().is_some_and(WebSocket::is_closed);
        if closed || !self.is_open() {
            return Ok(0);
        }
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let filled = outbox.io_slices_up_to(limit, &mut slices);
        let slices = slices.get(..filled).unwrap_or_default();
        let most = if self.slow { WRAPPED_BYTES_MAX_SLOW } else { WRAPPED_BYTES_MAX };
        let total = slices.iter().map(|slice| slice.len()).sum::<usize>().min(most);
        if total == 0 {
            return Ok(0);
        }
        self.slow &= total < outbox.len();
        // TLS makes a record of each piece it is given: many small ones are put together before, a single one is not copied.
        let gather = self.websocket.is_some() || filled > 1;
        let mut whole = BytesMut::new();
        if gather {
            whole.reserve(total + 10);
            if self.websocket.is_some() {
                WebSocket::frame(total, &mut whole);
            }
            let mut left = total;
            for slice in slices {
                let part = slice.get(..left.min(slice.len())).unwrap_or_default();
                whole.extend_from_slice(part);
                left -= part.len();
            }
        }
        match (&mut self.tls, slices.first()) {
            (None, _) => self.out = whole,
            (Some(tls), _) if gather => tls.encrypt(&whole, &mut self.out)?,
            (Some(tls), Some(slice)) => tls.encrypt(slice.get(..total).unwrap_or_default(), &mut self.out)?,
            (Some(_), None) => {}
        }
        Ok(total)
    }
}
