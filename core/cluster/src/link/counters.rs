//! The counters of the links.

/// Sums over all links of a node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames given to a link for the first time.
    pub frames_sent: u64,
    /// Publications among them (FT-14).
    pub publications_sent: u64,
    /// Frames handed to the owner.
    pub frames_received: u64,
    /// Publications among them.
    pub publications_received: u64,
    /// Bytes taken by the kernel.
    pub bytes_sent: u64,
    /// Bytes that came in.
    pub bytes_received: u64,
    /// Frames that waited for earlier ones, which come over another connection.
    pub frames_early: u64,
    /// Frames given to a link once more, after it was lost.
    pub frames_resent: u64,
    /// Frames that came once more and were dropped.
    pub duplicates_dropped: u64,
    /// Frames dropped unacknowledged because the neighbour had died, begun anew or been forgotten.
    pub frames_lost: u64,
    /// Frames refused because the channel was full.
    pub frames_refused: u64,
    /// Acknowledgements sent; each covers a batch.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Connections dialled.
    pub dials: u64,
    /// Connections dialled through another node.
    pub carried_dials: u64,
    /// Bytes of connections between other nodes that were passed on.
    pub carried_bytes: u64,
    /// Connections accepted.
    pub accepts: u64,
    /// Handshakes that have succeeded.
    pub handshakes: u64,
    /// Handshakes refused by either side for any reason but a wrong key.
    pub handshakes_refused: u64,
    /// Handshakes that have failed because of the key.
    pub auth_failures: u64,
    /// Links closed because an invalid frame came over them.
    pub protocol_errors: u64,
    /// Links closed because of silence.
    pub silences: u64,
    /// Packets of neighbours of a newer version that this one does not know.
    pub passed_over: u64,
}

impl LinkCounters {
    /// All counters by metric name without prefix, in a fixed order.
    pub fn named(&self) -> [(&'static str, u64); 23] {
        [
            ("links_frames_sent", self.frames_sent),
            ("links_publications_sent", self.publications_sent),
            ("links_frames_received", self.frames_received),
            ("links_publications_received", self.publications_received),
            ("links_bytes_sent", self.bytes_sent),
            ("links_bytes_received", self.bytes_received),
            ("links_frames_early", self.frames_early),
            ("links_frames_resent", self.frames_resent),
            ("links_duplicates_dropped", self.duplicates_dropped),
            ("links_frames_lost", self.frames_lost),
            ("links_frames_refused", self.frames_refused),
            ("links_acks_sent", self.acks_sent),
            ("links_acks_received", self.acks_received),
            ("links_dials", self.dials),
            ("links_carried_dials", self.carried_dials),
            ("links_carried_bytes", self.carried_bytes),
            ("links_accepts", self.accepts),
            ("links_handshakes", self.handshakes),
            ("links_handshakes_refused", self.handshakes_refused),
            ("links_auth_failures", self.auth_failures),
            ("links_protocol_errors", self.protocol_errors),
            ("links_silences", self.silences),
            ("links_passed_over", self.passed_over),
        ]
    }
}
