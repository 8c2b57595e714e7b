//! The other end of a worker: starts it, hands it messages, ends it when one takes too long.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sedge_jq::Bounds;
use sedge_rules::{Jq, Made, Transform, TransformError};

use super::{COMMAND, frame};

/// The program that runs now, whatever has become of its file.
const ITSELF: &str = "/proc/self/exe";
/// How often it is looked whether the rule is still wanted, and what time of a processor a message has taken.
const LOOK: Duration = Duration::from_millis(50);
/// How long a worker may be kept from its processor before it is given up without fault of the message.
const PATIENCE: Duration = Duration::from_secs(10);
/// Milliseconds of a tick in `/proc/PID/stat`.
const TICK: u64 = 10;

/// Runs the program of a rule, in a process that starts with the first message.
pub struct Worker {
    jq: Jq,
    running: Option<Running>,
    goes_on: Box<dyn Fn() -> bool + Send>,
}

struct Running {
    child: Child,
    socket: UnixStream,
}

/// A fault that prevents an answer of the worker.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("cannot start a process for jq: {0}")]
    NotStarted(io::Error),
    #[error("the process has ended: {0}")]
    Ended(io::Error),
    #[error("the time of the message is used up")]
    TooLong,
    /// Nobody waits for the answer any more, or the process gets no processor.
    #[error("{0}")]
    GivenUp(&'static str),
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("jq", &self.jq).finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker for this program, which is given up in the middle of a message when `goes_on` says no.
    pub fn new(jq: Jq, goes_on: Box<dyn Fn() -> bool + Send>) -> Self {
        Self { jq, running: None, goes_on }
    }

    fn start(&self) -> io::Result<Running> {
        let (socket, other) = UnixStream::pair()?;
        let second = other.try_clone()?;
        let child = Command::new(ITSELF)
            .arg0("sedge")
            .arg(COMMAND)
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::from(OwnedFd::from(second)))
            .stderr(Stdio::null())
            .spawn()?;
        let mut running = Running { child, socket };
        running.socket.set_read_timeout(Some(LOOK))?;
        running.socket.set_write_timeout(Some(PATIENCE))?;
        let bounds = Bounds { outputs: self.jq.outputs, bytes: self.jq.output_bytes };
        frame::write(&mut running.socket, &frame::hello(&self.jq.program, bounds))?;
        let ready = running.answer(u64::MAX, &self.goes_on).map_err(|trouble| io::Error::other(trouble.to_string()))?;
        match frame::read_answer(&ready) {
            Some(Ok(_)) => Ok(running),
            _ => Err(io::Error::other("a strange answer")),
        }
    }

    fn ask(&mut self, message: &[u8]) -> Result<Vec<u8>, Trouble> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.start().map_err(Trouble::NotStarted)?,
        };
        frame::write(&mut running.socket, message).map_err(Trouble::Ended)?;
        let answer = running.answer(self.jq.millis, &self.goes_on)?;
        self.running = Some(running);
        Ok(answer)
    }
}

impl Transform for Worker {
    fn run(&mut self, message: &[u8]) -> Result<Vec<Made>, TransformError> {
        // Somebody else may have ended the process: only a message that ends two has had a part in it.
        for _ in 0..2 {
            match self.ask(message) {
                Ok(frame) => {
                    let answer = frame::read_answer(&frame);
                    return answer.unwrap_or_else(|| Err(TransformError::Broken("a strange answer".to_owned())));
                }
                Err(Trouble::TooLong) => {
                    let what = format!("took more than {} ms of a processor", self.jq.millis);
                    return Err(TransformError::OverBudget(what));
                }
                Err(trouble @ (Trouble::NotStarted(_) | Trouble::GivenUp(_))) => {
                    return Err(TransformError::Broken(trouble.to_string()));
                }
                Err(Trouble::Ended(error)) => tracing::debug!(%error, "a process for jq has ended"),
            }
        }
        Err(TransformError::OverBudget("took too much memory or recursed too deeply".to_owned()))
    }
}

impl Running {
    fn answer(&mut self, millis: u64, goes_on: &dyn Fn() -> bool) -> Result<Vec<u8>, Trouble> {
        let begun = Instant::now();
        // Of the first pause on: what a message takes before it is less than that.
        let mut used_before = None;
        let (mut bytes, mut missing) = (Vec::new(), 4);
        let mut part = [0; 8 << 10];
        loop {
            match self.socket.read(&mut part) {
                Ok(0) => return Err(Trouble::Ended(ErrorKind::UnexpectedEof.into())),
                Ok(count) => bytes.extend_from_slice(part.get(..count).unwrap_or_default()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    let used = self.used().unwrap_or_else(|| elapsed(begun));
                    if used.saturating_sub(*used_before.get_or_insert(used)) >= millis {
                        return Err(Trouble::TooLong);
                    }
                    if !goes_on() {
                        return Err(Trouble::GivenUp("the rule ends at this node"));
                    }
                    if begun.elapsed() > PATIENCE {
                        return Err(Trouble::GivenUp("jq gets no time of a processor"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A process that ends without having read everything resets the connection.
                Err(_) => return Err(Trouble::Ended(ErrorKind::UnexpectedEof.into())),
            }
            if let Some(length) = bytes.first_chunk() {
                let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
                if length > frame::FRAME_MAX {
                    return Err(Trouble::GivenUp("an answer is too long"));
                }
                missing = 4 + length;
            }
            if bytes.len() >= missing {
                bytes.drain(..4);
                return Ok(bytes);
            }
        }
    }

    /// Milliseconds of a processor that the process has used.
    fn used(&self) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        Some((ticks()? + ticks()?) * TICK)
    }
}

fn elapsed(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
