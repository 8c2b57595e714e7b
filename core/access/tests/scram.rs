//! SCRAM against the example of RFC 7677, and against a client of its own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sedge_access::scram::{Exchange, Mechanism, ScramError, Verifier, VerifierError};
use sha2::Sha256;

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    Hmac::<Sha256>::new_from_slice(key).expect("any length").chain_update(text).finalize().into_bytes().into()
}

/// `Hi` of RFC 5802 section 2.2: PBKDF2 with one block.
fn salted(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let mut last = hmac(password, &[salt, &1_u32.to_be_bytes()].concat());
    let mut all = last;
    for _ in 1..iterations {
        last = hmac(password, &last);
        all.iter_mut().zip(last).for_each(|(all, byte)| *all ^= byte);
    }
    all
}

fn pencil() -> Verifier {
    let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("Base64");
    Verifier::new(Mechanism::Sha256, 4096, &salt, &salted(b"pencil", &salt, 4096))
}

const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const LAST: &str =
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

fn exchange(verifier: &Verifier) -> Exchange {
    Exchange::begin(FIRST, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", |user| {
        assert_eq!(user, "user");
        verifier.clone()
    })
    .expect("well formed")
}

/// MQ-19: RFC 7677 section 3.
#[test]
fn the_example_of_the_standard() {
    let exchange = exchange(&pencil());
    let expected = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    assert_eq!(exchange.server_first(), expected);
    assert_eq!(exchange.finish(LAST.as_bytes()).as_deref(), Ok("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
}

/// MQ-19
#[test]
fn whatever_is_wrong_is_refused() {
    let right = pencil();
    let salt = right.salt();
    let other = Verifier::new(Mechanism::Sha256, 4096, salt, &salted(b"pencils", salt, 4096));
    let nobody = Verifier::of_nobody(Mechanism::Sha256, 4096, b"secret", "user");
    let longer = Verifier::of_nobody(Mechanism::Sha512, 4096, b"secret", "user");
    for verifier in [other, nobody, longer] {
        assert_eq!(exchange(&verifier).finish(LAST.as_bytes()), Err(ScramError::Proof));
    }
    let exchange = exchange(&right);
    for (from, to, error) in [
        ("biws", "eSws", ScramError::Proof),
        ("%hv", "%hw", ScramError::Proof),
        ("dHz", "eHz", ScramError::Proof),
        ("dHzb", "", ScramError::Proof),
        ("c=biws,", "", ScramError::Message),
        (",p=", ",q=", ScramError::Message),
    ] {
        assert_eq!(exchange.finish(LAST.replace(from, to).as_bytes()), Err(error), "{from} -> {to}");
    }
    assert!(matches!(Exchange::begin(b"p=tls-unique,,n=user,r=x", "y", |_| right), Err(ScramError::Message)));
}

#[test]
fn verifiers_are_read_as_they_are_written() {
    let verifier = pencil();
    let text = verifier.to_text();
    assert!(text.starts_with("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"), "{text}");
    assert_eq!(Verifier::parse(&text).as_ref(), Ok(&verifier));
    assert!(verifier.is_of(&salted(b"pencil", verifier.salt(), 4096)));
    assert!(!verifier.is_of(&salted(b"Pencil", verifier.salt(), 4096)));
    assert!(!format!("{verifier:?}").contains("W22Z"));
    for (from, to, error) in [
        ("4096", "4095", VerifierError::Iterations),
        ("4096", "10000001", VerifierError::Iterations),
        ("4096", "-1", VerifierError::Form),
        ("256", "1", VerifierError::Form),
        ("256", "512", VerifierError::Form),
        ("W22ZaJ0SNY7soEsUEjb6gQ==", "", VerifierError::Form),
        ("W22Z", "*", VerifierError::Form),
    ] {
        assert_eq!(Verifier::parse(&text.replacen(from, to, 1)), Err(error), "{from} -> {to}");
    }
    assert_eq!(Verifier::parse(&format!("{text}$")), Err(VerifierError::Form));
}

#[test]
fn nobody_looks_the_same_each_time() {
    let nobody = |user| Verifier::of_nobody(Mechanism::Sha256, 5000, b"secret", user);
    assert_eq!(nobody("a").salt(), nobody("a").salt());
    assert_ne!(nobody("a").salt(), nobody("b").salt());
    assert_eq!((nobody("a").salt().len(), nobody("a").iterations()), (16, 5000));
}
