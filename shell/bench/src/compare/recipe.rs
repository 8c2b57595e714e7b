//! How brokers are started, one at a time, on a port of their own.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

use crate::error::BenchError;
use crate::experiment::ClusterRecipe;

/// Most time for a broker to open its port.
const START: Duration = Duration::from_secs(90);
/// Most time for a broker to end by itself.
const STOP: Duration = Duration::from_secs(10);

/// A process beside the broker, none of its descendants, that ends it when the standard input ends.
const WATCH: &str =
    "exec 3<&0; ( { cat <&3 >/dev/null; kill -s CONT -- -$$; kill -s TERM -- -$$; } >/dev/null 2>&1 & ); ";

/// How a broker is started. `{port}` and `{dir}` stand for its port and a fresh directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    /// Name in reports.
    pub(crate) name: String,
    /// Command for the shell, which it replaces.
    pub(crate) command: String,
    /// Files in the directory.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
}

/// Brokers and clusters of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    broker: Vec<Recipe>,
    #[serde(default)]
    cluster: Vec<ClusterRecipe>,
}

impl File {
    fn load(path: &Path) -> Result<Self, BenchError> {
        let text = fs::read_to_string(path).map_err(|source| BenchError::File { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|source| BenchError::Toml { path: path.to_owned(), source: Box::new(source) })
    }
}

/// Recipes of clusters in a file.
pub(crate) fn load_clusters(path: &Path) -> Result<Vec<ClusterRecipe>, BenchError> {
    Ok(File::load(path)?.cluster)
}

/// Recipes that are there by name: name, program, command, files.
type BuiltIn = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const BUILT_IN: &[BuiltIn] = &[
    ("sedge", "sedge", "sedge serve --port {port} --cluster-port 0 --http-port 0", &[]),
    (
        "mosquitto",
        "mosquitto",
        "mosquitto -c {dir}/mosquitto.conf",
        &[(
            "mosquitto.conf",
            "listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 100000\n",
        )],
    ),
    (
        "flashmq",
        "flashmq",
        "flashmq --config-file {dir}/flashmq.conf",
        &[(
            "flashmq.conf",
            "allow_anonymous true\nthread_count 1\nstorage_dir {dir}\nlog_file {dir}/flashmq.log\n\
             listen {\n  protocol mqtt\n  port {port}\n  inet4_bind_address 127.0.0.1\n  tcp_nodelay true\n}\n",
        )],
    ),
    (
        "nats",
        "nats-server",
        "nats-server -c {dir}/nats.conf",
        &[(
            "nats.conf",
            "server_name: bench\nhost: 127.0.0.1\nport: -1\njetstream {store_dir: \"{dir}/js\"}\n\
             mqtt {host: 127.0.0.1, port: {port}}\n",
        )],
    ),
    (
        "nanomq",
        "nanomq",
        "nanomq start --conf {dir}/nanomq.conf",
        &[("nanomq.conf", "listeners.tcp {\n  bind = \"127.0.0.1:{port}\"\n}\nauth {\n  allow_anonymous = true\n}\n")],
    ),
    (
        "emqx",
        "emqx",
        "env EMQX_NODE__DATA_DIR={dir} EMQX_LISTENERS__TCP__DEFAULT__BIND=127.0.0.1:{port} emqx foreground",
        &[],
    ),
    (
        "rabbitmq",
        "rabbitmq-server",
        "env RABBITMQ_NODENAME=bench@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=25671 \
         RABBITMQ_MNESIA_BASE={dir}/mnesia RABBITMQ_LOG_BASE={dir}/log RABBITMQ_ENABLED_PLUGINS_FILE={dir}/plugins \
         RABBITMQ_CONFIG_FILE={dir}/rabbitmq.conf HOME={dir} rabbitmq-server",
        &[
            ("plugins", "[rabbitmq_mqtt].\n"),
            ("rabbitmq.conf", "mqtt.listeners.tcp.1 = 127.0.0.1:{port}\nmqtt.allow_anonymous = true\n"),
        ],
    ),
    (
        "hivemq",
        "hivemq-ce",
        "env HIVEMQ_CONFIG_FOLDER={dir} HIVEMQ_DATA_FOLDER={dir}/data HIVEMQ_LOG_FOLDER={dir}/log hivemq-ce",
        &[(
            "config.xml",
            "<hivemq><listeners><tcp-listener><port>{port}</port><bind-address>127.0.0.1</bind-address></tcp-listener>\
             </listeners></hivemq>\n",
        )],
    ),
];

impl Recipe {
    /// The recipe that is there under this name.
    pub(crate) fn built_in(name: &str) -> Option<Self> {
        let (name, _, command, files) = BUILT_IN.iter().find(|(known, ..)| *known == name)?;
        let files = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        Some(Self { name: (*name).to_owned(), command: (*command).to_owned(), files })
    }

    /// Names of the recipes, and whether the program of each is installed.
    pub(crate) fn names() -> impl Iterator<Item = (&'static str, bool)> {
        BUILT_IN.iter().map(|(name, program, ..)| (*name, is_installed(program)))
    }

    /// Recipes of single brokers in a file.
    pub(crate) fn load(path: &Path) -> Result<Vec<Self>, BenchError> {
        Ok(File::load(path)?.broker)
    }

    /// Starts the broker on `port` with its files in `dir`, bound to `cpus` if given, and waits until the port is open.
    pub(crate) fn start(&self, port: u16, dir: &Path, cpus: Option<&str>) -> Result<Running, BenchError> {
        let fill = |text: &str| text.replace("{port}", &port.to_string()).replace("{dir}", &dir.display().to_string());
        let files = self.files.iter().map(|(name, text)| (name.as_str(), fill(text)));
        let mut running = Running::spawn(&self.name, &bound(&fill(&self.command), cpus), dir, files)?;
        let deadline = Instant::now() + START;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            if running.has_ended() || Instant::now() > deadline {
                return Err(running.did_not_start());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }
}

/// `command`, bound to `cpus` if given.
pub(crate) fn bound(command: &str, cpus: Option<&str>) -> String {
    cpus.map_or_else(|| command.to_owned(), |cpus| format!("taskset -c {cpus} {command}"))
}

/// Where programs are looked for: beside this one, so that it is its own version that is measured, in the path of the user,
/// and in folders of servers that are often not in it.
pub(crate) fn search_path() -> String {
    let own = std::env::current_exe().ok().and_then(|path| path.parent().map(|folder| folder.display().to_string()));
    let users = std::env::var("PATH").unwrap_or_default();
    let all = own.into_iter().chain([users, "/usr/sbin:/usr/local/sbin:/usr/local/bin".to_owned()]);
    all.collect::<Vec<_>>().join(":")
}

fn is_installed(program: &str) -> bool {
    search_path().split(':').any(|folder| Path::new(folder).join(program).is_file())
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

    /// Sends a signal to it and all it started.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // That it has ended by itself is as good.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + STOP;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.signal(Signal::KILL);
        // Collects the process; there is nobody left to tell if it cannot be.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_of_a_file_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("brokers.toml");
        let text = "[[broker]]\nname = \"x\"\ncommand = \"x {port}\"\nfiles = { \"a.conf\" = \"{dir}\" }\n";
        fs::write(&path, text).expect("a file");
        let recipes = Recipe::load(&path).expect("recipes");
        assert_eq!(recipes.first().map(|recipe| recipe.name.as_str()), Some("x"));
        assert!(Recipe::names().all(|(name, _)| Recipe::built_in(name).is_some()));
        assert_eq!(Recipe::built_in("x"), None);
    }

    #[test]
    fn a_broker_that_ends_at_once_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let command = "sh -c 'echo no such option >&2; exit 1'".to_owned();
        let recipe = Recipe { name: "bad".to_owned(), command, files: BTreeMap::new() };
        let error = recipe.start(1, folder.path(), None).err().expect("an error").to_string();
        assert!(error.contains("bad did not start: no such option"), "{error}");
    }
}
