//! What is done to brokers while they are measured.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use rustix::process::{Pid, Signal, kill_process};

use crate::emulate::{Request, ask};
use crate::error::BenchError;

/// What is done to brokers while they are measured: `SECONDS:kill:PID`, `:term:`, `:stop:`, `:cont:`, `SECONDS:run:COMMAND`, or, in an
/// emulated network, `SECONDS:cut:A-B`, `SECONDS:cut:A>B`, `SECONDS:isolate:A` and `SECONDS:heal:`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// When, in seconds from the beginning of the measurement.
    pub(crate) at_s: f64,
    /// What.
    pub(crate) action: Action,
}

/// One thing that can be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Kills a process without warning.
    Kill(u32),
    /// Asks a process to end.
    Term(u32),
    /// Freezes a process.
    Stop(u32),
    /// Lets a frozen process go on.
    Cont(u32),
    /// Runs a command by the shell without waiting for it: restarts a broker, cuts a network.
    Run(String),
    /// Changes an emulated network.
    Network(Request),
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text}: no fault such as 10:kill:PID, 10:stop:PID, 15:cont:PID, 12:run:COMMAND, 10:cut:A-B, 10:cut:A>B, 10:isolate:A or 15:heal:"
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
        let pid = || object.parse::<u32>().ok().ok_or_else(wrong);
        let action = match what {
            "kill" => Action::Kill(pid()?),
            "term" => Action::Term(pid()?),
            "stop" => Action::Stop(pid()?),
            "cont" => Action::Cont(pid()?),
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
            Self::Kill(pid) => write!(f, "kill {pid}"),
            Self::Term(pid) => write!(f, "term {pid}"),
            Self::Stop(pid) => write!(f, "stop {pid}"),
            Self::Cont(pid) => write!(f, "cont {pid}"),
            Self::Run(command) => write!(f, "run {command}"),
            Self::Network(request) => write!(f, "{request}"),
        }
    }
}

impl Action {
    /// Does it. `network` is where the emulated network takes requests. The text says why it could not be done.
    pub(crate) fn carry_out(&self, network: Option<&Path>) -> Result<(), String> {
        let signal = |pid: &u32, signal| {
            let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw).ok_or_else(|| format!("{pid}: no process"))?;
            kill_process(pid, signal).map_err(|error| error.to_string())
        };
        match self {
            Self::Kill(pid) => signal(pid, Signal::KILL),
            Self::Term(pid) => signal(pid, Signal::TERM),
            Self::Stop(pid) => signal(pid, Signal::STOP),
            Self::Cont(pid) => signal(pid, Signal::CONT),
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

/// Says before a run starts why faults of an emulated network could not happen.
pub(crate) fn check(faults: &[Fault], network: Option<&Path>) -> Result<(), BenchError> {
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
        assert_eq!(fault, Fault { at_s: 12.5, action: Action::Kill(77) });
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
            "-1:kill:1",
            "1:eat:1",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_schedule_reaches_a_process() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        Action::Stop(child.id()).carry_out(None).expect("stopped");
        Action::Cont(child.id()).carry_out(None).expect("goes on");
        Action::Kill(child.id()).carry_out(None).expect("killed");
        assert!(!child.wait().expect("an end").success());
        assert!(Action::Kill(child.id()).carry_out(None).is_err(), "it is no more");
    }

    #[test]
    fn a_fault_of_a_network_needs_one() {
        let faults = ["1:kill:1".parse().expect("a fault"), "2:cut:1-2".parse().expect("a fault")];
        let error = check(&faults, None).expect_err("no network").to_string();
        assert!(error.contains("--network") && error.contains("--fault 2:cut:1-2"), "{error}");
        let error = check(&faults, Some(Path::new("/nobody/here.sock"))).expect_err("no network").to_string();
        assert!(error.contains("/nobody/here.sock"), "{error}");
        assert!(check(&faults[..1], None).is_ok());
        assert!(faults[1].action.carry_out(None).is_err());
    }
}
