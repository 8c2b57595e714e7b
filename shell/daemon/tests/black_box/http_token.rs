//! The HTTP API of a node that wants a token.

use std::fs;

use sedge_daemon::Daemon;
use sedge_daemon::config::HttpOpen;

use crate::common::*;

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// Everything but health and metrics wants it, what does not exist as well.
#[test]
fn the_api_wants_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "first-0123456789\n").unwrap();
    let mut config = config(&[]);
    config.http.token_file = Some(file.clone());
    let node = Daemon::start(&config).unwrap();
    for (method, path) in [
        ("GET", "/api/v1/status"),
        ("GET", "/api/v1/sessions"),
        ("GET", "/api/v1/retained"),
        ("DELETE", "/api/v1/sessions/x"),
        ("DELETE", "/api/v1/retained/x"),
        ("POST", "/api/v1/reload"),
        ("GET", "/api/v1/openapi.json"),
        ("GET", "/else"),
    ] {
        let (status, body) = request(&node, method, path);
        assert!(status == 401 && body.contains("no_token") && body.contains("--token-file"), "{path}: {status} {body}");
        let (status, body) = request_with(&node, method, path, &bearer("other-0123456789"));
        assert!(status == 401 && body.contains("wrong_token"), "{path}: {status} {body}");
        let (status, _) = request_with(&node, method, path, &bearer("first-0123456789"));
        assert_ne!(status, 401, "{path}");
    }
    for path in ["/health/live", "/health/ready", "/metrics"] {
        assert_eq!(get(&node, path).0, 200, "{path}");
    }
    // Another token without a restart; one that cannot be used changes nothing.
    for (text, status) in [("short", 422), ("second-0123456789", 200)] {
        fs::write(&file, text).unwrap();
        let (told, body) = request_with(&node, "POST", "/api/v1/reload", &bearer("first-0123456789"));
        assert_eq!(told, status, "{body}");
    }
    assert_eq!(request_with(&node, "GET", "/api/v1/status", &bearer("first-0123456789")).0, 401);
    assert_eq!(request_with(&node, "GET", "/api/v1/status", &bearer("second-0123456789")).0, 200);
}

#[test]
fn health_and_metrics_may_want_it_too() {
    let mut config = config(&[]);
    config.http.token = Some(sedge_daemon::config::Secret::new("first-0123456789"));
    config.http.open = HttpOpen { health: false, metrics: false, reads: false };
    let node = Daemon::start(&config).unwrap();
    for path in ["/health/live", "/metrics"] {
        assert_eq!(get(&node, path).0, 401, "{path}");
        assert_eq!(request_with(&node, "GET", path, &bearer("first-0123456789")).0, 200, "{path}");
    }
}

/// A page of another site cannot end a node or read from it, whatever a browser lets it send.
#[test]
fn pages_of_other_sites_are_refused() {
    let mut config = config(&[]);
    config.http.names = vec!["gw-1.example".to_owned()];
    let node = Daemon::start(&config).unwrap();
    let own = node.addresses().http.unwrap().to_string();
    let asked = |host: &str, method: &str, path: &str, headers: &str| {
        let (status, body) = request_at(&node, host, method, path, headers);
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        (status, body["error"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |word: &str| (403, word.to_owned());
    for headers in ["Sec-Fetch-Site: cross-site\r\n", "Origin: http://evil.example\r\n", "Origin: null\r\n"] {
        let all = format!("X-Sedge: 1\r\n{headers}");
        assert_eq!(asked(&own, "POST", "/api/v1/drain?stop=true", &all), refused("foreign_origin"), "{headers}");
        assert_eq!(asked(&own, "DELETE", "/api/v1/retained/x", headers), refused("foreign_origin"), "{headers}");
        assert_eq!(asked(&own, "GET", "/api/v1/sessions", headers), refused("foreign_origin"), "{headers}");
    }
    for (method, path) in [("GET", "/api/v1/sessions"), ("GET", "/api/v1/retained"), ("DELETE", "/api/v1/sessions/x")] {
        assert_eq!(asked("evil.example", method, path, ""), refused("foreign_host"), "{path}");
    }
    let form = "Content-Type: text/plain\r\nContent-Length: 0\r\n";
    for headers in ["", form] {
        assert_eq!(asked(&own, "POST", "/api/v1/drain?stop=true", headers), refused("form"));
    }
    let page = format!("Sec-Fetch-Site: same-origin\r\nOrigin: http://{own}\r\nX-Sedge: 1\r\n");
    assert_eq!(asked(&own, "POST", "/api/v1/reload", &page).0, 200);
    for host in [own.as_str(), "localhost", "GW-1.example:8080"] {
        assert_eq!(asked(host, "GET", "/api/v1/status", "").0, 200, "{host}");
    }
    assert_eq!(request_at(&node, "probe.example", "GET", "/health/live", "").0, 200);
    assert_eq!(request_at(&node, "probe.example", "GET", "/metrics", "").0, 200);
}
