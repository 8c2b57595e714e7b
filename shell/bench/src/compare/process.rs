//! Processes of brokers that were started here, and end with this one.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::recipe::{Recipe, fill, socket};
use crate::error::BenchError;

/// Most time for a broker to end by itself.
const STOP: Duration = Duration::from_secs(10);
/// Most time for what it started to follow it.
const FOLLOW: Duration = Duration::from_secs(1);
/// Time between two looks at them.
const LOOK: Duration = Duration::from_millis(20);

/// A process beside the broker, none of its descendants, that ends it when the standard input ends.
const WATCH: &str =
    "exec 3<&0; ( { cat <&3 >/dev/null; kill -s CONT -- -$$; kill -s TERM -- -$$; } >/dev/null 2>&1 & ); ";

/// `command`, bound to `cpus` if given.
pub(crate) fn bound(command: &str, cpus: Option<&str>) -> String {
    cpus.map_or_else(|| command.to_owned(), |cpus| format!("taskset -c {cpus} {command}"))
}

/// Where programs are looked for: beside this one, so that it is its own version that is measured, in the path of the user,
/// and in folders that are often not in it: those of servers, and those where Go and Cargo put what they install.
pub(crate) fn search_path() -> String {
    let own = std::env::current_exe().ok().and_then(|path| path.parent().map(|folder| folder.display().to_string()));
    let users = std::env::var("PATH").unwrap_or_default();
    let home = std::env::var("HOME").ok().filter(|home| !home.is_empty());
    let installed = home.map(|home| format!("{home}/go/bin:{home}/.cargo/bin"));
    let all = own.into_iter().chain([users, "/usr/sbin:/usr/local/sbin:/usr/local/bin".to_owned()]).chain(installed);
    all.collect::<Vec<_>>().join(":")
}

/// A broker that was started here, and ends with this value.
pub(crate) struct Running {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts `command` by the shell, which it replaces, with `files` in `dir`. What it prints goes to a file there. It ends with
    /// this process, whatever this process dies of.
    pub(crate) fn spawn<'a>(
        name: &str,
        command: &str,
        dir: &Path,
        files: impl Iterator<Item = (&'a str, String)>,
    ) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| BenchError::Broker(format!("{name}: {error}"));
        fs::create_dir_all(dir).map_err(failed)?;
        for (file, text) in files {
            fs::write(dir.join(file), text).map_err(failed)?;
        }
        let path = dir.join("output.log");
        let log = fs::File::create(&path).map_err(failed)?;
        let child = Command::new("sh")
            .arg("-c")
            .arg(format!("{WATCH}exec {command} 3<&- </dev/null"))
            .env("PATH", search_path())
            // Held by this process as long as there is a need for the broker.
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok(Self { name: name.to_owned(), child, log: path })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Why it is not there, with the last it said.
    pub(crate) fn did_not_start(&self) -> BenchError {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        BenchError::Broker(format!("{} did not start: {}", self.name, last.join(" | ")))
    }

    /// How it ended, if it has.
    pub(super) fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal to it and all it started.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group() {
            // That it has ended by itself is as good.
            let _ = kill_process_group(group, signal);
        }
    }

    fn group(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Waits until nothing is left of what it started: a shell that was not replaced ends before the broker does.
    fn wait_for_the_rest(&self) {
        let deadline = Instant::now() + FOLLOW;
        while self.group().is_some_and(|group| test_kill_process_group(group).is_ok()) && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + STOP;
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        if self.has_ended() {
            self.wait_for_the_rest();
        }
        self.signal(Signal::KILL);
        // Collects the process; there is nobody left to tell if it cannot be.
        let _ = self.child.wait();
        self.wait_for_the_rest();
    }
}

/// Make and version of the broker with this name, as the start recipe finds them out.
pub fn broker_make(name: &str) -> Option<String> {
    let recipe = Recipe::built_in().ok()?.into_iter().find(|recipe| recipe.name == name)?;
    recipe.version()
}

/// Where a node of the same machine reaches a broker that was started at `port` with its files in `dir`: at its Unix socket if it has one, which
/// costs less than TCP.
pub fn broker_address(name: &str, port: u16, dir: &Path) -> String {
    let has_socket = Recipe::built_in().is_ok_and(|all| all.iter().any(|one| one.name == name && one.has_socket));
    let socket = socket(dir).filter(|_| has_socket);
    socket.map_or_else(|| format!("127.0.0.1:{port}"), |socket| format!("unix:{}", socket.display()))
}

/// Checks that there is a recipe for each of these makes and that what it needs is installed. The error names all that are not, and where
/// to get them.
pub fn check_brokers<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), BenchError> {
    let recipes = Recipe::built_in()?;
    let (mut unknown, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        match recipes.iter().find(|recipe| recipe.name == name) {
            None => unknown.push(format!("{name:?}")),
            Some(recipe) if !recipe.missing().is_empty() => missing.push(not_installed(recipe)),
            Some(_) => {}
        }
    }
    if !unknown.is_empty() {
        let known: Vec<_> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
        let (unknown, known) = (unknown.join(", "), known.join(", "));
        return Err(BenchError::Usage(format!("there is no recipe {unknown} for a broker; there are {known}")));
    }
    missing.dedup();
    if missing.is_empty() { Ok(()) } else { Err(BenchError::Broker(missing.join("; "))) }
}

fn not_installed(recipe: &Recipe) -> String {
    let get = recipe.get.as_deref().unwrap_or("see `sedge bench compare --help`");
    let missing = recipe.missing().join(" and ");
    format!("{} is not installed: no {missing} ({get})", recipe.name)
}

/// Starts the broker of a recipe at `port` with its files in `dir`, and returns its process, the leader of a group of its own. Unless it is
/// detached, it ends when its standard input ends.
pub fn start_broker(name: &str, port: u16, dir: &Path, detached: bool) -> Result<Child, BenchError> {
    let recipes = Recipe::built_in()?;
    let known = || recipes.iter().map(|recipe| recipe.name.as_str()).collect::<Vec<_>>().join(", ");
    let recipe = recipes
        .iter()
        .find(|recipe| recipe.name == name)
        .ok_or_else(|| BenchError::Usage(format!("there is no recipe {name:?} for a broker; there are {}", known())))?;
    if !recipe.missing().is_empty() {
        return Err(BenchError::Broker(not_installed(recipe)));
    }
    let failed = |error: std::io::Error| BenchError::Broker(format!("{name}: {error}"));
    // Files of brokers name clients and topics: nobody else reads them.
    let folder = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed);
    let create = |path: &Path| {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)
    };
    folder(dir)?;
    for (file, text) in &recipe.files {
        let path = dir.join(file);
        folder(path.parent().unwrap_or(dir))?;
        create(&path)?.write_all(fill(text, port, dir).as_bytes()).map_err(failed)?;
    }
    let log = create(&dir.join("output.log"))?;
    let command = fill(&recipe.command, port, dir);
    let script = if detached { command } else { format!("{WATCH}exec </dev/null 3<&-; {command}") };
    let script = format!("umask 077; {script}");
    let stdin = if detached { Stdio::null() } else { Stdio::piped() };
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).env("PATH", search_path()).stdin(stdin).process_group(0);
    shell.stdout(log.try_clone().map_err(failed)?).stderr(log).spawn().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IL-01
    #[test]
    fn a_broker_is_reached_at_its_socket_where_there_is_one() {
        let dir = Path::new("/run/site/node-1/upstream");
        assert_eq!(broker_address("mosquitto", 5883, dir), "unix:/run/site/node-1/upstream/mqtt.sock");
        assert_eq!(broker_address("nats", 5883, dir), "127.0.0.1:5883");
        let long = dir.join("x".repeat(100));
        assert_eq!(broker_address("mosquitto", 5883, &long), "127.0.0.1:5883");
    }

    #[test]
    fn what_a_broker_started_may_end_in_its_own_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let late = "sh -c '(trap \"sleep 0.2; echo late >said; exit\" TERM; echo >ready; sleep 60 & wait) & wait'";
        let command = format!("env -C {} {late}", folder.path().display());
        let running = Running::spawn("late", &command, folder.path(), std::iter::empty()).expect("a process");
        let deadline = Instant::now() + Duration::from_secs(10);
        while !folder.path().join("ready").exists() {
            assert!(Instant::now() < deadline, "it does not start");
            std::thread::sleep(LOOK);
        }
        drop(running);
        assert_eq!(fs::read_to_string(folder.path().join("said")).expect("its last words"), "late\n");
    }
}
