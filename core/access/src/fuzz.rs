//! Body of the fuzz target. A stable test runs it, too, over the committed corpus.

use crate::scram::{Exchange, Mechanism, Verifier};

/// Runs an exchange. Lines of bytes: a verifier, the client's first message, the client's last.
///
/// Holds: no panic; a verifier that is read is written as one that reads the same; the server's first message begins with the client's
/// nonce; nobody has the password of nobody.
pub fn scram(data: &[u8]) {
    let mut lines = data.splitn(3, |&byte| byte == b'\n');
    let (verifier, first, last) = (lines.next(), lines.next(), lines.next());
    let verifier =
        verifier.and_then(|line| core::str::from_utf8(line).ok()).and_then(|text| Verifier::parse(text).ok());
    if let Some(verifier) = &verifier {
        assert_eq!(Verifier::parse(&verifier.to_text()).as_ref(), Ok(verifier));
    }
    let nobody = |user: &str| Verifier::of_nobody(Mechanism::Sha256, 4096, b"secret", user);
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    if let Some(verifier) = verifier
        && let Ok(exchange) = Exchange::begin(first, "server", |_| verifier)
    {
        assert!(exchange.server_first().starts_with("r=") && exchange.server_first().contains("server,s="));
        let _ = exchange.finish(last);
    }
    if let Ok(exchange) = Exchange::begin(first, "server", nobody) {
        assert!(!exchange.user().is_empty());
        assert!(exchange.finish(last).is_err());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_scram_corpus_passes() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/scram");
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty());
        for path in files {
            println!("{}", path.display());
            super::scram(&std::fs::read(path).unwrap());
        }
    }
}
