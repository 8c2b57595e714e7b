//! What is done to brokers while they are measured.

use std::fmt;
use std::process::Command;
use std::str::FromStr;

use rustix::process::{Pid, Signal, kill_process};

/// What is done to brokers while they are measured: `SECONDS:kill:PID`, `:term:`, `:stop:`, `:cont:` or `SECONDS:run:COMMAND`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// When, in seconds from the beginning of the measurement.
    pub(crate) at_s: f64,
    /// What.
    pub(crate) action: Action,
}

/// One thing that can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: no fault such as 10:kill:PID, 10:stop:PID, 15:cont:PID or 12:run:COMMAND");
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
        }
    }
}

impl Action {
    /// Does it. The text says why it could not be done.
    pub(crate) fn carry_out(&self) -> Result<(), String> {
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
        }
    }
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
        for text in ["", "x:kill:1", "1:kill", "1:kill:x", "-1:kill:1", "1:eat:1"] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_schedule_reaches_a_process() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        Action::Stop(child.id()).carry_out().expect("stopped");
        Action::Cont(child.id()).carry_out().expect("goes on");
        Action::Kill(child.id()).carry_out().expect("killed");
        assert!(!child.wait().expect("an end").success());
        assert!(Action::Kill(child.id()).carry_out().is_err(), "it is no more");
    }
}
