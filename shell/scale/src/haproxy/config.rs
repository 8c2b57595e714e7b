//! The file of HAProxy (build sheet E.4).

use std::fmt::Write;
use std::path::Path;

use sedge_scale::site::{Algorithm, LoadBalancer};

/// Name of the group of servers.
pub(crate) const BACKEND: &str = "sedge";

/// Most milliseconds to the next check of a node that has just failed one, or refused a connection.
const FAST_CHECK_MS: u128 = 100;

/// Where a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Its address.
    pub(crate) host: String,
    /// Its port for clients.
    pub(crate) mqtt: u16,
    /// Its port for health checks.
    pub(crate) http: u16,
}

/// Name of the server in a place, counted from 0.
pub(crate) fn place_name(place: usize) -> String {
    format!("n{}", place + 1)
}

/// The file for a load balancer with these servers in its places; empty places wait to be filled at run time.
pub(crate) fn config(balancer: &LoadBalancer, socket: &Path, servers: &[Option<Server>]) -> String {
    let mut text = String::new();
    let (maxconn, bind, port) = (balancer.maxconn, &balancer.bind, balancer.port);
    // Without noreuseport two balancers with one port share its clients, and nobody is told.
    // Without no strict-limits HAProxy does not start where maxconn needs more descriptors than the system allows.
    let _ = write!(
        text,
        "# Written by sedge scale; changes are lost.\n\
         global\n    maxconn {maxconn}\n    no strict-limits\n    noreuseport\n    stats socket {} mode 600 level admin expose-fd listeners\n\
         defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 3h\n    timeout server 3h\n    option redispatch 1\n    retries 5\n\
         frontend mqtt\n    bind {bind}:{port}\n    maxconn {maxconn}\n    option clitcpka\n",
        socket.display()
    );
    if balancer.algorithm == Algorithm::ClientId {
        text.push_str(
            "    tcp-request inspect-delay 5s\n    \
             tcp-request content reject unless { req.payload(0,0),mqtt_is_valid }\n    \
             tcp-request content set-var(sess.cid) req.payload(0,0),mqtt_field_value(connect,client_identifier)\n",
        );
    }
    let _ = write!(text, "    default_backend {BACKEND}\nbackend {BACKEND}\n{}", balance(balancer.algorithm));
    let check = balancer.check_timeout.as_millis();
    let _ = write!(
        text,
        "    option srvtcpka\n    option httpchk\n    \
         http-check send meth GET uri /health/ready ver HTTP/1.1 hdr Host localhost\n    timeout check {check}\n"
    );
    let every = balancer.check_interval.as_millis();
    // A connection that a node refuses counts as a failed check: two of them, or one and a check soon after, and nobody is sent there.
    let fast = every.min(FAST_CHECK_MS);
    let proxy = if balancer.proxy_protocol { " send-proxy-v2" } else { "" };
    for (place, server) in servers.iter().enumerate() {
        let name = place_name(place);
        let (address, http, off) = match server {
            Some(server) => (format!("{}:{}", server.host, server.mqtt), server.http, ""),
            None => ("127.0.0.1:1".to_owned(), 1, " disabled"),
        };
        let _ = writeln!(
            text,
            "    server {name} {address}{proxy} check port {http} inter {every}ms fastinter {fast}ms fall 2 rise 1 \
             observe layer4 error-limit 1 on-error fail-check on-marked-down shutdown-sessions{off}"
        );
    }
    text
}

const fn balance(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::RoundRobin => "    balance roundrobin\n",
        Algorithm::LeastConn => "    balance leastconn\n",
        Algorithm::Random => "    balance random\n",
        Algorithm::ClientId => "    balance hash var(sess.cid)\n    hash-type consistent\n",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn balancer(algorithm: Algorithm) -> LoadBalancer {
        LoadBalancer {
            backend: "brokers".to_owned(),
            algorithm,
            bind: "*".to_owned(),
            port: 1883,
            maxconn: 50_000,
            check_timeout: Duration::from_secs(5),
            check_interval: Duration::from_millis(500),
            proxy_protocol: false,
        }
    }

    /// EL-05: the parameters of Pham's table.
    #[test]
    fn the_file_has_the_parameters_of_the_source() {
        let servers = [Some(Server { host: "127.0.0.1".to_owned(), mqtt: 20_001, http: 20_002 }), None];
        let text = config(&balancer(Algorithm::RoundRobin), Path::new("/s"), &servers);
        for wanted in [
            "maxconn 50000",
            "bind *:1883",
            "noreuseport\n",
            "mode tcp",
            "option clitcpka",
            "option srvtcpka",
            "timeout check 5000",
            "balance roundrobin",
            "server n1 127.0.0.1:20001 check port 20002",
            "server n2 127.0.0.1:1 check port 1",
            "disabled\n",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    /// EL-06
    #[test]
    fn each_algorithm_is_written() {
        for (algorithm, wanted) in [
            (Algorithm::LeastConn, "balance leastconn"),
            (Algorithm::Random, "balance random"),
            (Algorithm::ClientId, "mqtt_field_value(connect,client_identifier)"),
        ] {
            assert!(config(&balancer(algorithm), Path::new("/s"), &[]).contains(wanted));
        }
    }
}
