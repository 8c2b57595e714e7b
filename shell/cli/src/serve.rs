//! `sedge serve` and `sedge config check`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::process::{Signal, getpid, kill_process, setsid};
use sedge_daemon::config::MULTICAST_GROUP;
use sedge_daemon::{Addresses, Config, ConfigError, Digests, ListenerAddress, Overrides, ReadAgain, init_logging};
use serde_json::{Value, json};

use crate::failure::{Failure, USAGE};
use crate::out;

/// How long a node may take to say good-bye when the process that started it is gone.
const GOOD_BYE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  sedge serve                                       a single node with all defaults
  sedge serve -c /etc/sedge/sedge.toml
  SEDGE_CLUSTER__KEY=... sedge serve --seed gw-1 --seed gw-2:7883
  SEDGE_CLUSTER__KEY=... sedge serve --multicast    with all nodes of this network that have the same key

Every key of the file can also be given by the environment: cluster.name is SEDGE_CLUSTER__NAME. Flags win over the
environment, the environment wins over the file.";

/// Run one node.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Port for clients [key mqtt.port]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Address for clients, also for those of the flags below [key mqtt.bind]
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<String>,
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    #[arg(help = "Certificate chain (PEM): listen with TLS, too [key listener.tls.cert_file]")]
    tls_cert: Option<String>,
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    #[arg(help = "Private key of the certificate (PEM) [key listener.tls.key_file]")]
    tls_key: Option<String>,
    /// Port for TLS, 8883 if nothing is said [key listener.tls.port]
    #[arg(long, value_name = "PORT", requires = "tls_cert")]
    tls_port: Option<u16>,
    /// Listen for WebSocket on this port, path /mqtt [key listener.ws.port]
    #[arg(long, value_name = "PORT")]
    ws_port: Option<u16>,
    /// Listen for WebSocket over TLS on this port, path /mqtt [key listener.wss.port]
    #[arg(long, value_name = "PORT", requires = "tls_cert")]
    wss_port: Option<u16>,
    /// Port for other nodes, TCP and UDP [key cluster.port]
    #[arg(long, value_name = "PORT")]
    cluster_port: Option<u16>,
    /// Port of the HTTP API [key http.port]
    #[arg(long, value_name = "PORT")]
    http_port: Option<u16>,
    #[arg(long, value_name = "DIR", help = "Directory for what survives a restart [key node.data_dir]")]
    data_dir: Option<String>,
    /// Another node to ask first, or srv:SERVICE for SRV records; may be repeated [key cluster.seeds]
    #[arg(long = "seed", value_name = "HOST[:PORT]")]
    seeds: Vec<String>,
    /// Find nodes of the same network by UDP multicast, 239.192.0.1:7884 if no group is named [key discovery.multicast]
    #[arg(long, value_name = "GROUP[:PORT]", num_args = 0..=1, require_equals = true, default_missing_value = MULTICAST_GROUP)]
    multicast: Option<String>,
    /// Name of the node in listings [key node.name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print one line of JSON as soon as the node listens
    #[arg(long)]
    json: bool,
    /// End when standard input does: it is a pipe that the process which started this one holds
    #[arg(long, hide = true)]
    exit_with_parent: bool,
    /// Leave the terminal
    #[arg(long, hide = true)]
    own_session: bool,
}

impl ServeArgs {
    fn overrides(&self) -> Overrides {
        let text = |port: Option<u16>| port.map(|port| port.to_string());
        let seeds = (!self.seeds.is_empty()).then(|| self.seeds.join(","));
        let mut overrides = Overrides::new();
        let for_wss = |file: &Option<String>| self.wss_port.and_then(|_| file.clone());
        let bind = |wanted: bool| self.bind.clone().filter(|_| wanted);
        let listeners = [
            ("listener.tls.cert_file", "--tls-cert", self.tls_cert.clone()),
            ("listener.tls.key_file", "--tls-key", self.tls_key.clone()),
            ("listener.tls.port", "--tls-port", text(self.tls_port)),
            ("listener.tls.bind", "--bind", bind(self.tls_cert.is_some())),
            ("listener.ws.port", "--ws-port", text(self.ws_port)),
            ("listener.ws.bind", "--bind", bind(self.ws_port.is_some())),
            ("listener.wss.port", "--wss-port", text(self.wss_port)),
            ("listener.wss.bind", "--bind", bind(self.wss_port.is_some())),
            ("listener.wss.cert_file", "--tls-cert", for_wss(&self.tls_cert)),
            ("listener.wss.key_file", "--tls-key", for_wss(&self.tls_key)),
        ];
        let others = [
            ("mqtt.port", "--port", text(self.port)),
            ("mqtt.bind", "--bind", self.bind.clone()),
            ("cluster.port", "--cluster-port", text(self.cluster_port)),
            ("http.port", "--http-port", text(self.http_port)),
            ("node.data_dir", "--data-dir", self.data_dir.clone()),
            ("cluster.seeds", "--seed", seeds),
            ("discovery.multicast", "--multicast", self.multicast.clone()),
            ("node.name", "--name", self.name.clone()),
        ];
        for (key, flag, value) in others.into_iter().chain(listeners) {
            if let Some(value) = value {
                overrides.set(key, value, flag);
            }
        }
        overrides
    }
}

/// Runs `sedge serve`.
pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let loaded = load(args.config.as_deref(), &args.overrides())?;
    if args.own_session {
        // A process that leads a session already stays as it is, as wanted.
        let _ = setsid();
    }
    if args.exit_with_parent {
        end_with_standard_input()?;
    }
    init_logging(&loaded.0);
    let as_json = args.json;
    let (path, overrides) = (args.config.clone(), args.overrides());
    let (file, flags) = (args.config.clone(), args.overrides());
    let config =
        move || Config::load_comparable(path.as_deref(), environment(), &overrides).map_err(|error| error.to_string());
    let settings = move || Config::explain(file.as_deref(), environment(), &flags).map_err(|error| error.to_string());
    let again = ReadAgain { config: Box::new(config), settings: Box::new(settings) };
    sedge_daemon::run(loaded, again, move |addresses| {
        // That nobody reads standard output is no reason not to serve.
        let _ = if as_json { out::json(&describe(addresses)) } else { out::line(&announce(addresses)) };
    })
    .map_err(|error| Failure::cannot_start(error.to_string()))
}

fn load(path: Option<&Path>, overrides: &Overrides) -> Result<(Config, Digests), Failure> {
    Config::load_comparable(path, environment(), overrides).map_err(|error| Failure::new(USAGE, error.to_string()))
}

/// Keys whose value may be a file that systemd hands over (`LoadCredential=NAME:PATH`), by the name of the credential.
const CREDENTIALS: &[(&str, &str, &str)] = &[
    ("cluster.key", "SEDGE_CLUSTER__KEY_FILE", "SEDGE_CLUSTER__KEY"),
    ("http.token", "SEDGE_HTTP__TOKEN_FILE", "SEDGE_HTTP__TOKEN"),
];

/// Variables of the environment for the configuration, and the files that systemd hands over in `$CREDENTIALS_DIRECTORY`. Variables that
/// are not text are left out: they are none of the configuration's.
pub(crate) fn environment() -> Vec<(String, String)> {
    let texts =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut variables: Vec<(String, String)> = texts.collect();
    let Some(directory) = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from) else { return variables };
    for (credential, variable, other) in CREDENTIALS {
        let path = directory.join(credential);
        let is_given = variables.iter().any(|(name, value)| (name == variable || name == other) && !value.is_empty());
        if let Some(path) = path.to_str().filter(|_| !is_given && path.is_file()) {
            variables.push(((*variable).to_owned(), path.to_owned()));
        }
    }
    variables
}

fn describe(addresses: &Addresses) -> Value {
    let texts: Vec<String> = addresses.mqtt.iter().map(ToString::to_string).collect();
    json!({
        "event": "ready",
        "pid": std::process::id(),
        "mqtt": texts,
        "listeners": addresses.listeners.iter().map(|listener| {
            json!({ "name": listener.name, "protocol": listener.protocol, "address": listener.address })
        }).collect::<Vec<_>>(),
        "cluster": addresses.cluster.to_string(),
        "http": addresses.http.map(|address| address.to_string()),
    })
}

fn announce(addresses: &Addresses) -> String {
    let text = |listener: &ListenerAddress| match listener.protocol {
        "tcp" => listener.address.clone(),
        protocol => format!("{} ({protocol})", listener.address),
    };
    let texts: Vec<String> = addresses.listeners.iter().map(text).collect();
    let http = addresses.http.map_or_else(|| "off".to_owned(), |address| format!("http://{address}"));
    format!("ready: MQTT on {}, other nodes on {}, API {http}", texts.join(" and "), addresses.cluster)
}

/// The only way without unsafe code to learn that the parent is gone, however it went.
fn end_with_standard_input() -> Result<(), Failure> {
    let watch = || {
        let mut rest = [0; 64];
        let mut input = std::io::stdin().lock();
        while matches!(input.read(&mut rest), Ok(1..)) {}
        let _ = kill_process(getpid(), Signal::TERM);
        thread::sleep(GOOD_BYE);
        let _ = kill_process(getpid(), Signal::KILL);
    };
    let started = thread::Builder::new().name("parent".to_owned()).spawn(watch);
    started.map(|_| ()).map_err(|error| Failure::cannot_start(format!("cannot start a thread: {error}")))
}

/// Flags of `sedge config check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Configuration file (TOML); without it only the environment is checked
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `sedge config check`.
pub(crate) fn check(args: &CheckArgs) -> Result<(), Failure> {
    let loaded = Config::load(args.config.as_deref(), environment(), &Overrides::new());
    if args.json {
        let problems = loaded.as_ref().err().map(problems).unwrap_or_default();
        out::json(&json!({ "valid": problems.is_empty(), "problems": problems }))?;
        return if loaded.is_ok() { Ok(()) } else { Err(Failure::silent(USAGE)) };
    }
    loaded.map_err(|error| Failure::new(USAGE, error.to_string()))?;
    match &args.config {
        Some(path) => out::line(&format!("{}: valid", path.display())),
        None => out::line("the environment is valid; no file was given with -c"),
    }
}

fn problems(error: &ConfigError) -> Vec<Value> {
    let describe = |problem: &sedge_daemon::config::Problem| {
        json!({
            "where": problem.origin.to_string(),
            "key": problem.key,
            "problem": problem.what,
            "nearest": problem.nearest,
        })
    };
    error.problems.iter().map(describe).collect()
}
