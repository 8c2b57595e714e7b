//! `sedge bench net`: an emulated network for as long as a command runs, or until somebody ends it.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::NetArgs;
use super::control::ask;
use super::network::Network;
use super::request::Request;
use super::status::{LinkStatus, NetworkStatus};
use crate::command::write_json;
use crate::error::BenchError;
use crate::num;
use crate::report::{Table, number};

/// Time between two looks whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long the command may take to end after it was asked to.
const END: Duration = Duration::from_secs(10);

/// Emulates a network, or asks one for something. What it consists of goes to `out`, or to `notes` if a command has the output.
pub(crate) fn emulate(args: &NetArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<ExitCode, BenchError> {
    if let Some(socket) = &args.control {
        return control(socket, args, out);
    }
    if args.clean {
        for name in Network::clean()? {
            writeln!(out, "{name} removed")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let stale = Network::stale();
    if !stale.is_empty() {
        writeln!(
            notes,
            "warning: namespaces of networks whose process was killed: {}; sedge bench net --clean removes them",
            stale.join(", ")
        )?;
    }
    // Before anything is made: from here on a signal ends the network in good order.
    let signals = signals()?;
    let network = Network::start(&args.plan())?;
    let status = network.status()?;
    let code = match args.words.split_first() {
        None => {
            print(&status, args.json, out)?;
            out.flush()?;
            // An error would mean that nobody can send a signal any more.
            let _ = signals.recv();
            ExitCode::SUCCESS
        }
        Some((program, words)) => {
            print(&status, args.json, notes)?;
            let mut command = Command::new(program);
            command.args(words).envs(environment(&status));
            let child = command.spawn();
            let mut child = child.map_err(|error| BenchError::Usage(format!("{program}: {error}")))?;
            ended(accompany(&mut child, &signals)?)
        }
    };
    let status = network.status()?;
    drop(network);
    if let Some(path) = &args.report {
        let text = serde_json::to_vec_pretty(&status).map_err(std::io::Error::from)?;
        std::fs::write(path, text).map_err(|source| BenchError::File { path: path.clone(), source })?;
    }
    writeln!(notes, "{}", summary(&status))?;
    Ok(code)
}

fn control(socket: &Path, args: &NetArgs, out: &mut dyn Write) -> Result<ExitCode, BenchError> {
    let request: Request = args.words.join(" ").parse().map_err(BenchError::Usage)?;
    if let Some(status) = ask(socket, &request)? {
        print(&status, args.json, out)?;
        if !args.json {
            writeln!(out, "\n{}", summary(&status))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Signals that ask for the end.
fn signals() -> Result<Receiver<()>, BenchError> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(BenchError::system("waiting for signals"))?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// Environment variables that tell a command about the network.
fn environment(status: &NetworkStatus) -> [(&'static str, String); 5] {
    let list =
        |each: &dyn Fn(&super::NodeStatus) -> String| status.nodes.iter().map(each).collect::<Vec<_>>().join(" ");
    [
        ("SEDGE_NET_NODES", status.nodes.len().to_string()),
        ("SEDGE_NET_NAMESPACES", list(&|node| node.namespace.clone())),
        ("SEDGE_NET_SITES", list(&|node| node.site.to_string())),
        ("SEDGE_NET_HOSTS", list(&|node| node.host.to_string())),
        ("SEDGE_NET_CONTROL", status.control.clone()),
    ]
}

/// Waits for the end of a command, which is asked to end if this process is.
fn accompany(child: &mut Child, signals: &Receiver<()>) -> Result<ExitStatus, BenchError> {
    let failed = BenchError::system("waiting for the command");
    let mut asked: Option<Instant> = None;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => return Err(failed(error)),
        }
        if matches!(signals.recv_timeout(LOOK), Ok(()) | Err(RecvTimeoutError::Disconnected)) && asked.is_none() {
            asked = Some(Instant::now());
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // That it has ended by itself is as good.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        if asked.is_some_and(|asked| asked.elapsed() > END) {
            let _ = child.kill();
        }
    }
}

/// The exit status of a command as that of this program; 1 if a signal ended it.
fn ended(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn print(status: &NetworkStatus, json: bool, out: &mut dyn Write) -> Result<(), BenchError> {
    if json {
        return write_json(status, out);
    }
    let mut nodes = Table::default();
    nodes.row(["node", "namespace", "site address", "address from here"]);
    for node in &status.nodes {
        nodes.row([node.node.to_string(), node.namespace.clone(), node.site.to_string(), node.host.to_string()]);
    }
    let mut links = Table::default();
    links.row(LINK.map(str::to_owned));
    for link in &status.links {
        links.row(row(link));
    }
    write!(out, "{}\n{}\nseed {}, requests at {}\n", nodes.text(), links.text(), status.seed, status.control)?;
    Ok(())
}

const LINK: [&str; 11] = [
    "link",
    "rate",
    "delay, ms",
    "loss, %",
    "state",
    "packets",
    "bytes",
    "lost",
    "dropped",
    "cut",
    "longest queue, bytes",
];

fn row(link: &LinkStatus) -> [String; 11] {
    [
        format!("{} > {}", link.from, link.to),
        link.rate_bit_s.to_string(),
        number(link.delay_ms),
        number(link.loss_percent),
        if link.open { "open" } else { "cut" }.to_owned(),
        link.packets.to_string(),
        link.bytes.to_string(),
        link.lost.to_string(),
        link.dropped.to_string(),
        link.cut.to_string(),
        link.queue_high_water_bytes.to_string(),
    ]
}

/// A line that sums up the work of the emulator.
fn summary(status: &NetworkStatus) -> String {
    let sum = |each: &dyn Fn(&LinkStatus) -> u64| status.links.iter().map(each).sum::<u64>();
    let emulator = &status.emulator;
    let per_packet = num::ratio(emulator.cpu_s * 1e6, num::real(emulator.delivered));
    format!(
        "{} packets delivered, {} dropped by full queues, {} lost, {} met a cut, {} not read in time, \
         {} beyond what the emulator holds, {} refused; late by {} µs (median), {} µs (p99), {} µs (most){}; {} µs of processor time a packet",
        emulator.delivered,
        sum(&|link| link.dropped),
        sum(&|link| link.lost),
        sum(&|link| link.cut),
        emulator.unread,
        emulator.overflow,
        emulator.refused,
        number(emulator.late_p50_us),
        number(emulator.late_p99_us),
        number(emulator.late_max_us),
        if emulator.realtime { "" } else { ", as it may not have real-time priority" },
        number(per_packet),
    )
}
