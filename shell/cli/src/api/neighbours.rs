//! `sedge neighbours` and `sedge neighbour`.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use sedge_controller::segment;
use sedge_daemon::http::model::{Neighbour, Neighbours};

use super::client::{Answer, Api};
use super::commands::{ApiArgs, ListArgs, listing};
use super::text;
use crate::failure::Failure;
use crate::out;

/// How often the node is asked how far it has come.
const PERIOD: Duration = Duration::from_millis(50);

/// Choose the links over which publications go, with `cluster.links = "manual"`.
#[derive(Subcommand, Debug)]
pub(crate) enum NeighbourCommand {
    /// Choose a link to another node; returns when all nodes route by it
    Add(NeighbourArgs),
    /// End a link, whichever of its ends has chosen it
    Remove(NeighbourArgs),
    /// Set how many connections this node dials with each neighbour, until its next start
    Connections(ConnectionsArgs),
}

/// Flags of `sedge neighbour add` and `remove`.
#[derive(Args, Debug)]
pub(crate) struct NeighbourArgs {
    /// Cluster port of the other node, by default 7883
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// Wait at most so many seconds until the other nodes know it
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u32).range(0..=3_600))]
    wait: u32,
    #[command(flatten)]
    api: ApiArgs,
}

/// Flags of `sedge neighbour connections`.
#[derive(Args, Debug)]
pub(crate) struct ConnectionsArgs {
    /// Connections with each neighbour
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=16))]
    count: u8,
    /// Which of them a publication takes: one for each publisher, or the next
    #[arg(long, default_value = "publisher", value_parser = ["publisher", "round-robin"])]
    order: String,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs `sedge neighbours`.
pub(crate) fn neighbours(args: &ListArgs) -> Result<(), Failure> {
    listing(&args.api, &args.watch, "/api/v1/neighbours", |list: &Neighbours, names| Ok(text::neighbours(list, names)))
}

/// Runs `sedge neighbour`.
pub(crate) fn neighbour(command: &NeighbourCommand) -> Result<(), Failure> {
    let (args, is_add) = match command {
        NeighbourCommand::Add(args) => (args, true),
        NeighbourCommand::Remove(args) => (args, false),
        NeighbourCommand::Connections(args) => return connections(args),
    };
    let api = args.api.client()?;
    let path = format!("/api/v1/neighbours?address={}", segment(&args.address));
    let answer = if is_add { api.post::<Neighbours>(&path)? } else { api.delete::<Neighbours>(&path)? };
    let answer = wait(&api, answer, Duration::from_secs(u64::from(args.wait)), is_add)?;
    show(&args.api, &api, &answer)
}

fn connections(args: &ConnectionsArgs) -> Result<(), Failure> {
    let path = format!("/api/v1/neighbours?connections={}&order={}", args.count, args.order);
    let api = args.api.client()?;
    let answer = api.put::<Neighbours>(&path)?;
    show(&args.api, &api, &answer)
}

fn wait(
    api: &Api,
    mut answer: Answer<Neighbours>,
    limit: Duration,
    is_add: bool,
) -> Result<Answer<Neighbours>, Failure> {
    let until = Instant::now() + limit;
    let is_waiting = |line: &Neighbour| line.chosen_here && line.link.is_none();
    let is_done = |value: &Neighbours| value.agreed && !(is_add && value.neighbours.iter().any(is_waiting));
    while !is_done(&answer.value) && Instant::now() < until {
        sleep(PERIOD);
        answer = api.get::<Neighbours>("/api/v1/neighbours")?;
    }
    Ok(answer)
}

fn show(args: &ApiArgs, api: &Api, answer: &Answer<Neighbours>) -> Result<(), Failure> {
    if args.json {
        return out::json_text(&answer.body);
    }
    out::line(&text::neighbours(&answer.value, &args.names(api)?))
}
