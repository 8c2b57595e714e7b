//! A SOCKS5 proxy between client and broker (RFC 1928, RFC 1929).

use std::io::{self, ErrorKind, Read, Write};

/// Port of a SOCKS proxy whose URL has none.
const PORT: u16 = 1080;
const VERSION: u8 = 5;
const NO_ACCOUNT: u8 = 0;
const ACCOUNT: u8 = 2;
const ACCOUNT_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const BY_IPV4: u8 = 1;
const BY_NAME: u8 = 3;
const BY_IPV6: u8 = 4;

/// Address of the proxy, and the account to use there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    account: Option<(String, String)>,
}

impl Proxy {
    /// Reads `socks5h://[user[:password]@]host[:port]`, as `mosquitto_pub --proxy` takes it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("socks5h://").ok_or("a proxy is socks5h://[user[:password]@]host[:port]")?;
        let (account, address) = rest.rsplit_once('@').map_or((None, rest), |(account, rest)| (Some(account), rest));
        let (host, port) = address.rsplit_once(':').map_or((address, None), |(host, port)| (host, Some(port)));
        let port = port.map_or(Ok(PORT), str::parse).ok().filter(|port| *port > 0);
        let account = account.map(|text| text.split_once(':').unwrap_or((text, "")));
        let short = |text: &str| (1..=255).contains(&text.len());
        if host.is_empty() || account.is_some_and(|(user, word)| !short(user) || word.len() > 255) {
            return Err("the URL names no host, or an account that is empty or longer than 255 bytes".to_owned());
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.ok_or("the port of a proxy is 1 to 65535")?,
            account: account.map(|(user, word)| (user.to_owned(), word.to_owned())),
        })
    }

    /// Asks for a connection to `host`, whose name the proxy resolves. Afterwards the bytes of `stream` are those of the broker.
    pub(super) fn ask(&self, stream: &mut (impl Read + Write), host: &str, port: u16) -> io::Result<()> {
        let offer: &[u8] =
            if self.account.is_some() { &[VERSION, 2, NO_ACCOUNT, ACCOUNT] } else { &[VERSION, 1, NO_ACCOUNT] };
        stream.write_all(offer)?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer)?;
        match (answer, &self.account) {
            ([VERSION, NO_ACCOUNT], _) => {}
            ([VERSION, ACCOUNT], Some((user, word))) => Self::show(stream, user, word)?,
            ([VERSION, _], _) => return Err(refused("it takes none of the accounts that were offered")),
            _ => return Err(refused("it speaks no SOCKS5")),
        }
        let length = u8::try_from(host.len()).map_err(|_too_long| refused("the name of the broker is too long"))?;
        let mut request = vec![VERSION, CONNECT, 0, BY_NAME, length];
        request.extend_from_slice(host.as_bytes());
        request.extend_from_slice(&port.to_be_bytes());
        stream.write_all(&request)?;
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        if head[1] != 0 {
            return Err(refused(words(head[1])));
        }
        let mut length = [0];
        let rest = match head[3] {
            BY_IPV4 => 4,
            BY_IPV6 => 16,
            BY_NAME => stream.read_exact(&mut length).map(|()| usize::from(length[0]))?,
            _ => return Err(refused("it answered with an address of no known kind")),
        };
        stream.read_exact(&mut vec![0; rest + 2])
    }

    fn show(stream: &mut (impl Read + Write), user: &str, word: &str) -> io::Result<()> {
        let mut request = vec![ACCOUNT_VERSION];
        for text in [user, word] {
            request.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
            request.extend_from_slice(text.as_bytes());
        }
        stream.write_all(&request)?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer)?;
        if answer[1] == 0 { Ok(()) } else { Err(refused("it does not take the account")) }
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::ConnectionRefused, format!("the proxy refused: {why}"))
}

/// RFC 1928, section 6.
fn words(code: u8) -> &'static str {
    match code {
        2 => "its rules forbid this connection",
        3 => "the network cannot be reached",
        4 => "the host cannot be reached",
        5 => "the broker refused the connection",
        6 => "the connection took too long",
        _ => "it failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A proxy that has written its answers before it was asked.
    struct Script(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Script {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Script {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.1.write(from)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ask(url: &str, answers: &[u8]) -> (io::Result<()>, Vec<u8>) {
        let mut script = Script(io::Cursor::new(answers.to_vec()), Vec::new());
        let result = Proxy::parse(url).unwrap().ask(&mut script, "gw", 1883);
        (result, script.1)
    }

    #[test]
    fn urls_are_taken_apart() {
        let proxy = Proxy::parse("socks5h://me:se:cret@p:99").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("p", 99));
        assert_eq!(proxy.account, Some(("me".to_owned(), "se:cret".to_owned())));
        assert_eq!(Proxy::parse("socks5h://p").unwrap().port, PORT);
        for wrong in ["http://p", "socks5h://", "socks5h://p:0", "socks5h://@p"] {
            assert!(Proxy::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_connection_is_asked_for_by_name() {
        let (result, sent) = ask("socks5h://p", &[5, 0, 5, 0, 0, 1, 1, 2, 3, 4, 0, 80]);
        assert!(result.is_ok());
        assert_eq!(sent, [&[5, 1, 0, 5, 1, 0, 3, 2][..], b"gw", &[7, 91]].concat());
    }

    #[test]
    fn an_account_is_shown_if_the_proxy_wants_one() {
        let (result, sent) = ask("socks5h://me:x@p", &[5, 2, 1, 0, 5, 0, 0, 3, 1, b'a', 0, 80]);
        assert!(result.is_ok());
        assert!(sent.starts_with(&[5, 2, 0, 2, 1, 2, b'm', b'e', 1, b'x']), "{sent:?}");
    }

    #[test]
    fn a_refusal_is_explained() {
        for (answers, word) in
            [(&[5, 0, 5, 5, 0, 1][..], "broker refused"), (&[5, 255], "none of the accounts"), (b"HT", "no SOCKS5")]
        {
            assert!(ask("socks5h://p", answers).0.unwrap_err().to_string().contains(word));
        }
    }
}
