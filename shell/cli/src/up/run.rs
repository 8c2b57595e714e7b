//! `sedge up`.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::args::UpArgs;
use super::broker::Broker;
use super::cluster::Cluster;
use super::node::Node;
use super::plan::{add_websockets, check_free, default_dir, describe_brokers, plan};
use super::proof::send_through;
use super::state::State;
use super::token::Token;
use crate::failure::Failure;
use crate::out;
use crate::stop::Stop;
use crate::table::table;

/// Runs `sedge up`.
pub(crate) fn run(args: &UpArgs) -> Result<(), Failure> {
    let dir = match &args.data_dir {
        Some(dir) => std::path::absolute(dir).map_err(|error| Failure::usage(format!("--data-dir: {error}")))?,
        None => default_dir(args.port),
    };
    let mut plans = plan(args, &dir)?;
    // Before anything is started: a cluster that misses one broker of four would be torn down again.
    let makes = plans.iter().filter_map(|plan| Some(plan.broker.as_ref()?.make.as_str()));
    sedge_bench::check_brokers(makes).map_err(|error| Failure::cannot_start(format!("--upstream: {error}")))?;
    refuse_second(&dir)?;
    check_free(&plans)?;
    add_websockets(&mut plans);
    describe_brokers(&mut plans);
    let stop = Stop::on_signals()?;
    let mut token = Token::make(&dir, &plans)?;
    let mut cluster = Cluster::start(&plans, &args.settings(), token.as_ref(), args.detach, &stop)?;
    cluster.wait_ready(token.as_ref(), &stop)?;
    let took = prove(&cluster)?;
    if args.detach {
        State::of(&cluster)?.save(&dir)?;
    }
    if args.json {
        out::json(&describe(&cluster, &dir, token.as_ref(), took))?;
    } else {
        out::line(&announce(&cluster, args, token.as_ref(), took))?;
    }
    if args.detach {
        cluster.release();
        token.as_mut().into_iter().for_each(Token::keep);
        return Ok(());
    }
    let watched = cluster.watch(&stop);
    let late = cluster.stop();
    if !late.is_empty() {
        out::note(&format!("warning: did not end in time and were killed: {}", late.join(", ")));
    }
    watched
}

/// Two clusters in one directory would work on the same data.
fn refuse_second(dir: &Path) -> Result<(), Failure> {
    let running = State::load(dir)?.is_some_and(|state| state.nodes.iter().any(super::state::NodeState::is_running));
    if !running {
        return Ok(());
    }
    let dir = dir.display();
    Err(Failure::cannot_start(format!(
        "a cluster in {dir} is running already; stop it with: sedge down --data-dir {dir}"
    )))
}

/// How long a message takes from the first to the last node; `None` if they are the same.
fn prove(cluster: &Cluster) -> Result<Option<Duration>, Failure> {
    let [first, .., last] = cluster.nodes() else { return Ok(None) };
    send_through(first.plan.mqtt, last.plan.mqtt).map(Some).map_err(|error| {
        let (from, to) = (&first.plan.name, &last.plan.name);
        Failure::failed(format!("the nodes run, but no message goes from {from} to {to}: {error}"))
    })
}

fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 10_000.0).round() / 10.0
}

fn describe(cluster: &Cluster, dir: &Path, token: Option<&Token>, took: Option<Duration>) -> Value {
    let node = |node: &Node| {
        json!({
            "name": node.plan.name,
            "pid": node.pid(),
            "mqtt": format!("127.0.0.1:{}", node.plan.mqtt),
            "ws": node.plan.ws.map(|port| format!("127.0.0.1:{port}")),
            "http": node.plan.api(),
            "cluster": format!("127.0.0.1:{}", node.plan.cluster),
            "log": node.plan.log(),
            "upstream": node.plan.broker.as_ref().map(|broker| json!({
                "make": broker.make,
                "address": format!("127.0.0.1:{}", broker.port),
                "pid": cluster.brokers().iter().find(|known| known.node == node.plan.name).map(Broker::pid),
            })),
        })
    };
    let nodes: Vec<Value> = cluster.nodes().iter().map(node).collect();
    json!({ "event": "ready", "data_dir": dir, "token_file": token.map(Token::file), "nodes": nodes, "message_ms": took.map(millis) })
}

fn announce(cluster: &Cluster, args: &UpArgs, token: Option<&Token>, took: Option<Duration>) -> String {
    let nodes = cluster.nodes();
    let row = |node: &Node| {
        let plan = &node.plan;
        let mut row =
            vec![plan.name.clone(), format!("mqtt://127.0.0.1:{}", plan.mqtt), plan.api(), node.pid().to_string()];
        row.extend(plan.broker.iter().map(|broker| format!("{} 127.0.0.1:{}", broker.make, broker.port)));
        row
    };
    let has_brokers = !cluster.brokers().is_empty();
    let heads = ["NAME", "MQTT", "HTTP", "PID"].into_iter().chain(has_brokers.then_some("BROKER")).collect::<Vec<_>>();
    let listing = table(&heads, &nodes.iter().map(row).collect::<Vec<_>>());
    let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else { return listing };
    let proof = took.map_or_else(String::new, |took| {
        format!("\n\na message went from {} to {} in {:.1} ms", first.plan.name, last.plan.name, millis(took))
    });
    let api = if args.http_port == 8080 { String::new() } else { format!(" --api {}", first.plan.api()) };
    let stop = if args.detach { down_line(args) } else { "Ctrl-C".to_owned() };
    format!(
        "{listing}{proof}\n\nTry\n  mosquitto_sub -p {to} -t 'hello/#' -v        (or: sedge sub -p {to} -t 'hello/#' -v)\n  \
         mosquitto_pub -p {from} -t hello/world -m hi   (or: sedge pub -p {from} -t hello/world -m hi)\n  \
         sedge status{api}\n  {page}/{fragment}   in a browser: the dashboard\nStop with\n  {stop}",
        to = last.plan.mqtt,
        from = first.plan.mqtt,
        page = first.plan.api(),
        fragment = token.map_or_else(String::new, |token| format!("#token={}", token.text())),
    )
}

fn down_line(args: &UpArgs) -> String {
    match &args.data_dir {
        Some(dir) => format!("sedge down --data-dir {}", dir.display()),
        None if args.port == 1883 => "sedge down".to_owned(),
        None => format!("sedge down --port {}", args.port),
    }
}
