//! Brokers that are started by a recipe, one at a time, on a port of their own.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::process::{Running, bound};
use super::recipe::{Recipe, fill};
use crate::error::BenchError;

/// Most time for a broker to open its port.
const START: Duration = Duration::from_secs(90);
/// Time between two looks at it.
const LOOK: Duration = Duration::from_millis(20);
/// Lines of its output that an error repeats.
const LINES: usize = 5;

/// A broker that was started here, and ends with this value, as do its files.
pub(crate) struct Started {
    /// None only while it ends.
    running: Option<Running>,
    dir: PathBuf,
}

impl Started {
    /// Starts a broker on `port` with its files in `dir`, which is emptied before and removed afterwards, bound to `cpus` if
    /// given, and waits until the port is open.
    pub(crate) fn start(recipe: &Recipe, port: u16, dir: &Path, cpus: Option<&str>) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| BenchError::Broker(format!("{}: {error}", recipe.name));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if connects(address) {
            // It would be measured instead.
            let text = format!("{}: somebody else has port {port} already: choose another with --port", recipe.name);
            return Err(BenchError::Broker(text));
        }
        if dir.exists() {
            fs::remove_dir_all(dir).map_err(failed)?;
        }
        fs::create_dir_all(dir).map_err(failed)?;
        for (name, text) in &recipe.files {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap_or(dir)).map_err(failed)?;
            fs::write(path, fill(text, port, dir)).map_err(failed)?;
        }
        let command = fill(&recipe.command, port, dir);
        // A recipe may be several commands, of which the last becomes the broker.
        let shell = bound(&format!("sh -c '{}'", command.trim().replace('\'', "'\\''")), cpus);
        let running = Running::spawn(&recipe.name, &shell, dir, std::iter::empty())?;
        let mut started = Self { running: Some(running), dir: dir.to_owned() };
        let deadline = Instant::now() + START;
        while !connects(address) {
            let ended = started.status();
            if ended.is_some() || Instant::now() > deadline {
                return Err(started.not_started(recipe, command.trim(), port, ended));
            }
            std::thread::sleep(LOOK);
        }
        Ok(started)
    }

    /// The error for a broker that does not serve: its command, its end and its last words.
    fn not_started(&self, recipe: &Recipe, command: &str, port: u16, ended: Option<ExitStatus>) -> BenchError {
        let how = ended.map_or_else(
            || format!("did not open port {port} within {} s", START.as_secs()),
            |status| format!("ended with {status}"),
        );
        BenchError::Broker(format!("{} did not start: `{command}` {how}:\n    {}", recipe.name, self.last_words()))
    }

    /// The last lines of its output.
    fn last_words(&self) -> String {
        let output = fs::read_to_string(self.dir.join("output.log")).unwrap_or_default();
        let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
        if last.is_empty() { "it said nothing".to_owned() } else { last.join("\n    ") }
    }

    /// `error`, and how the broker ended if it did: that comes before what the load generator noticed of it.
    pub(crate) fn explain(&mut self, name: &str, error: BenchError) -> BenchError {
        match self.status() {
            Some(status) => {
                BenchError::Broker(format!("{name} ended with {status}; {error}:\n    {}", self.last_words()))
            }
            None => error,
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().map_or(0, Running::pid)
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.running.as_mut().and_then(Running::status)
    }
}

fn connects(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

impl Drop for Started {
    fn drop(&mut self) {
        // First the broker, then its files.
        self.running = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn recipe(command: &str) -> Recipe {
        let text =
            format!("[[broker]]\nname = \"bad\"\ncommand = '''{command}'''\nfiles = {{ \"a/b\" = \"{{port}}\" }}\n");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("recipes.toml");
        fs::write(&path, text).expect("a file");
        Recipe::load(&path).expect("a recipe").remove(0)
    }

    /// BM-07.
    #[test]
    fn a_broker_that_ends_at_once_is_told_with_command_status_and_last_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("bad");
        let bad = recipe("cat {dir}/a/b; for i in 1 2 3 4 5 6; do echo line $i; done >&2; exit 3");
        let error = Started::start(&bad, 1, &dir, None).err().expect("an error").to_string();
        for part in ["bad did not start", "for i in 1 2 3", "exit status: 3", "line 2", "line 6"] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(error.find("line 2") < error.find("line 6") && !error.contains("1line 1"), "{error}");
        assert!(!dir.exists(), "its files stay behind");
    }

    #[test]
    fn a_broker_that_ends_later_is_told_with_what_it_cost() {
        let folder = tempfile::tempdir().expect("a folder");
        let running = Running::spawn("bad", "sh -c 'echo out of memory; exit 4'", folder.path(), std::iter::empty());
        let mut running = Started { running: Some(running.expect("a process")), dir: folder.path().to_owned() };
        while running.status().is_none() {
            std::thread::sleep(LOOK);
        }
        let error = running.explain("bad", BenchError::Broker("nobody at home".to_owned())).to_string();
        for part in ["bad ended with exit status: 4", "nobody at", "out of memory"] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_not_taken_for_the_broker() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let folder = tempfile::tempdir().expect("a folder");
        let error = Started::start(&recipe("true"), port, folder.path(), None).err().expect("an error").to_string();
        assert!(error.contains("--port") && error.contains(&port.to_string()), "{error}");
    }
}
