//! Which requests a page of another site may have sent through a browser on this machine. They get 403 unless they show the token.

use std::net::IpAddr;

use axum::http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method};

use super::error::ApiError;

/// A header of its own: a page of another site cannot send it without asking first, and nobody answers that question.
const OWN: HeaderName = HeaderName::from_static("x-sedge");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses a request without a token that a foreign page may have caused. `names` are the host names of this node.
pub(super) fn check(method: &Method, headers: &HeaderMap, names: &[String]) -> Result<(), ApiError> {
    let host = match headers.get(HOST) {
        Some(host) => Some(host.to_str().map_err(|_no_text| ApiError::ForeignHost("that is no text".to_owned()))?),
        None => None,
    };
    if let Some(host) = host
        && !is_own(host, names)
    {
        return Err(ApiError::ForeignHost(format!("{host:?}")));
    }
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("no text"));
    if let Some(site) = text(FETCH_SITE)
        && !["same-origin", "none"].contains(&site)
    {
        return Err(ApiError::ForeignOrigin(format!("Sec-Fetch-Site: {site:?}")));
    }
    if let Some(origin) = text(ORIGIN)
        && origin.split_once("://").map(|(_, host)| host) != host
    {
        return Err(ApiError::ForeignOrigin(format!("Origin: {origin:?}")));
    }
    // DELETE, too, makes a browser ask before; a form can send POST.
    let of_a_form = method == Method::POST && !headers.contains_key(OWN) && !is_json(headers);
    if of_a_form { Err(ApiError::OfAForm) } else { Ok(()) }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// Whether a name server of somebody else has no say in this host: an address, localhost, or a name that the configuration has.
fn is_own(host: &str, names: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let host = authority.host();
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    address.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(method: &Method, headers: &[(&'static str, &'static str)]) -> Result<(), ApiError> {
        let pairs = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        check(method, &pairs.collect(), &["gw-1.example".to_owned()])
    }

    #[test]
    fn a_host_that_others_can_turn_here_is_foreign() {
        for own in ["127.0.0.1:8080", "10.0.0.1", "[::1]:8080", "localhost:8080", "LocalHost", "GW-1.example:8080"] {
            assert!(checked(&Method::GET, &[("host", own)]).is_ok(), "{own}");
        }
        for foreign in ["evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "gw-1", "", "a b"] {
            let refused = checked(&Method::GET, &[("host", foreign)]);
            assert!(matches!(refused, Err(ApiError::ForeignHost(_))), "{foreign}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:8080");
        let site = |method: &Method, header| checked(method, &[HOST, ("x-sedge", "1"), header]);
        for header in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "http://evil.example"),
            ("origin", "http://127.0.0.1:9090"),
            ("origin", "null"),
        ] {
            for method in [Method::GET, Method::POST, Method::DELETE] {
                assert!(matches!(site(&method, header), Err(ApiError::ForeignOrigin(_))), "{header:?}");
            }
        }
        for header in
            [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none"), ("origin", "http://127.0.0.1:8080")]
        {
            assert!(site(&Method::POST, header).is_ok(), "{header:?}");
        }
    }

    #[test]
    fn what_a_form_can_send_changes_nothing() {
        const HOST: (&str, &str) = ("host", "localhost");
        assert!(matches!(checked(&Method::POST, &[HOST]), Err(ApiError::OfAForm)));
        assert!(matches!(checked(&Method::POST, &[HOST, ("content-type", "text/plain")]), Err(ApiError::OfAForm)));
        assert!(checked(&Method::POST, &[HOST, ("content-type", "application/json; charset=utf-8")]).is_ok());
        assert!(checked(&Method::POST, &[HOST, ("x-sedge", "1")]).is_ok());
        assert!(checked(&Method::DELETE, &[HOST]).is_ok());
    }
}
