//! The messages of a SCRAM client (RFC 5802 section 7).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::MESSAGE_MAX;

/// `client-first-message`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFirst<'a> {
    /// Channel binding flag and authorization identity, both commas included: the field `c=` repeats them in the last message.
    pub(super) header: &'a str,
    /// The rest, as it was sent.
    pub(super) bare: &'a str,
    pub(super) user: String,
    pub(super) nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// `None` if it is malformed, wants channel binding, or wants to act for another user.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let text = text(data)?;
        let (flag, rest) = text.split_once(',')?;
        let (authzid, bare) = rest.split_once(',')?;
        if flag != "n" && flag != "y" {
            return None;
        }
        let mut fields = bare.split(',');
        let user = name(fields.next()?.strip_prefix("n=")?)?;
        let nonce = fields.next()?.strip_prefix("r=").filter(|nonce| is_nonce(nonce))?;
        // Extensions may follow; nothing that begins the message otherwise, such as `m=`, is understood.
        if !fields.all(is_extension) {
            return None;
        }
        if !authzid.is_empty() && name(authzid.strip_prefix("a=")?)? != user {
            return None;
        }
        let header = text.get(..text.len() - bare.len())?;
        Some(Self { header, bare, user, nonce })
    }
}

/// `client-final-message`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFinal<'a> {
    /// The part of the message before the proof, as it was sent.
    pub(super) without_proof: &'a str,
    /// The header of the first message again.
    pub(super) header: Vec<u8>,
    pub(super) nonce: &'a str,
    pub(super) proof: Vec<u8>,
}

impl<'a> ClientFinal<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let text = text(data)?;
        let (without_proof, proof) = text.rsplit_once(",p=")?;
        let mut fields = without_proof.split(',');
        let header = STANDARD.decode(fields.next()?.strip_prefix("c=")?).ok()?;
        let nonce = fields.next()?.strip_prefix("r=").filter(|nonce| is_nonce(nonce))?;
        if !fields.all(is_extension) {
            return None;
        }
        Some(Self { without_proof, header, nonce, proof: STANDARD.decode(proof).ok()? })
    }
}

fn text(data: &[u8]) -> Option<&str> {
    core::str::from_utf8(data).ok().filter(|text| text.len() <= MESSAGE_MAX && !text.contains('\0'))
}

/// `saslname`: `=2C` is a comma, `=3D` an equals sign.
fn name(text: &str) -> Option<String> {
    let mut pieces = text.split('=');
    let mut name = pieces.next()?.to_owned();
    for piece in pieces {
        let (escaped, rest) = piece.split_at_checked(2)?;
        name.push(match escaped {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        name.push_str(rest);
    }
    (!name.is_empty()).then_some(name)
}

/// Printable ASCII without the comma.
fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// `attr-val` of a letter that means nothing here; `m` would be one that has to be understood.
fn is_extension(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|letter| letter.is_ascii_alphabetic() && letter != 'm') && chars.next() == Some('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unescaped() {
        let first = ClientFirst::parse(b"n,,n=a=2Cb=3Dc,r=x,t=1").expect("well formed");
        assert_eq!((first.user.as_str(), first.nonce, first.header), ("a,b=c", "x", "n,,"));
        assert_eq!(first.bare, "n=a=2Cb=3Dc,r=x,t=1");
        assert_eq!(ClientFirst::parse(b"y,a=anna,n=anna,r=x").expect("well formed").header, "y,a=anna,");
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for bad in [
            &b""[..],
            b"n",
            b"n,",
            b"n,,",
            b"n,,n=,r=x",
            b"n,,n=a",
            b"n,,n=a,r=",
            b"n,,r=x,n=a",
            b"p=tls-exporter,,n=a,r=x",
            b"n,a=b,n=a,r=x",
            b"n,b,n=a,r=x",
            b"n,,m=1,n=a,r=x",
            b"n,,n=a,r=x,m=1",
            b"n,,n=a=2,r=x",
            b"n,,n=a=2c,r=x",
            b"n,,n=\xff,r=x",
            b"n,,n=a\0,r=x",
            b"n,,n=a,r=x y",
            b"n,,n=a,r=x,",
            "n,,n=a=é,r=x".as_bytes(),
        ] {
            assert_eq!(ClientFirst::parse(bad), None, "{:?}", String::from_utf8_lossy(bad));
        }
        assert_eq!(ClientFirst::parse(format!("n,,n={},r=x", "a".repeat(MESSAGE_MAX)).as_bytes()), None);
        for bad in [
            &b""[..],
            b"c=biws",
            b"c=biws,r=x",
            b"c=biws,p=AA==",
            b"c=*,r=x,p=AA==",
            b"c=biws,r=x,p=A",
            b"r=x,c=biws,p=AA==",
            b"c=biws,r=x,m=1,p=AA==",
        ] {
            assert_eq!(ClientFinal::parse(bad), None, "{:?}", String::from_utf8_lossy(bad));
        }
    }
}
