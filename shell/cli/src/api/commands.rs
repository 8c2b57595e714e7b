//! `sedge status`, `topology`, `sessions`, `routes`, `bridges`, `rules`, `retained` and `kick`.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sedge_base::printable;
use sedge_controller::segment;
use sedge_daemon::http::model::{
    BridgeList, Cleared, Cluster, Kicked, Members, RetainedMessages, Routes, RuleList, Sessions, Status, Topology,
};
use serde::de::DeserializeOwned;

use super::client::Api;
use super::names::Names;
use super::text;
use super::watch::{Page, WatchArgs};
use super::workers;
use crate::failure::Failure;
use crate::out;

/// Which node to ask.
#[derive(Args, Debug)]
pub(crate) struct ApiArgs {
    /// HTTP API of the node to ask
    #[arg(long, value_name = "URL", env = "SEDGE_API", default_value = "http://127.0.0.1:8080")]
    api: String,
    /// File with the token that the API wants (key `http.token_file` of the node); that of a cluster of `sedge up` is found without
    #[arg(long, value_name = "FILE", env = "SEDGE_API_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// The token itself; on the command line others on this machine can see it
    #[arg(long, value_name = "TOKEN", env = "SEDGE_API_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Print what the API says, as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Show the ids of nodes beside their names
    #[arg(long)]
    pub(super) ids: bool,
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
            (None, None) => crate::up::known_token(base).and_then(|text| one_token("api-token", &text).ok()),
        };
        Api::new(base, token.as_deref())
    }
}

impl ApiArgs {
    /// Names of the cluster's nodes.
    pub(super) fn names(&self, api: &Api) -> Result<Names, Failure> {
        Ok(Names::new(&api.get::<Cluster>("/api/v1/cluster")?.value, self.ids))
    }
}

/// Flags of a listing that has no more of them.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(super) api: ApiArgs,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
}

/// Whom a listing is about.
#[derive(Args, Debug)]
pub(crate) struct WhichNode {
    /// Show only what this node knows: its name or id; all nodes if not given
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
}

impl WhichNode {
    /// The parameter of a request.
    pub(super) fn wanted(&self) -> String {
        format!("node={}", segment(self.node.as_deref().unwrap_or("*")))
    }
}

/// Flags of a listing of the whole cluster that has no more of them.
#[derive(Args, Debug)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    which: WhichNode,
    #[command(flatten)]
    api: ApiArgs,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Flags of `sedge status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Show this node in full: its name or id; the node that is asked if not given
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
    #[command(flatten)]
    watch: WatchArgs,
}

/// The text as a token that a header can carry, without the white space around it.
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
    which: WhichNode,
    #[command(flatten)]
    api: ApiArgs,
    #[command(flatten)]
    watch: WatchArgs,
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
    /// Show only sessions with this in their client id, address or user
    #[arg(long, value_name = "TEXT", conflicts_with = "client")]
    search: Option<String>,
    /// Sort by this: names upward, numbers from the largest down
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["client", "offset"])]
    sort: Option<Sort>,
    /// Sort the other way round
    #[arg(long, requires = "sort")]
    reverse: bool,
}

/// What sessions are sorted by.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Client,
    Queued,
    Bytes,
    Inflight,
    Subscriptions,
    Away,
}

impl SessionsArgs {
    /// Query parameters besides those for the part of the list.
    fn wanted(&self) -> String {
        let mut wanted = self.client.as_ref().map(|client| format!("&client={}", segment(client))).unwrap_or_default();
        if let Some(text) = &self.search {
            let _ = write!(wanted, "&search={}", segment(text));
        }
        if let Some(sort) = self.sort {
            let name = sort.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
            let order = if (sort == Sort::Client) == self.reverse { "desc" } else { "asc" };
            let _ = write!(wanted, "&sort={name}&order={order}");
        }
        wanted
    }
}

/// Flags of `sedge retained`.
#[derive(Args, Debug)]
pub(crate) struct RetainedArgs {
    /// Topic filter; topics that begin with $ want a filter that does
    #[arg(default_value = "#")]
    filter: String,
    /// Clear the retained message of this topic, without wildcards, on all nodes
    #[arg(long, conflicts_with = "watch")]
    clear: bool,
    /// Show at most N, up to 1000
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    which: WhichNode,
    #[command(flatten)]
    api: ApiArgs,
    #[command(flatten)]
    watch: WatchArgs,
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
pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let api = args.api.client()?;
    let node = args.node.as_ref().map(|node| format!("?node={}", segment(node))).unwrap_or_default();
    args.watch.show(|| {
        let status = api.get::<Status>(&format!("/api/v1/status{node}"))?;
        let members = api.get::<Members>("/api/v1/members")?;
        if args.api.json {
            return with_members(&status.body, &members.body).map(Page::Json);
        }
        let cluster = api.get::<Cluster>("/api/v1/cluster")?.value;
        let names = Names::new(&cluster, args.api.ids);
        Ok(Page::Text(text::status(&status.value, &cluster, &members.value, &names)))
    })
}

/// The status of a node, with the members of the cluster as `all_members`.
fn with_members(status: &str, members: &str) -> Result<String, Failure> {
    let wrong = |error: serde_json::Error| Failure::failed(format!("an answer of the API is no JSON: {error}"));
    let mut both: serde_json::Map<String, serde_json::Value> = serde_json::from_str(status).map_err(wrong)?;
    both.insert("all_members".to_owned(), serde_json::from_str(members).map_err(wrong)?);
    serde_json::to_string(&both).map_err(wrong)
}

/// Runs `sedge topology`.
pub(crate) fn topology(args: &ClusterArgs) -> Result<(), Failure> {
    let path = format!("/api/v1/topology?{}", args.which.wanted());
    listing(&args.api, &args.watch, &path, |topology: &Topology, names| Ok(text::topology(topology, names)))
}

/// Shows the API's answer at `path`: as it is, or as `text` puts it.
pub(super) fn listing<T: DeserializeOwned>(
    args: &ApiArgs,
    watch: &WatchArgs,
    path: &str,
    text: impl Fn(&T, &Names) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let api = args.client()?;
    watch.show(|| {
        let answer = api.get::<T>(path)?;
        if args.json {
            return Ok(Page::Json(answer.body));
        }
        text(&answer.value, &args.names(&api)?).map(Page::Text)
    })
}

/// Runs `sedge sessions`.
pub(crate) fn sessions(args: &SessionsArgs) -> Result<(), Failure> {
    let PageArgs { which, api, watch, offset, limit } = &args.page;
    let (wanted, whom) = (args.wanted(), which.wanted());
    let path = format!("/api/v1/sessions?{whom}&offset={offset}&limit={limit}{wanted}");
    listing(api, watch, &path, |found: &Sessions, names| {
        let Some(wanted) = &args.client else { return Ok(text::sessions(found, names)) };
        if let Some(session) = found.sessions.iter().find(|session| session.client == *wanted) {
            return Ok(text::session(session, names));
        }
        let whom = which
            .node
            .as_ref()
            .map_or_else(|| "no node has a".to_owned(), |node| format!("{} has no", printable(node)));
        let silent = text::silent(&found.silent);
        Err(Failure::failed(format!("{whom} session of {}{silent}", printable(wanted))))
    })
}

/// Runs `sedge routes`.
pub(crate) fn routes(args: &PageArgs) -> Result<(), Failure> {
    let PageArgs { which, api, watch, offset, limit } = args;
    let path = format!("/api/v1/routes?{}&offset={offset}&limit={limit}", which.wanted());
    listing(api, watch, &path, |routes: &Routes, names| Ok(text::routes(routes, names)))
}

/// Runs `sedge bridges`.
pub(crate) fn bridges(args: &ClusterArgs) -> Result<(), Failure> {
    let path = format!("/api/v1/bridges?{}", args.which.wanted());
    listing(&args.api, &args.watch, &path, |list: &BridgeList, names| Ok(workers::bridges(list, names)))
}

/// Runs `sedge rules`.
pub(crate) fn rules(args: &ClusterArgs) -> Result<(), Failure> {
    let path = format!("/api/v1/rules?{}", args.which.wanted());
    listing(&args.api, &args.watch, &path, |list: &RuleList, names| Ok(workers::rules(list, names)))
}

/// Runs `sedge retained`.
pub(crate) fn retained(args: &RetainedArgs) -> Result<(), Failure> {
    let RetainedArgs { filter, clear, api, watch, .. } = args;
    let client = api.client()?;
    if *clear {
        let answer = client.delete::<Cleared>(&format!("/api/v1/retained/{}", segment(filter)))?;
        let text = format!("the retained message of {} was cleared", printable(&answer.value.topic));
        return if api.json { out::json_text(&answer.body) } else { out::line(&text) };
    }
    watch.show(|| {
        let page = retained_page(args, &client)?;
        if api.json { Page::json(&page) } else { Ok(Page::Text(text::retained(&page))) }
    })
}

/// Pages of the API may be short: asks for as many as it takes.
fn retained_page(args: &RetainedArgs, client: &Api) -> Result<RetainedMessages, Failure> {
    let RetainedArgs { filter, limit, which, .. } = args;
    let (mut cursor, mut messages, mut last) = (Some(0), Vec::new(), None);
    let mut whom = which.wanted();
    while let Some(from) = cursor
        && messages.len() < usize::from(*limit)
    {
        let rest = usize::from(*limit) - messages.len();
        let path = format!("/api/v1/retained?filter={}&limit={rest}&cursor={from}&{whom}", segment(filter));
        let page = client.get::<RetainedMessages>(&path)?.value;
        messages.extend(page.messages.iter().cloned());
        cursor = page.next;
        if which.node.is_none() {
            // All members have been compared.
            whom.clear();
        }
        last = Some(last.unwrap_or(RetainedMessages { messages: Vec::new(), ..page }));
    }
    let Some(first) = last else { return Err(Failure::usage("--limit: at least 1")) };
    Ok(RetainedMessages { messages, next: cursor, ..first })
}

/// Runs `sedge kick`.
pub(crate) fn kick(args: &KickArgs) -> Result<(), Failure> {
    let connection = if args.session { "" } else { "/connection" };
    let path = format!("/api/v1/sessions/{}{connection}?reason={}", segment(&args.client), segment(&args.reason));
    let api = args.api.client()?;
    let answer = api.delete::<Kicked>(&path)?;
    if args.api.json {
        return out::json_text(&answer.body);
    }
    out::line(&text::kicked(&answer.value, &args.api.names(&api)?))
}
