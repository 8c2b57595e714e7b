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
    config.http.open = HttpOpen { health: false, metrics: false };
    let node = Daemon::start(&config).unwrap();
    for path in ["/health/live", "/metrics"] {
        assert_eq!(get(&node, path).0, 401, "{path}");
        assert_eq!(request_with(&node, "GET", path, &bearer("first-0123456789")).0, 200, "{path}");
    }
}
