//! Which shard a fresh connection belongs to.

use bytes::Bytes;
use sedge_base::{ClientId, ShardId};
use sedge_mqtt::{Decoder, Packet};

/// The result of [`Reception::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceptionResult {
    /// The CONNECT is not complete.
    NeedMore,
    /// The connection belongs to this shard, which is to be fed all bytes from the first on.
    Belongs(ShardId),
}

/// Reads the first packet of one connection as far as its client identifier. A packet that is not a CONNECT, or wrong, or has no client
/// identifier, belongs to the default shard, whose broker knows what to answer.
#[derive(Debug)]
pub struct Reception {
    shards: u16,
    default: ShardId,
    decoder: Decoder,
}

impl Reception {
    /// For a connection to a node of `shards` shards whose clients may send packets of at most `max_packet_bytes` bytes.
    pub fn new(shards: u16, default: ShardId, max_packet_bytes: u32) -> Self {
        Self { shards, default, decoder: Decoder::server(max_packet_bytes) }
    }

    /// Takes the next bytes of the connection. The driver keeps them, too, for the shard.
    pub fn feed(&mut self, bytes: Bytes) -> ReceptionResult {
        self.decoder.feed(bytes);
        match self.decoder.next() {
            Ok(None) => ReceptionResult::NeedMore,
            Ok(Some(Packet::Connect(connect))) if !connect.client_id.is_empty() => {
                ReceptionResult::Belongs(shard_of(&ClientId::new(connect.client_id.as_str()), self.shards))
            }
            Ok(Some(_)) | Err(_) => ReceptionResult::Belongs(self.default),
        }
    }
}

/// The shard that a client belongs to, of so many.
pub fn shard_of(client: &ClientId, shards: u16) -> ShardId {
    let shard = client.stable_hash() % u64::from(shards.max(1));
    ShardId(u16::try_from(shard).unwrap_or(0))
}
