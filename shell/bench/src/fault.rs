//! Faults of brokers while they are measured.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::emulate::{Request, ask};
use crate::error::BenchError;
use crate::run::Process;

/// A fault of a broker while it is measured: `SECONDS:kill:WHOM`, `:term:`, `:stop:`, `:cont:`, `SECONDS:run:COMMAND`, or, in an
/// emulated network, `SECONDS:cut:A-B`, `SECONDS:cut:A>B`, `SECONDS:isolate:A` and `SECONDS:heal:`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// Time of the fault, in seconds from the beginning of the measurement.
    pub(crate) at_s: f64,
    /// Kind of the fault: the action that is done.
    pub(crate) action: Action,
}

/// An action of a fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Kills a process without warning.
    Kill(Whom),
    /// Asks a process to end.
    Term(Whom),
    /// Freezes a process.
    Stop(Whom),
    /// Lets a frozen process go on.
    Cont(Whom),
    /// Runs a command by the shell without waiting for it: restarts a broker, cuts a network.
    Run(String),
    /// Changes an emulated network.
    Network(Request),
}

/// A process that something is done to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// By its number.
    Pid(u32),
    /// One that was started for the run, with all it started: `node-2`, or `broker-2` behind it.
    Named(String),
}

impl FromStr for Whom {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Ok(pid) = text.parse() {
            return Ok(Self::Pid(pid));
        }
        let number = text.strip_prefix("node-").or_else(|| text.strip_prefix("broker-"));
        let known = number.is_some_and(|number| number.parse::<u16>().is_ok());
        known.then(|| Self::Named(text.to_owned())).ok_or(())
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "{pid}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl Whom {
    /// Sends it a signal. The text says why it could not be done.
    fn signal(&self, signal: Signal, processes: &[Process]) -> Result<(), String> {
        let (pid, send): (u32, fn(Pid, Signal) -> _) = match self {
            Self::Pid(pid) => (*pid, kill_process),
            Self::Named(name) => {
                let found = processes.iter().find(|process| process.name == *name);
                (found.ok_or_else(|| format!("no {name}"))?.pid, kill_process_group)
            }
        };
        let known = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| format!("{pid}: no process"))?;
        send(known, signal).map_err(|error| error.to_string())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text}: no fault such as 10:kill:PID, 10:kill:node-2, 10:stop:broker-2, 15:cont:PID, 12:run:COMMAND, 10:cut:A-B, 10:cut:A>B, 10:isolate:A or 15:heal:"
            )
        };
        let mut parts = text.splitn(3, ':');
        let (Some(at), Some(what), Some(object)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong());
        };
        let at_s: f64 = at.parse().ok().ok_or_else(wrong)?;
        if !at_s.is_finite() || at_s < 0.0 {
            return Err(wrong());
        }
        let whom = || object.parse::<Whom>().map_err(|()| wrong());
        let action = match what {
            "kill" => Action::Kill(whom()?),
            "term" => Action::Term(whom()?),
            "stop" => Action::Stop(whom()?),
            "cont" => Action::Cont(whom()?),
            "run" => Action::Run(object.to_owned()),
            "cut" | "isolate" | "heal" => Action::Network(format!("{what} {object}").parse()?),
            _ => return Err(wrong()),
        };
        Ok(Self { at_s, action })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(whom) => write!(f, "kill {whom}"),
            Self::Term(whom) => write!(f, "term {whom}"),
            Self::Stop(whom) => write!(f, "stop {whom}"),
            Self::Cont(whom) => write!(f, "cont {whom}"),
            Self::Run(command) => write!(f, "run {command}"),
            Self::Network(request) => write!(f, "{request}"),
        }
    }
}

impl Action {
    /// Does it. `network` is where the emulated network takes requests, `processes` those with names. The text says why it could not
    /// be done.
    pub(crate) fn carry_out(&self, network: Option<&Path>, processes: &[Process]) -> Result<(), String> {
        let signal = |whom: &Whom, signal| whom.signal(signal, processes);
        match self {
            Self::Kill(whom) => signal(whom, Signal::KILL),
            Self::Term(whom) => signal(whom, Signal::TERM),
            Self::Stop(whom) => signal(whom, Signal::STOP),
            Self::Cont(whom) => signal(whom, Signal::CONT),
            Self::Run(command) => {
                let mut child = Command::new("sh").arg("-c").arg(command).spawn().map_err(|error| error.to_string())?;
                // Somebody has to collect it when it ends, or it stays as a zombie.
                std::thread::spawn(move || child.wait());
                Ok(())
            }
            Self::Network(request) => {
                let network = network.ok_or_else(|| "no --network".to_owned())?;
                ask(network, request).map(drop).map_err(|error| error.to_string())
            }
        }
    }
}

/// Says before a run starts why faults could not happen: a process of this name, or an emulated network, is missing.
pub(crate) fn check(faults: &[Fault], network: Option<&Path>, processes: &[Process]) -> Result<(), BenchError> {
    for fault in faults {
        if let Action::Kill(Whom::Named(name))
        | Action::Term(Whom::Named(name))
        | Action::Stop(Whom::Named(name))
        | Action::Cont(Whom::Named(name)) = &fault.action
            && !processes.iter().any(|process| process.name == *name)
        {
            let known: Vec<&str> = processes.iter().map(|process| process.name.as_str()).collect();
            let known = if known.is_empty() { "none: give --nodes".to_owned() } else { known.join(", ") };
            return Err(BenchError::Usage(format!("--fault: there is no {name}; started for this run: {known}")));
        }
    }
    let requests = faults.iter().filter_map(|fault| match &fault.action {
        Action::Network(request) => Some((fault, request)),
        Action::Kill(_) | Action::Term(_) | Action::Stop(_) | Action::Cont(_) | Action::Run(_) => None,
    });
    let mut nodes = None;
    for (fault, request) in requests {
        // As it is written on the command line.
        let written = request.to_string().replacen(' ', ":", 1).replacen(' ', "-", 1);
        let named = format!("--fault {}:{written}", fault.at_s);
        let network = network.ok_or_else(|| {
            BenchError::Usage(format!("{named}: which network? Give --network SOCKET, which sedge bench net prints"))
        })?;
        let nodes = match nodes {
            Some(nodes) => nodes,
            None => *nodes.insert(ask(network, &Request::Status)?.map_or(0, |status| status.nodes.len())),
        };
        if request.highest() > nodes {
            return Err(BenchError::Usage(format!("{named}: the network has {nodes} nodes, counted from 1")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let fault: Fault = "12.5:kill:77".parse().expect("a fault");
        assert_eq!(fault, Fault { at_s: 12.5, action: Action::Kill(Whom::Pid(77)) });
        let fault: Fault = "2:stop:broker-3".parse().expect("a fault");
        assert_eq!(fault.action, Action::Stop(Whom::Named("broker-3".to_owned())));
        assert_eq!(fault.action.to_string(), "stop broker-3");
        let fault: Fault = "3:run:sh -c 'a:b'".parse().expect("a fault");
        assert_eq!(fault.action, Action::Run("sh -c 'a:b'".to_owned()));
        for (text, request) in
            [("9:cut:1-2", "cut 1 2"), ("9:cut:2>1", "cut 2>1"), ("9:isolate:3", "isolate 3"), ("9:heal:", "heal")]
        {
            let fault: Fault = text.parse().expect(text);
            assert_eq!((fault.at_s, fault.action.to_string()), (9.0, request.to_owned()));
        }
        for text in [
            "1:cut:",
            "1:cut:1",
            "1:isolate:x",
            "1:heal:x",
            "",
            "x:kill:1",
            "1:kill",
            "1:kill:x",
            "1:kill:node-",
            "1:kill:nodes-1",
            "-1:kill:1",
            "1:eat:1",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_schedule_reaches_a_process() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        Action::Stop(Whom::Pid(child.id())).carry_out(None, &[]).expect("stopped");
        Action::Cont(Whom::Pid(child.id())).carry_out(None, &[]).expect("goes on");
        Action::Kill(Whom::Pid(child.id())).carry_out(None, &[]).expect("killed");
        assert!(!child.wait().expect("an end").success());
        assert!(Action::Kill(Whom::Pid(child.id())).carry_out(None, &[]).is_err(), "it is no more");
    }

    #[test]
    fn what_was_started_for_a_run_is_killed_by_name_with_what_it_started() {
        use std::io::Read;
        use std::os::unix::process::CommandExt;
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", "sleep 20; true"]).stdout(std::process::Stdio::piped()).process_group(0);
        let mut child = shell.spawn().expect("a shell");
        let there = [Process { name: "node-2".to_owned(), pid: child.id() }];
        let fault = |text: &str| vec![text.parse::<Fault>().expect("a fault")];
        assert!(check(&fault("1:kill:node-2"), None, &there).is_ok());
        for (text, there, said) in [("1:kill:broker-2", &there[..], "node-2"), ("1:term:node-2", &[], "--nodes")] {
            let error = check(&fault(text), None, there).expect_err("not there").to_string();
            assert!(error.contains(said), "{error}");
        }
        let began = std::time::Instant::now();
        Action::Kill(Whom::Named("node-2".to_owned())).carry_out(None, &there).expect("killed");
        assert!(!child.wait().expect("an end").success());
        // The output ends when nobody holds it any more: neither the shell nor what it started.
        let mut said = String::new();
        child.stdout.take().expect("its output").read_to_string(&mut said).expect("an end");
        assert!(began.elapsed() < std::time::Duration::from_secs(15), "what it started goes on");
    }

    #[test]
    fn a_fault_of_a_network_needs_one() {
        let faults = ["1:kill:1".parse().expect("a fault"), "2:cut:1-2".parse().expect("a fault")];
        let error = check(&faults, None, &[]).expect_err("no network").to_string();
        assert!(error.contains("--network") && error.contains("--fault 2:cut:1-2"), "{error}");
        let error = check(&faults, Some(Path::new("/nobody/here.sock")), &[]).expect_err("no network").to_string();
        assert!(error.contains("/nobody/here.sock"), "{error}");
        assert!(check(&faults[..1], None, &[]).is_ok());
        assert!(faults[1].action.carry_out(None, &[]).is_err());
    }
}
