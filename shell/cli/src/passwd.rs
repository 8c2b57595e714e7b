//! `sedge passwd` and `sedge acl check`.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum, value_parser};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use sedge_access::scram::{ITERATIONS_MAX, ITERATIONS_MIN, Mechanism};
use sedge_access::{Action, Rules, Who};
use sedge_daemon::access::{
    PasswordFile, SCRAM_ITERATIONS, edited, hash_password, replace_file, salt, scram_verifier, wrong_user,
};

use crate::failure::Failure;
use crate::out;

const EXAMPLES: &str = "\
Examples:
  sedge passwd -c /etc/sedge/passwd anna        a new file with one user; asks for the password
  sedge passwd /etc/sedge/passwd bob            one more user, or another password for one
  echo secret | sedge passwd /etc/sedge/passwd bob
  sedge passwd --scram /etc/sedge/passwd carol  for authentication with SCRAM-SHA-256, too
  sedge passwd -D /etc/sedge/passwd bob         delete a user

A running node reads the file again on SIGHUP or POST /api/v1/reload.";

/// Set or delete the password of a user in a password file
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PasswdArgs {
    /// Make a new file; what it held is gone
    #[arg(short, conflicts_with = "delete")]
    create: bool,
    /// Delete the user
    #[arg(short = 'D')]
    delete: bool,
    /// Take the password from the command line, where others on this machine can see it
    #[arg(short, requires = "password", conflicts_with = "delete")]
    batch: bool,
    /// Write a SCRAM verifier: clients may prove the password without sending it (authentication method SCRAM-SHA-256 or
    /// SCRAM-SHA-512 of MQTT 5.0), or give it as password as usual. Without, argon2id: harder to guess from a stolen file
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "sha-256", value_name = "HASH",
          conflicts_with = "delete")]
    scram: Option<Scram>,
    /// Iterations of a SCRAM verifier; a client has to do as many for each connection
    #[arg(long, value_name = "N", default_value_t = SCRAM_ITERATIONS, requires = "scram",
          value_parser = value_parser!(u32).range(i64::from(ITERATIONS_MIN)..=i64::from(ITERATIONS_MAX)))]
    iterations: u32,
    /// Password file, key `auth.password_file`
    file: PathBuf,
    /// Name of the user
    user: String,
    /// Password, with -b
    #[arg(requires = "batch")]
    password: Option<String>,
}

/// Hash of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scram {
    #[value(name = "sha-256")]
    Sha256,
    #[value(name = "sha-512")]
    Sha512,
}

impl Scram {
    const fn mechanism(self) -> Mechanism {
        match self {
            Self::Sha256 => Mechanism::Sha256,
            Self::Sha512 => Mechanism::Sha512,
        }
    }
}

/// Runs `sedge passwd`.
pub(crate) fn passwd(args: &PasswdArgs) -> Result<(), Failure> {
    if let Some(what) = wrong_user(&args.user) {
        return Err(Failure::usage(what));
    }
    let file = args.file.display();
    let text = if args.create {
        String::new()
    } else {
        fs::read_to_string(&args.file)
            .map_err(|error| Failure::failed(format!("cannot read {file}: {error}; -c makes a new file")))?
    };
    let known = PasswordFile::parse(&text).map_err(|errors| {
        Failure::failed(errors.iter().map(|error| format!("{file}:{error}")).collect::<Vec<_>>().join("\n"))
    })?;
    if args.delete && !known.contains(&args.user) {
        return Err(Failure::failed(format!("{file} has no user {:?}", args.user)));
    }
    let hash = if args.delete { None } else { Some(hash(args)?) };
    let kept = edited(&text, &args.user, hash.as_deref()).map_err(|errors| Failure::failed(errors.join("\n")))?;
    let is_new = !args.file.exists();
    replace_file(&args.file, &kept).map_err(|error| Failure::failed(format!("cannot write {file}: {error}")))?;
    if is_new {
        tell_of_new_file(&args.file);
    }
    Ok(())
}

/// The hash of the password that is given or asked for.
fn hash(args: &PasswdArgs) -> Result<String, Failure> {
    let password = match &args.password {
        Some(password) => password.clone(),
        None => ask(&args.user)?,
    };
    if password.is_empty() {
        return Err(Failure::usage("the password is empty"));
    }
    let salt = salt().map_err(Failure::failed)?;
    let hash = match args.scram {
        Some(scram) => scram_verifier(scram.mechanism(), args.iterations, &password, &salt),
        None => hash_password(password.as_bytes(), &salt),
    };
    hash.map_err(Failure::failed)
}

/// The password: one line of standard input; from a terminal twice, unseen.
fn ask(user: &str) -> Result<String, Failure> {
    let cannot = |error: io::Error| Failure::failed(format!("cannot read the password: {error}"));
    if !io::stdin().is_terminal() {
        return read_line().map_err(cannot);
    }
    let hidden = Hidden::start().map_err(cannot)?;
    let read = |prompt: &str| {
        let _ = write!(io::stderr(), "{prompt}");
        let line = read_line();
        let _ = writeln!(io::stderr());
        line
    };
    let first = read(&format!("Password for {user}: ")).map_err(cannot)?;
    let second = read("Again: ").map_err(cannot)?;
    drop(hidden);
    if first == second { Ok(first) } else { Err(Failure::failed("the passwords differ; nothing was changed")) }
}

fn read_line() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// A terminal that does not show what is typed; shows it again when dropped.
struct Hidden(rustix::termios::Termios);

impl Hidden {
    fn start() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Tells an administrator how to let the service read a file that only root may read.
fn tell_of_new_file(path: &Path) {
    if rustix::process::geteuid().is_root() {
        let path = path.display();
        out::note(&format!(
            "note: only root can read {path}; for a service with a user of its own: chgrp GROUP {path}; chmod 640 {path}"
        ));
    }
}

/// Look at access rules.
#[derive(Subcommand, Debug)]
pub(crate) enum AclCommand {
    /// Say which rule of a file decides
    Check(AclCheckArgs),
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wish {
    Publish,
    Subscribe,
}

/// Flags of `sedge acl check`.
#[derive(Args, Debug)]
pub(crate) struct AclCheckArgs {
    /// File with access rules, key `acl.file`
    file: PathBuf,
    /// User name; '-' for an anonymous client
    user: String,
    /// Client id
    client: String,
    /// What is to be done
    action: Wish,
    /// Topic name, or with 'subscribe' also a topic filter
    topic: String,
}

/// Runs `sedge acl check`: exit code 0 if it is allowed, 1 if not.
pub(crate) fn acl_check(args: &AclCheckArgs) -> Result<(), Failure> {
    let file = args.file.display();
    let text =
        fs::read_to_string(&args.file).map_err(|error| Failure::usage(format!("cannot read {file}: {error}")))?;
    let rules = Rules::parse(&text).map_err(|error| {
        let lines = error.0.iter().map(|error| format!("{file}:{}: {}", error.line, error.what));
        Failure::usage(lines.collect::<Vec<_>>().join("\n"))
    })?;
    let who = Who { user: (args.user != "-").then_some(args.user.as_str()), client: &args.client };
    let share = args.topic.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
    let topic = share.map_or(args.topic.as_str(), |(_, filter)| filter);
    if topic.contains(['+', '#']) {
        let Wish::Subscribe = args.action else {
            return Err(Failure::usage("nobody publishes to a topic name with wildcards"));
        };
        return match rules.judge(who, topic) {
            sedge_access::Reach::All => out::line("allowed: everything that matches may be received"),
            sedge_access::Reach::Some => out::line("allowed in part: each message is decided on by its topic"),
            sedge_access::Reach::Nothing => refused("refused: nothing that matches may be received"),
        };
    }
    let action = match args.action {
        Wish::Publish => Action::Publish,
        Wish::Subscribe => Action::Receive,
    };
    let verdict = rules.decide(who, action, topic);
    let Some(number) = verdict.line else { return refused("refused: no line allows it") };
    let line = usize::try_from(number).ok().and_then(|number| text.lines().nth(number.saturating_sub(1)));
    let rule = format!("{file}:{number}: {}", line.unwrap_or_default().trim());
    if verdict.allowed { out::line(&format!("allowed by {rule}")) } else { refused(&format!("refused by {rule}")) }
}

fn refused(text: &str) -> Result<(), Failure> {
    out::line(text)?;
    Err(Failure::silent(crate::failure::FAILED))
}
