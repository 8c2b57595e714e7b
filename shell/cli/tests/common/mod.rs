//! Helpers that the tests of the program share. No helper sleeps for a guessed time: each waits for a condition, with a deadline.
#![expect(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program, ready to be given arguments.
pub(crate) fn sedge() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sedge"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEDGE_")) {
        command.env_remove(name);
    }
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    sedge().args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs the program with standard input.
pub(crate) fn run_with(arguments: &[&str], input: &[u8]) -> Output {
    let piped = sedge().args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = piped.unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Asserts that the program ended with this code and said these words on standard error, without a trace of a panic.
#[track_caller]
pub(crate) fn assert_fails(output: &Output, code: i32, words: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{said}");
}

#[track_caller]
pub(crate) fn assert_ok(output: &Output) {
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(output));
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The first of `count` ports in a row that are free for TCP and UDP, below those that the system hands out itself.
pub(crate) fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let spread = u16::try_from(std::process::id() % 400).unwrap() * 25;
    loop {
        let first = 20_000 + (spread + NEXT.fetch_add(count, Ordering::Relaxed)) % 12_000;
        let free =
            |port| TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok();
        if (first..first + count).all(free) {
            return first;
        }
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Whether a process still runs; one that only waits to be collected does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Lines of a pipe, up to the one that holds `word`.
#[track_caller]
pub(crate) fn read_to(pipe: &mut impl BufRead, word: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert!(pipe.read_line(&mut line).unwrap() > 0, "the output ended before {word:?}: {lines:?}");
        let found = line.contains(word);
        lines.push(line.trim_end().to_owned());
        if found {
            return lines;
        }
    }
}

/// A process that is killed when it goes out of scope.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) out: BufReader<ChildStdout>,
    pub(crate) err: BufReader<ChildStderr>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(sedge().args(arguments).stdin(Stdio::null()))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        Self { child, out, err }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of standard output, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    /// Waits for the end; returns the exit code and the rest of both outputs.
    #[track_caller]
    pub(crate) fn end(&mut self) -> (Option<i32>, String, String) {
        eventually("the program ends", || self.child.try_wait().unwrap().is_some());
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.err.read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), out, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A single node on ports of its own.
pub(crate) struct Node {
    _process: Running,
    pub(crate) port: String,
    pub(crate) api: String,
}

impl Node {
    pub(crate) fn start() -> Self {
        let mut command = sedge();
        command.args([
            "serve",
            "--json",
            "--bind",
            "127.0.0.1",
            "--port",
            "0",
            "--http-port",
            "0",
            "--cluster-port",
            "0",
        ]);
        command.env("SEDGE_CLUSTER__BIND", "127.0.0.1").stdin(Stdio::null());
        // Nobody reads the log; a full pipe would stop the node.
        let child = command.env("SEDGE_LOG__LEVEL", "off");
        let mut process = Running::spawn(child);
        let ready: Value = serde_json::from_str(&process.line()).unwrap();
        let port = ready["mqtt"][0].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
        let api = format!("http://{}", ready["http"].as_str().unwrap());
        let node = Self { _process: process, port, api };
        eventually("the node is ready", || run(&["status", "--api", &node.api, "--json"]).stdout.is_ready());
        node
    }

    /// Arguments of a client of this node.
    pub(crate) fn client<'a>(&'a self, command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&[command, "-h", "127.0.0.1", "-p", &self.port][..], more].concat()
    }

    pub(crate) fn publish(&self, more: &[&str]) -> Output {
        run(&self.client("pub", more))
    }

    /// A subscriber whose subscription the node has acknowledged.
    pub(crate) fn subscribe(&self, more: &[&str]) -> Running {
        let mut arguments = self.client("sub", more);
        arguments.push("-d");
        let mut running = Running::start(&arguments);
        read_to(&mut running.err, "received SubAck");
        running
    }
}

trait Ready {
    fn is_ready(&self) -> bool;
}

impl Ready for Vec<u8> {
    fn is_ready(&self) -> bool {
        serde_json::from_slice(self).is_ok_and(|status: Value| status["ready"] == true)
    }
}
