//! The dashboard: files of `shell/web/dist`, in the program, compressed. They hold no secrets; the API supplies the data that they show.

use std::fmt::Write;

use axum::extract::State;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::model::Listener;
use super::server::Api;

/// A file in all its forms.
struct Asset {
    path: &'static str,
    kind: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    brotli: &'static [u8],
}

macro_rules! asset {
    ($path:literal, $file:literal, $kind:literal) => {
        Asset {
            path: $path,
            kind: $kind,
            plain: include_bytes!(concat!("../../../web/dist/", $file)),
            gzip: include_bytes!(concat!("../../../web/dist/", $file, ".gz")),
            brotli: include_bytes!(concat!("../../../web/dist/", $file, ".br")),
        }
    };
}

static ASSETS: [Asset; 5] = [
    asset!("/", "index.html", "text/html; charset=utf-8"),
    asset!("/app.js", "app.js", "text/javascript; charset=utf-8"),
    asset!("/app.css", "app.css", "text/css; charset=utf-8"),
    asset!("/licenses.txt", "licenses.txt", "text/plain; charset=utf-8"),
    asset!("/favicon.svg", "favicon.svg", "image/svg+xml"),
];

/// The paths of the dashboard.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    ASSETS.iter().map(|asset| asset.path)
}

/// Whether this path is one of the dashboard.
pub(super) fn has(path: &str) -> bool {
    paths().any(|known| known == path)
}

/// A file of the dashboard.
pub(super) async fn asset(State(api): State<Api>, uri: Uri, headers: HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == uri.path()) else {
        return ApiError::NotFound(format!("there is no {}", uri.path())).into_response();
    };
    let (encoding, body) = encoded(asset, &headers);
    let tag = tag(body);
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let policy = policy(host, &api.facts.listening.listeners);
    let known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let status = if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let mut response = (status, if known { &[] } else { body }).into_response();
    let out = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, asset.kind),
        (CONTENT_SECURITY_POLICY, &policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (CACHE_CONTROL, "no-cache"),
        (VARY, "Accept-Encoding"),
        (ETAG, &tag),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            out.insert(name, value);
        }
    }
    if let Some(encoding) = encoding {
        out.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    response
}

fn tag(body: &[u8]) -> String {
    let mut tag = String::from("\"");
    for byte in Sha256::digest(body).iter().take(12) {
        let _ = write!(tag, "{byte:02x}");
    }
    tag + "\""
}

/// The smallest form that the browser understands.
fn encoded(asset: &Asset, headers: &HeaderMap) -> (Option<&'static str>, &'static [u8]) {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let accepts = |wanted: &str| {
        accepted.split(',').any(|entry| {
            let mut parts = entry.split(';').map(str::trim);
            let names = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
            // A quality of nothing but zeros is a refusal (RFC 9110 section 12.4.2).
            let refused = |part: &str| {
                part.strip_prefix("q=")
                    .is_some_and(|quality| !quality.bytes().any(|byte| (b'1'..=b'9').contains(&byte)))
            };
            names && !parts.any(refused)
        })
    };
    if accepts("br") {
        (Some("br"), asset.brotli)
    } else if accepts("gzip") {
        (Some("gzip"), asset.gzip)
    } else {
        (None, asset.plain)
    }
}

/// Content security policy of the dashboard: the page may use its own files and the API, and speak MQTT with the WebSocket listeners of this node.
fn policy(host: &str, listeners: &[Listener]) -> String {
    let mut policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; connect-src 'self'"
        .to_owned();
    let Ok(host) = host.parse::<Authority>() else { return policy };
    // A semicolon, which an authority may have, would begin a rule of its own.
    if !host.host().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte)) {
        return policy;
    }
    for listener in listeners.iter().filter(|listener| ["ws", "wss"].contains(&listener.protocol.as_str())) {
        if let Some((_, port)) = listener.address.rsplit_once(':')
            && port.parse::<u16>().is_ok()
        {
            let _ = write!(policy, " {}://{}:{port}", listener.protocol, host.host());
        }
    }
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of all files, compressed: what a slow link has to carry.
    const BROTLI_BYTES_MAX: usize = 120 * 1024;

    #[test]
    fn the_dashboard_is_small() {
        let sum: usize = ASSETS.iter().map(|asset| asset.brotli.len()).sum();
        assert!(sum <= BROTLI_BYTES_MAX, "{sum}");
        assert!(ASSETS.iter().all(|asset| asset.plain.len() > 20 && asset.gzip.starts_with(&[0x1f, 0x8b])));
    }

    #[test]
    fn the_page_has_nothing_inline_and_nothing_of_others() {
        let page = std::str::from_utf8(ASSETS[0].plain).unwrap();
        for foreign in ["http:", "https:", "<style", " style=", " onload", " onclick", "data:"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.matches("<script").count() == 1 && page.contains("src=\"/app.js\""));
    }

    #[test]
    fn the_smallest_form_is_sent_that_is_understood() {
        let form = |accepted: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            encoded(&ASSETS[1], &headers).0
        };
        assert_eq!((form("gzip, deflate, br"), form("gzip;q=1.0, *;q=0"), form("")), (Some("br"), Some("gzip"), None));
        assert_eq!((form("br;q=0, gzip"), form("br;q=0.000"), form("br;q=0.5")), (Some("gzip"), None, Some("br")));
    }

    #[test]
    fn the_page_may_reach_this_node_only() {
        let listener = |protocol: &str, address: &str| Listener {
            name: "x".to_owned(),
            protocol: protocol.to_owned(),
            address: address.to_owned(),
        };
        let listeners = [listener("ws", "0.0.0.0:8083"), listener("tcp", "0.0.0.0:1883"), listener("ws", "unix:/x")];
        assert!(policy("gw-1:8080", &listeners).ends_with("connect-src 'self' ws://gw-1:8083"));
        for odd in ["a; script-src *", "a;sandbox", "a,b", "a'b", "", "*"] {
            assert!(policy(odd, &listeners).ends_with("connect-src 'self'"), "{odd}");
        }
    }
}
