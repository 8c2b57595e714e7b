//! Other protocols on a port for MQTT, for words that help whoever has confused the ports.

/// Protocol that the peer is likely to have meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LooksLike {
    /// A client's first record of TLS.
    Tls,
    /// A request of HTTP, maybe for a WebSocket.
    Http,
    /// A CONNECT.
    Mqtt,
}

const METHODS: [&[u8]; 8] = [b"GET ", b"POST ", b"PUT ", b"HEAD ", b"OPTIONS ", b"DELETE ", b"PATCH ", b"PRI "];

impl LooksLike {
    /// By the first bytes of a connection.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x10, ..] => Some(Self::Mqtt),
            [0x16, 3, ..] => Some(Self::Tls),
            _ => METHODS.iter().any(|method| bytes.starts_with(method)).then_some(Self::Http),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_give_away_what_was_meant() {
        let cases: [(&[u8], Option<LooksLike>); 6] = [
            (b"\x10\x0c\x00\x04MQTT", Some(LooksLike::Mqtt)),
            (b"\x16\x03\x01\x02\x00", Some(LooksLike::Tls)),
            (b"POST /x HTTP/1.1\r\n", Some(LooksLike::Http)),
            (b"GETTING", None),
            (b"\x16", None),
            (b"", None),
        ];
        for (bytes, looks) in cases {
            assert_eq!(LooksLike::of(bytes), looks, "{bytes:?}");
        }
    }
}
