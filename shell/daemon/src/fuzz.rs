//! Fuzz targets: bytes that strangers may send to a listener or to the HTTP port, and datagrams that may come to the group of the nodes.
//! Stable tests run the targets, too, over the committed corpora and over mutations of them.

/// See `transport/hostile.rs`.
pub fn layers(data: &[u8]) {
    crate::transport::hostile::layers(data);
}

/// See `discovery/beacon/fuzz.rs`.
pub fn beacon(data: &[u8]) {
    crate::discovery::beacon_fuzz::beacon(data);
}

/// See `http/fuzz.rs`.
pub fn http(data: &[u8]) {
    crate::http::http(data);
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    const CRATE: &str = env!("CARGO_MANIFEST_DIR");

    /// MQ-12
    #[test]
    fn the_layers_corpus_and_mutations_of_it_pass() {
        replay(CRATE, "layers", 20_000, super::layers);
    }

    /// SEC: fewer rounds than the others, because a request that is cut off waits for a moment.
    #[test]
    fn the_http_corpus_and_mutations_of_it_pass() {
        replay(CRATE, "http", 500, super::http);
    }

    /// EL-02
    #[test]
    fn the_beacon_corpus_and_mutations_of_it_pass() {
        replay(CRATE, "beacon", 20_000, super::beacon);
    }
}

#[cfg(test)]
#[path = "../../../check/replay/mod.rs"]
mod replay;
