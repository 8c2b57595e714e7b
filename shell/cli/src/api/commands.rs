//! `sedge status`, `topology`, `sessions`, `routes`, `retained` and `kick`.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use sedge_base::printable;
use sedge_controller::segment;
use sedge_daemon::http::model::{Cleared, Cluster, Kicked, RetainedMessages, Routes, Sessions, Status, Topology};

use super::client::Api;
use super::text;
use crate::failure::Failure;
use crate::out;

/// Which node to ask.
#[derive(Args, Debug)]
pub(crate) struct ApiArgs {
    /// HTTP API of the node to ask
    #[arg(long, value_name = "URL", env = "SEDGE_API", default_value = "http://127.0.0.1:8080")]
    api: String,
    /// File with the token that the API wants (key `http.token_file` of the node)
    #[arg(long, value_name = "FILE", env = "SEDGE_API_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// The token itself; on the command line others on this machine can see it
    #[arg(long, value_name = "TOKEN", env = "SEDGE_API_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Print what the API says, as JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl ApiArgs {
    pub(super) fn client(&self) -> Result<Api, Failure> {
        self.client_at(&self.api)
    }

    /// The same for the API of another node.
    pub(super) fn client_at(&self, base: &str) -> Result<Api, Failure> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(one_token("--token", token)?),
            (None, Some(path)) => {
                let flag = format!("--token-file {}", path.display());
                let text = fs::read_to_string(path).map_err(|error| Failure::usage(format!("{flag}: {error}")))?;
                Some(one_token(&flag, &text)?)
            }
            (None, None) => None,
        };
        Api::new(base, token.as_deref())
    }
}

/// What a header can carry; white space around it does not count.
fn one_token(flag: &str, text: &str) -> Result<String, Failure> {
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::usage(format!("{flag}: is not one token and nothing else")));
    }
    Ok(token.to_owned())
}

/// Which part of a long list to show.
#[derive(Args, Debug)]
pub(crate) struct PageArgs {
    #[command(flatten)]
    api: ApiArgs,
    /// Leave out the first N
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: usize,
    /// Show at most N, up to 1000
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

/// Flags of `sedge sessions`.
#[derive(Args, Debug)]
pub(crate) struct SessionsArgs {
    #[command(flatten)]
    page: PageArgs,
    /// Show only this client, with its subscriptions
    #[arg(long, value_name = "ID")]
    client: Option<String>,
}

/// Flags of `sedge retained`.
#[derive(Args, Debug)]
pub(crate) struct RetainedArgs {
    /// Topic filter; topics that begin with $ want a filter that does
    #[arg(default_value = "#")]
    filter: String,
    /// Clear the retained message of this topic, without wildcards, on all nodes
    #[arg(long)]
    clear: bool,
    /// Show at most N, up to 1000
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    api: ApiArgs,
}

/// Flags of `sedge kick`.
#[derive(Args, Debug)]
pub(crate) struct KickArgs {
    /// Client id; the client may be connected to any node of the cluster
    client: String,
    /// Reason code that an MQTT 5 client is told: 0x87 not authorized, 0x89 server busy, 0x97 quota exceeded ...
    #[arg(long, value_name = "CODE", default_value = "0x98")]
    reason: String,
    /// End its session, too: subscriptions and waiting messages are gone
    #[arg(long)]
    session: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs `sedge status`.
pub(crate) fn status(args: &ApiArgs) -> Result<(), Failure> {
    let api = args.client()?;
    let status = api.get::<Status>("/api/v1/status")?;
    if args.json {
        return out::json_text(&status.body);
    }
    let cluster = api.get::<Cluster>("/api/v1/cluster")?;
    out::line(&text::status(&status.value, &cluster.value))
}

/// Runs `sedge topology`.
pub(crate) fn topology(args: &ApiArgs) -> Result<(), Failure> {
    let answer = args.client()?.get::<Topology>("/api/v1/topology")?;
    if args.json { out::json_text(&answer.body) } else { out::line(&text::topology(&answer.value)) }
}

/// Runs `sedge sessions`.
pub(crate) fn sessions(args: &SessionsArgs) -> Result<(), Failure> {
    let PageArgs { api, offset, limit } = &args.page;
    let wanted = args.client.as_ref().map(|client| format!("&client={}", segment(client))).unwrap_or_default();
    let path = format!("/api/v1/sessions?offset={offset}&limit={limit}{wanted}");
    let answer = api.client()?.get::<Sessions>(&path)?;
    if api.json {
        return out::json_text(&answer.body);
    }
    let Some(client) = &args.client else { return out::line(&text::sessions(&answer.value)) };
    match answer.value.sessions.iter().find(|session| session.client == *client) {
        Some(session) => out::line(&text::session(session)),
        None => Err(Failure::failed(format!("this node has no session of {}", printable(client)))),
    }
}

/// Runs `sedge routes`.
pub(crate) fn routes(args: &PageArgs) -> Result<(), Failure> {
    let PageArgs { api, offset, limit } = args;
    let path = format!("/api/v1/routes?offset={offset}&limit={limit}");
    let answer = api.client()?.get::<Routes>(&path)?;
    if api.json { out::json_text(&answer.body) } else { out::line(&text::routes(&answer.value)) }
}

/// Runs `sedge retained`.
pub(crate) fn retained(args: &RetainedArgs) -> Result<(), Failure> {
    let RetainedArgs { filter, clear, limit, api } = args;
    let client = api.client()?;
    if *clear {
        let answer = client.delete::<Cleared>(&format!("/api/v1/retained/{}", segment(filter)))?;
        let text = format!("the retained message of {} was cleared", printable(&answer.value.topic));
        return if api.json { out::json_text(&answer.body) } else { out::line(&text) };
    }
    // Pages may be short: as many as it takes.
    let (mut cursor, mut messages, mut total) = (Some(0), Vec::new(), 0);
    while let Some(from) = cursor
        && messages.len() < usize::from(*limit)
    {
        let rest = usize::from(*limit) - messages.len();
        let path = format!("/api/v1/retained?filter={}&limit={rest}&cursor={from}", segment(filter));
        let page = client.get::<RetainedMessages>(&path)?.value;
        messages.extend(page.messages);
        (cursor, total) = (page.next, page.total);
    }
    let page = RetainedMessages { total, messages, next: cursor };
    if api.json { out::json(&page) } else { out::line(&text::retained(&page)) }
}

/// Runs `sedge kick`.
pub(crate) fn kick(args: &KickArgs) -> Result<(), Failure> {
    let connection = if args.session { "" } else { "/connection" };
    let path = format!("/api/v1/sessions/{}{connection}?reason={}", segment(&args.client), segment(&args.reason));
    let answer = args.api.client()?.delete::<Kicked>(&path)?;
    if args.api.json {
        return out::json_text(&answer.body);
    }
    out::line(&text::kicked(&answer.value))
}
