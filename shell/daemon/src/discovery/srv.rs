//! SRV records (RFC 2782): the hosts and ports of a service. The system's resolver does not tell them, so that its servers are asked
//! here, as `/etc/resolv.conf` names them.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use resolv_conf::ScopedIp;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, Question, RCODE, TYPE};

use crate::host_port::HostPort;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const DNS_PORT: u16 = 53;
/// How long one server may take for one answer; `options timeout` may shorten it.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest answer by datagram (RFC 1035 section 4.2.1); a longer answer is asked for by TCP.
const DATAGRAM_BYTES_MAX: usize = 512;

/// Why there is no answer.
enum Nothing {
    /// There is no such name, or nothing of the service behind it.
    Name,
    /// The server does not answer, or cannot.
    Server(String),
}

/// Where the service is, as all its records say: priorities and weights do not matter, for everybody is asked.
pub(super) fn lookup(service: &str) -> Result<Vec<HostPort>, String> {
    let text = std::fs::read_to_string(RESOLV_CONF).map_err(|error| format!("cannot read {RESOLV_CONF}: {error}"))?;
    let (config, _what_it_does_not_know) = resolv_conf::Config::parse_with_errors(text.as_bytes());
    let timeout = TIMEOUT.min(Duration::from_secs(u64::from(config.timeout.max(1))));
    let servers = config.get_nameservers_or_local();
    let mut last = "there is no such SRV record".to_owned();
    for name in full_names(service, &config) {
        for _ in 0..config.attempts.clamp(1, 2) {
            match ask_any(&servers, &name, timeout) {
                Ok(hosts) => return Ok(hosts),
                Err(Nothing::Name) => break,
                Err(Nothing::Server(why)) => last = why,
            }
        }
    }
    Err(last)
}

/// The names to try in turn, as a resolver does.
fn full_names(service: &str, config: &resolv_conf::Config) -> Vec<String> {
    if let Some(absolute) = service.strip_suffix('.') {
        return vec![absolute.to_owned()];
    }
    let mut names: Vec<String> = config
        .get_last_search_or_domain()
        .map(|domain| format!("{service}.{}", domain.trim_end_matches('.')))
        .collect();
    let dots = service.matches('.').count();
    let place = if u32::try_from(dots).unwrap_or(u32::MAX) >= config.ndots { 0 } else { names.len() };
    names.insert(place, service.to_owned());
    names
}

fn ask_any(servers: &[ScopedIp], name: &str, timeout: Duration) -> Result<Vec<HostPort>, Nothing> {
    let mut last = Nothing::Server("there is no DNS server".to_owned());
    for server in servers {
        let ip: IpAddr = server.into();
        match ask(SocketAddr::new(ip, DNS_PORT), name, timeout) {
            Ok(hosts) => return Ok(hosts),
            Err(Nothing::Name) => return Err(Nothing::Name),
            Err(Nothing::Server(why)) => last = Nothing::Server(format!("DNS server {ip}: {why}")),
        }
    }
    Err(last)
}

fn ask(server: SocketAddr, name: &str, timeout: Duration) -> Result<Vec<HostPort>, Nothing> {
    let wrong = |error: simple_dns::SimpleDnsError| Nothing::Server(error.to_string());
    let id = getrandom::u32().map_or(0, |random| u16::try_from(random & 0xffff).unwrap_or(0));
    let mut query = Packet::new_query(id);
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    let asked = Name::new(name).map_err(wrong)?;
    query.questions.push(Question::new(asked, QTYPE::TYPE(TYPE::SRV), CLASS::IN.into(), false));
    let query = query.build_bytes_vec().map_err(wrong)?;
    let io = |error: io::Error| Nothing::Server(error.to_string());
    let answer = over_udp(server, &query, id, timeout).map_err(io)?;
    if let Some(hosts) = read(&answer, id, name)? {
        return Ok(hosts);
    }
    let answer = over_tcp(server, &query, timeout).map_err(io)?;
    read(&answer, id, name)?.ok_or_else(|| Nothing::Server("its answer is cut off".to_owned()))
}

fn over_udp(server: SocketAddr, query: &[u8], id: u16, timeout: Duration) -> io::Result<Vec<u8>> {
    let any: SocketAddr = if server.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    // Nobody else is heard.
    socket.connect(server)?;
    socket.send(query)?;
    let deadline = Instant::now() + timeout;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let length = match socket.recv(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            received => received?,
        };
        // An answer that came too late for an earlier question is none to this one.
        if buffer.starts_with(&id.to_be_bytes()) {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

fn over_tcp(server: SocketAddr, query: &[u8], timeout: Duration) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let length = u16::try_from(query.len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes(), query].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// Hosts that an answer names; `None` if the answer is cut off, so that the server has to be asked by TCP.
fn read(answer: &[u8], id: u16, name: &str) -> Result<Option<Vec<HostPort>>, Nothing> {
    let nonsense = || Nothing::Server("its answer makes no sense".to_owned());
    let packet = Packet::parse(answer).ok().ok_or_else(nonsense)?;
    let is_mine = |question: &Question<'_>| question.qname.to_string().eq_ignore_ascii_case(name);
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) || !packet.questions.iter().any(is_mine) {
        return Err(nonsense());
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Ok(None);
    }
    if packet.rcode() == RCODE::NameError {
        return Err(Nothing::Name);
    }
    if packet.rcode() != RCODE::NoError {
        return Err(Nothing::Server(format!("{:?}", packet.rcode())));
    }
    let mut hosts = Vec::new();
    for record in &packet.answers {
        let RData::SRV(srv) = &record.rdata else { continue };
        let host = srv.target.to_string();
        // A service whose only target is the root is not there.
        if !host.is_empty() && srv.port != 0 {
            hosts.push(HostPort { host, port: srv.port });
        }
    }
    if hosts.is_empty() { Err(Nothing::Name) } else { Ok(Some(hosts)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(service: &str, conf: &str) -> Vec<String> {
        full_names(service, &resolv_conf::Config::parse_with_errors(conf.as_bytes()).0)
    }

    #[test]
    fn names_are_completed_as_a_resolver_does() {
        let conf = "search site. example.org\noptions ndots:1\n";
        assert_eq!(names("_sedge._tcp", conf), ["_sedge._tcp", "_sedge._tcp.site", "_sedge._tcp.example.org"]);
        assert_eq!(names("_sedge._tcp.", conf), ["_sedge._tcp"]);
        assert_eq!(names("_sedge._tcp.a", "search b\noptions ndots:5"), ["_sedge._tcp.a.b", "_sedge._tcp.a"]);
    }

    #[test]
    fn an_answer_is_read_strictly() {
        let name = "_sedge._tcp.site";
        let mut reply = Packet::new_reply(7);
        reply.questions.push(Question::new(Name::new_unchecked(name), TYPE::SRV.into(), CLASS::IN.into(), false));
        let srv = |port, target| {
            let rdata = simple_dns::rdata::SRV { priority: 1, weight: 1, port, target: Name::new_unchecked(target) };
            simple_dns::ResourceRecord::new(Name::new_unchecked(name), CLASS::IN, 5, RData::SRV(rdata))
        };
        reply.answers.push(srv(7883, "gw-1.site"));
        reply.answers.push(srv(7, "gw-2.site"));
        let bytes = reply.build_bytes_vec_compressed().expect("a packet");
        let hosts = read(&bytes, 7, "_SEDGE._tcp.site").ok().flatten().expect("hosts");
        assert_eq!(hosts.iter().map(ToString::to_string).collect::<Vec<_>>(), ["gw-1.site:7883", "gw-2.site:7"]);
        assert!(matches!(read(&bytes, 8, name), Err(Nothing::Server(_))), "another id");
        assert!(matches!(read(&bytes, 7, "_other._tcp.site"), Err(Nothing::Server(_))), "another question");
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length], 7, name).is_err(), "{length} bytes");
        }
        reply.set_flags(PacketFlag::TRUNCATION);
        let cut = reply.build_bytes_vec().expect("a packet");
        assert!(matches!(read(&cut, 7, name), Ok(None)));
        reply.remove_flags(PacketFlag::TRUNCATION);
        *reply.rcode_mut() = RCODE::NameError;
        assert!(matches!(read(&reply.build_bytes_vec().expect("a packet"), 7, name), Err(Nothing::Name)));
    }
}
