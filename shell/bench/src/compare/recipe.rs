//! How brokers are started: recipes that are there by name, and those of a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer};

use super::process::search_path;
use crate::error::BenchError;
use crate::experiment::ClusterRecipe;

/// Recipes that are there by name.
const BUILT_IN: &str = include_str!("recipes.toml");
/// Most time for a broker to say its version.
const VERSION: Duration = Duration::from_mins(1);

/// Most bytes of the path of a Unix socket (`sun_path` of Linux).
const SOCKET_PATH_MAX: usize = 107;

/// How a broker is started. `{port}` and `{dir}` stand for its port and a fresh directory, `{socket}` for a path in it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    /// Name in reports.
    pub(crate) name: String,
    /// Shell command that serves until it is told to end.
    pub(crate) command: String,
    /// Programs that have to be installed: names that are looked for, or paths, which may hold variables.
    #[serde(default, deserialize_with = "one_or_several")]
    pub(crate) program: Vec<String>,
    /// Where to get the broker.
    #[serde(default)]
    pub(crate) get: Option<String>,
    /// Shell command that prints the version.
    #[serde(default)]
    version: Option<String>,
    /// Seconds under load before the measurement that it needs at least: compilers at run time.
    #[serde(default)]
    pub(crate) warmup_s: f64,
    /// Whether it serves at the Unix socket `{socket}`, too.
    #[serde(default)]
    pub(crate) has_socket: bool,
    /// Files in the directory, by path.
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
    fn parse(text: &str, path: &Path) -> Result<Self, BenchError> {
        toml::from_str(text).map_err(|source| BenchError::Toml { path: path.to_owned(), source: Box::new(source) })
    }
}

/// Recipes of clusters in a file.
pub(crate) fn load_clusters(path: &Path) -> Result<Vec<ClusterRecipe>, BenchError> {
    let text = fs::read_to_string(path).map_err(|source| BenchError::File { path: path.to_owned(), source })?;
    Ok(File::parse(&text, path)?.cluster)
}

impl Recipe {
    /// The recipes that are there by name.
    pub(crate) fn built_in() -> Result<Vec<Self>, BenchError> {
        Self::parse(BUILT_IN, Path::new("built-in recipes"))
    }

    /// Recipes of a file.
    pub(crate) fn load(path: &Path) -> Result<Vec<Self>, BenchError> {
        let text = fs::read_to_string(path).map_err(|source| BenchError::File { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Vec<Self>, BenchError> {
        let file = File::parse(text, path)?;
        if let Some(recipe) = file.broker.iter().find(|recipe| !(0.0..=3_600.0).contains(&recipe.warmup_s)) {
            let (path, name) = (path.display(), &recipe.name);
            return Err(BenchError::Usage(format!("{path}: broker {name}: warmup_s is between 0 and 3600 seconds")));
        }
        Ok(file.broker)
    }

    /// Those of the file at `path`, if there is one, before those that are there by name and not in it.
    pub(crate) fn all(path: Option<&Path>) -> Result<Vec<Self>, BenchError> {
        let mut all = path.map_or_else(|| Ok(Vec::new()), Self::load)?;
        for recipe in Self::built_in()? {
            if !all.iter().any(|own| own.name == recipe.name) {
                all.push(recipe);
            }
        }
        Ok(all)
    }

    /// Programs that the recipe needs and that are missing; empty if the recipe does not name any.
    pub(crate) fn missing(&self) -> Vec<&str> {
        self.program.iter().map(String::as_str).filter(|program| !Self::is_there(program)).collect()
    }

    fn is_there(program: &str) -> bool {
        let quoted = program.replace('"', "");
        // Without its variable "$HOME_OF_IT/lib" is a folder that every system has.
        if variables(&quoted).any(|name| std::env::var_os(name).is_none_or(|value| value.is_empty())) {
            return false;
        }
        let found = shell(&format!("command -v \"{quoted}\" || test -d \"{quoted}\""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        found.is_ok_and(|status| status.success())
    }

    /// Version that the broker reports: the first line with a digit. None if the broker reports none.
    pub(crate) fn version(&self) -> Option<String> {
        let command = self.version.as_deref()?;
        let folder = std::env::temp_dir().join(format!("sedge-bench-version-{}-{}", std::process::id(), self.name));
        fs::create_dir_all(&folder).ok()?;
        let line = first_line(&fill(command, 0, &folder));
        // A folder that stays behind costs nothing but its name.
        let _ = fs::remove_dir_all(&folder);
        line
    }
}

/// A text, or a list of them.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Texts {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Texts::deserialize(deserializer)? {
        Texts::One(text) => vec![text],
        Texts::Several(texts) => texts,
    })
}

/// Names of the variables in a text for the shell that have to be set: those without a value for the case that they are not.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split('$').skip(1);
    parts.filter(|rest| !rest.split('}').next().is_some_and(|inner| inner.contains(":-"))).map(|rest| {
        let name = rest.strip_prefix('{').unwrap_or(rest);
        name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
    })
}

/// The first line with a digit that `command` prints in time.
fn first_line(command: &str) -> Option<String> {
    let mut child = shell(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let deadline = Instant::now() + VERSION;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() > deadline {
            // It may have ended by itself meanwhile.
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    Some(line.trim().to_owned())
}

/// `text` with port and directory filled in.
pub(super) fn fill(text: &str, port: u16, dir: &Path) -> String {
    let socket = socket(dir).map_or_else(String::new, |socket| socket.display().to_string());
    let text = text.replace("{port}", &port.to_string()).replace("{socket}", &socket);
    text.replace("{dir}", &dir.display().to_string())
}

/// The Unix socket of a broker in this directory, unless the path would be too long for one.
pub(super) fn socket(dir: &Path) -> Option<PathBuf> {
    let socket = dir.join("mqtt.sock");
    (socket.as_os_str().len() <= SOCKET_PATH_MAX).then_some(socket)
}

/// A shell for `command`, which finds programs where [`search_path`] says.
pub(super) fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).env("PATH", search_path());
    shell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_of_a_file_come_before_those_that_are_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("brokers.toml");
        let text = "[[broker]]\nname = \"nats\"\ncommand = \"x {port}\"\nfiles = { \"a.conf\" = \"{dir}\" }\n";
        fs::write(&path, text).expect("a file");
        let recipes = Recipe::all(Some(&path)).expect("recipes");
        assert_eq!(recipes.first().map(|recipe| recipe.command.as_str()), Some("x {port}"));
        assert_eq!(recipes.iter().filter(|recipe| recipe.name == "nats").count(), 1);
        assert_eq!(recipes.len(), Recipe::built_in().expect("recipes").len());
        fs::write(&path, "[[broker]]\nname = \"x\"\n").expect("a file");
        let error = Recipe::load(&path).expect_err("no command").to_string();
        assert!(error.contains("brokers.toml") && error.contains("command"), "{error}");
        fs::write(&path, "[[broker]]\nname = \"x\"\ncommand = \"x\"\nwarmup_s = -1.0\n").expect("a file");
        let error = Recipe::load(&path).expect_err("no time").to_string();
        assert!(error.contains("brokers.toml") && error.contains("warmup_s"), "{error}");
    }

    /// BM-07.
    #[test]
    fn every_recipe_says_what_it_needs_and_binds_the_loopback_address() {
        for recipe in Recipe::built_in().expect("recipes") {
            let all: Vec<&str> = recipe.files.values().map(String::as_str).chain([recipe.command.as_str()]).collect();
            assert!(all.iter().any(|text| text.contains("{port}")), "{}", recipe.name);
            assert!(all.iter().any(|text| text.contains("127.0.0.1")), "{}", recipe.name);
            assert!(!recipe.program.is_empty() && recipe.version.is_some(), "{}", recipe.name);
        }
    }

    #[test]
    fn programs_are_looked_for_and_asked_for_their_version() {
        let recipe = |program: &str, version: &str| Recipe {
            name: "x".to_owned(),
            command: String::new(),
            has_socket: false,
            program: vec![program.to_owned()],
            get: None,
            version: Some(version.to_owned()),
            warmup_s: 0.0,
            files: BTreeMap::new(),
        };
        for (program, installed) in [
            ("sh", true),
            ("/bin/sh", true),
            ("/usr", true),
            ("$HOME", true),
            ("no-such-program", false),
            ("$NO_SUCH/bin/x.sh", false),
            ("$NO_SUCH/lib", false),
            ("\"${NO_SUCH}/usr\"", false),
            ("${NO_SUCH:-/usr}/bin", true),
            ("${NO_SUCH:-/no/such}/bin", false),
        ] {
            assert_eq!(recipe(program, "true").missing().is_empty(), installed, "{program}");
        }
        assert_eq!(recipe("sh", "echo; echo ' x 1.2 '; echo 3").version(), Some("x 1.2".to_owned()));
        assert_eq!(recipe("sh", "no-such-program --version").version(), None);
    }
}
