//! JSON Web Tokens as passwords (RFC 7519): HS, RS and ES signatures and `EdDSA`, checked with keys of a file.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

/// Clocks that differ by less do not matter, in seconds.
const LEEWAY: u64 = 10;
/// A longer token is refused unread, in bytes.
const TOKEN_MAX: usize = 16 * 1024;

/// Why a file of keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeysError(String);

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    crv: Option<String>,
    k: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<serde_json::Value>,
}

/// A key, with what it is good for: a token's header does not choose how a key is used, it only has to agree.
enum Key {
    Secret(Vec<u8>),
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// Keys that tokens may be signed with.
pub struct Keys(Vec<(Option<String>, Key)>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

/// Claims that a token needs to be accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// `iss`; empty: anything.
    pub(super) issuer: String,
    /// One of `aud`; empty: anything.
    pub(super) audience: String,
    /// Claim that is the user name.
    pub(super) user_claim: String,
    /// Claim that has to be the client id; empty: none.
    pub(super) client_claim: String,
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

impl Key {
    fn of(jwk: &Jwk) -> Option<Self> {
        let field = |field: &Option<String>| field.as_deref().and_then(decode).filter(|bytes| !bytes.is_empty());
        let point = |size: usize| {
            let (x, y) = (field(&jwk.x)?, field(&jwk.y)?);
            (x.len() == size && y.len() == size).then(|| [&[4][..], &x, &y].concat())
        };
        match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("oct", _) => field(&jwk.k).map(Self::Secret),
            ("RSA", _) => Some(Self::Rsa { n: field(&jwk.n)?, e: field(&jwk.e)? }),
            ("EC", Some("P-256")) => point(32).map(Self::P256),
            ("EC", Some("P-384")) => point(48).map(Self::P384),
            ("OKP", Some("Ed25519")) => field(&jwk.x).map(Self::Ed25519),
            _ => None,
        }
    }

    fn verify(&self, algorithm: &str, message: &[u8], sig: &[u8]) -> bool {
        let by = |algorithm: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, sig).is_ok()
        };
        let mac = |algorithm: hmac::Algorithm, key: &[u8]| {
            hmac::verify(&hmac::Key::new(algorithm, key), message, sig).is_ok()
        };
        let rsa = |parameters: &signature::RsaParameters, n: &[u8], e: &[u8]| {
            RsaPublicKeyComponents { n, e }.verify(parameters, message, sig).is_ok()
        };
        match (self, algorithm) {
            (Self::Secret(key), "HS256") => mac(hmac::HMAC_SHA256, key),
            (Self::Secret(key), "HS384") => mac(hmac::HMAC_SHA384, key),
            (Self::Secret(key), "HS512") => mac(hmac::HMAC_SHA512, key),
            (Self::Rsa { n, e }, "RS256") => rsa(&signature::RSA_PKCS1_2048_8192_SHA256, n, e),
            (Self::Rsa { n, e }, "RS384") => rsa(&signature::RSA_PKCS1_2048_8192_SHA384, n, e),
            (Self::Rsa { n, e }, "RS512") => rsa(&signature::RSA_PKCS1_2048_8192_SHA512, n, e),
            (Self::P256(key), "ES256") => by(&signature::ECDSA_P256_SHA256_FIXED, key),
            (Self::P384(key), "ES384") => by(&signature::ECDSA_P384_SHA384_FIXED, key),
            (Self::Ed25519(key), "EdDSA") => by(&signature::ED25519, key),
            _ => false,
        }
    }
}

/// Whether a password may be a token: three parts, the first of which is JSON.
pub(super) fn looks_like_token(password: &[u8]) -> bool {
    password.starts_with(b"eyJ") && password.split(|&byte| byte == b'.').count() == 3
}

impl Keys {
    /// Reads a JWK Set (RFC 7517), or, if the text is no JSON, one secret for HS256, HS384 and HS512.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let text = text.trim();
        if !text.starts_with('{') {
            if text.len() < 32 {
                return Err(KeysError("a secret for tokens has at least 32 bytes; or give a JWK Set".to_owned()));
            }
            return Ok(Self(vec![(None, Key::Secret(text.as_bytes().to_vec()))]));
        }
        let set: JwkSet = serde_json::from_str(text)
            .map_err(|error| KeysError(format!("not a JWK Set {{\"keys\": [...]}}: {error}")))?;
        let mut keys = Vec::new();
        for (index, value) in set.keys.into_iter().enumerate() {
            let number = index + 1;
            let jwk: Jwk =
                serde_json::from_value(value).map_err(|error| KeysError(format!("key {number}: {error}")))?;
            let kinds = "oct, RSA, EC with P-256 or P-384, and OKP with Ed25519 are understood";
            let key = Key::of(&jwk).ok_or_else(|| KeysError(format!("key {number} cannot be used: {kinds}")))?;
            keys.push((jwk.kid, key));
        }
        if keys.is_empty() { Err(KeysError("there is no key in it".to_owned())) } else { Ok(Self(keys)) }
    }

    /// The user name that a valid token stands for, and for how many seconds from `now` it does; `user` and `client` are those of the CONNECT, `now` in seconds since 1970.
    pub(super) fn check(
        &self,
        token: &[u8],
        wanted: &Wanted,
        (user, client): (&str, &str),
        now: u64,
    ) -> Option<(String, u64)> {
        let token = std::str::from_utf8(token).ok().filter(|token| token.len() <= TOKEN_MAX)?;
        let (message, sig) = token.rsplit_once('.')?;
        let (head, body) = message.split_once('.')?;
        let header: Header = serde_json::from_slice(&decode(head)?).ok()?;
        let sig = decode(sig)?;
        let fits = |kid: &Option<String>| match (&header.kid, kid) {
            (Some(named), Some(kid)) => named == kid,
            _ => true,
        };
        let signed = self.0.iter().any(|(kid, key)| fits(kid) && key.verify(&header.alg, message.as_bytes(), &sig));
        if !signed {
            return None;
        }
        let claims: serde_json::Value = serde_json::from_slice(&decode(body)?).ok()?;
        accepts(wanted, &claims, (user, client), now)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time claim may have a fraction; the range is checked"
)]
fn time(claim: &serde_json::Value) -> Option<u64> {
    let fraction = || claim.as_f64().filter(|time| (0.0..1e15).contains(time)).map(|time| time as u64);
    claim.as_u64().or_else(fraction)
}

fn accepts(
    wanted: &Wanted,
    claims: &serde_json::Value,
    (user, client): (&str, &str),
    now: u64,
) -> Option<(String, u64)> {
    let text = |name: &str| claims.get(name).and_then(|claim| claim.as_str());
    let left = time(claims.get("exp")?)?.saturating_add(LEEWAY).checked_sub(now).filter(|&left| left > 0)?;
    if let Some(begin) = claims.get("nbf")
        && time(begin)? > now.saturating_add(LEEWAY)
    {
        return None;
    }
    if !wanted.issuer.is_empty() && text("iss") != Some(&wanted.issuer) {
        return None;
    }
    if !wanted.audience.is_empty() {
        let is_ours = |claim: &serde_json::Value| claim.as_str() == Some(&wanted.audience);
        let audience = claims.get("aud")?;
        if !is_ours(audience) && !audience.as_array().is_some_and(|list| list.iter().any(is_ours)) {
            return None;
        }
    }
    if !wanted.client_claim.is_empty() && text(&wanted.client_claim) != Some(client) {
        return None;
    }
    let name = text(&wanted.user_claim).filter(|name| !name.is_empty())?;
    (user.is_empty() || user == name).then(|| (name.to_owned(), left))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn token(algorithm: &str, claims: &str) -> Vec<u8> {
        let head = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{algorithm}","typ":"JWT"}}"#));
        let message = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag)).into_bytes()
    }

    /// MQ-19
    #[test]
    fn claims_are_checked_one_by_one() {
        let keys = Keys::parse(SECRET).unwrap();
        let wanted = Wanted {
            issuer: "us".into(),
            audience: "mqtt".into(),
            user_claim: "sub".into(),
            client_claim: "cid".into(),
        };
        let check = |claims: &str, user: &str| {
            let token = token("HS256", claims);
            assert!(looks_like_token(&token));
            keys.check(&token, &wanted, (user, "c1"), 1_000)
        };
        let good = r#"{"sub":"anna","exp":1100,"nbf":900,"iss":"us","aud":["x","mqtt"],"cid":"c1"}"#;
        let anna = Some(("anna".to_owned(), 110));
        assert_eq!(check(good, ""), anna);
        assert_eq!(check(good, "anna"), anna);
        assert_eq!(check(good, "bob"), None);
        for (from, to) in [
            ("1100", "900"),
            ("\"exp\":1100,", ""),
            ("900", "1100"),
            ("us", "them"),
            ("mqtt", "http"),
            ("c1", "c2"),
            ("anna", ""),
        ] {
            assert_eq!(check(&good.replace(from, to), ""), None, "{from} -> {to}");
        }
    }

    /// MQ-19: the header of a token chooses no weaker check.
    #[test]
    fn forged_tokens_are_refused() {
        let keys = Keys::parse(SECRET).unwrap();
        let wanted = Wanted { user_claim: "sub".into(), ..Wanted::default() };
        let claims = r#"{"sub":"anna","exp":1100}"#;
        assert_eq!(keys.check(&token("none", claims), &wanted, ("", "c"), 1_000), None);
        assert_eq!(keys.check(&token("RS256", claims), &wanted, ("", "c"), 1_000), None);
        let mut bad = token("HS256", claims);
        if let Some(last) = bad.last_mut() {
            *last = if *last == b'A' { b'E' } else { b'A' };
        }
        assert_eq!(keys.check(&bad, &wanted, ("", "c"), 1_000), None);
        for junk in [&b"eyJ.."[..], b"a.b", b"", b"eyJhbGciOiJIUzI1NiJ9..", b"\xff.\xff.\xff"] {
            assert_eq!(keys.check(junk, &wanted, ("", "c"), 1_000), None);
        }
    }

    #[test]
    fn files_of_keys_say_what_is_wrong() {
        for (text, what) in [
            ("short", "at least 32 bytes"),
            ("{\"keys\":[]}", "no key"),
            ("{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-521\"}]}", "key 1 cannot be used"),
            ("{}", "not a JWK Set"),
        ] {
            let error = Keys::parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
