//! Drivers in other processes, on this machine or others: one line of JSON per message, both ways.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::driver::{Command, Event, Handle, Setup, spawn};
use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::num;
use crate::run::Options;
use crate::scenario::Scenario;

/// Exchanges by which clocks are compared; the fastest counts.
const EXCHANGES: usize = 32;
/// Most time to wait for a driver while it is set up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Orders of a coordinator to a driver process.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Order {
    /// Tell the time of the driver's clock.
    Time,
    /// Take part in a run.
    Take(Box<Share>),
    /// A command for each of the driver's threads.
    Tell(Command),
}

/// Answers of a driver process to its coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Answer {
    /// Number of the driver's threads, sent first.
    Threads(usize),
    /// A warning about the driver's share of the run.
    Warning(String),
    /// Time of the driver's clock.
    Time(u64),
    /// The driver could not carry out the order.
    Failed(String),
    /// An event of one of the driver's threads.
    Event(usize, Event),
}

/// The part of one process in a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) scenario: Scenario,
    pub(crate) brokers: Vec<Endpoint>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) run: u32,
    /// Every delivery is reported.
    pub(crate) raw: bool,
    /// Driver threads of all processes.
    pub(crate) drivers: usize,
    /// Number of this process's first thread among them.
    pub(crate) first: usize,
    /// How far this process's clock is ahead of the coordinator's, in ns.
    pub(crate) ahead: i64,
}

/// A driver process as its coordinator sees it.
#[derive(Debug)]
pub(crate) struct Remote {
    name: String,
    writer: BufWriter<TcpStream>,
    reader: Option<BufReader<TcpStream>>,
    /// Its threads.
    pub(crate) threads: usize,
    /// How far its clock is ahead, in ns.
    pub(crate) ahead: i64,
    /// How sure that is: half of the fastest exchange, in ns.
    pub(crate) error: u64,
}

fn write_line(writer: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *writer, value)?;
    writer.write_all(b"\n")?;
    writer.flush()
}

fn read_line<T: for<'a> Deserialize<'a>>(reader: &mut impl BufRead) -> std::io::Result<T> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

impl Remote {
    /// Connects to the driver process at `address` and compares clocks.
    pub(crate) fn connect(address: &str, clock: &Clock) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| BenchError::Driver(format!("driver {address}: {error}"));
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut reader = BufReader::new(stream.try_clone().map_err(failed)?);
        let mut writer = BufWriter::new(stream);
        let Answer::Threads(threads) = read_line(&mut reader).map_err(failed)? else {
            return Err(BenchError::Driver(format!("driver {address}: it does not say how many threads it has")));
        };
        let mut best: Option<(u64, i64)> = None;
        for _ in 0..EXCHANGES {
            let before = clock.now();
            write_line(&mut writer, &Order::Time).map_err(failed)?;
            let answer: Answer = read_line(&mut reader).map_err(failed)?;
            let after = clock.now();
            if let Answer::Time(there) = answer {
                let exchange = compare_clocks(before, there, after);
                best = Some(best.map_or(exchange, |best| best.min(exchange)));
            }
        }
        let (error, ahead) = best.unwrap_or_default();
        Ok(Self { name: address.to_owned(), writer, reader: Some(reader), threads, ahead, error })
    }

    /// Gives the process its share of a run; what its threads say goes to `events`.
    pub(crate) fn take(&mut self, share: Share, events: Sender<(usize, Event)>) -> Result<(), BenchError> {
        let (first, threads) = (share.first, self.threads);
        self.order(&Order::Take(Box::new(share)))?;
        let Some(mut reader) = self.reader.take() else { return Ok(()) };
        let unlimited = self.writer.get_ref().set_read_timeout(None);
        unlimited.map_err(BenchError::system("a driver's connection"))?;
        let name = self.name.clone();
        let listen = move || {
            loop {
                let (index, event) = match read_line(&mut reader) {
                    Ok(Answer::Event(index, event)) => (first + index.min(threads), event),
                    Ok(Answer::Warning(text)) => (first, Event::Warning(format!("driver {name}: {text}"))),
                    Ok(Answer::Failed(text)) => (first, Event::Failed(format!("driver {name}: {text}"))),
                    Ok(Answer::Threads(_) | Answer::Time(_)) => continue,
                    Err(error) => {
                        // At the end of a run nobody listens any more.
                        let _ = events.send((first, Event::Failed(format!("driver {name}: {error}"))));
                        return;
                    }
                };
                if events.send((index, event)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("bench-remote".to_owned()).spawn(listen);
        thread.map(drop).map_err(BenchError::system("a thread"))
    }

    /// Tells all threads of the process.
    pub(crate) fn tell(&mut self, command: &Command) -> Result<(), BenchError> {
        self.order(&Order::Tell(command.clone()))
    }

    fn order(&mut self, order: &Order) -> Result<(), BenchError> {
        let name = &self.name;
        write_line(&mut self.writer, order).map_err(|error| BenchError::Driver(format!("driver {name}: {error}")))
    }

    /// Where it is, and how its clock differs.
    pub(crate) fn clock_note(&self) -> String {
        let micros = |nanos: u64| num::real(nanos) / 1e3;
        let sign = if self.ahead < 0 { "behind" } else { "ahead" };
        let (ahead, error) = (micros(self.ahead.unsigned_abs()), micros(self.error));
        format!("driver {}: its clock is {ahead:.1} µs {sign} (± {error:.1} µs), corrected", self.name)
    }
}

/// Uncertainty and lead of a clock that said `there` between `before` and `after`.
fn compare_clocks(before: u64, there: u64, after: u64) -> (u64, i64) {
    let half = after.saturating_sub(before) / 2;
    let here = before + half;
    let size = i64::try_from(there.abs_diff(here)).unwrap_or(i64::MAX);
    (half, if there < here { -size } else { size })
}

/// Serves coordinators at `listener`, one after another, with so many threads; `rounds` of them, or for ever.
pub(crate) fn drive(
    listener: &TcpListener,
    options: &Options,
    rounds: Option<usize>,
    note: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let mut served = 0;
    while rounds.is_none_or(|rounds| served < rounds) {
        let (stream, peer) = listener.accept().map_err(BenchError::system("waiting for a coordinator"))?;
        served += 1;
        note(&format!("run for {peer}"));
        match serve(stream, options) {
            Ok(()) => note("done"),
            Err(error) => note(&format!("given up: {error}")),
        }
    }
    Ok(())
}

fn serve(stream: TcpStream, options: &Options) -> Result<(), BenchError> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = BufWriter::new(stream);
    write_line(&mut writer, &Answer::Threads(options.threads.max(1)))?;
    let clock = Clock::new();
    let (sender, events) = channel();
    let mut events = Some(events);
    let mut handles: Vec<Handle> = Vec::new();
    let mut relay = None;
    let result = loop {
        match read_line(&mut reader) {
            Ok(Order::Time) if relay.is_none() => write_line(&mut writer, &Answer::Time(clock.now()))?,
            Ok(Order::Take(share)) if relay.is_none() => match start(*share, options, clock, &sender) {
                Ok((first, started, warnings)) => {
                    handles = started;
                    for warning in warnings {
                        write_line(&mut writer, &Answer::Warning(warning))?;
                    }
                    let Some(events) = events.take() else { break Ok(()) };
                    let mut writer = BufWriter::new(writer.get_ref().try_clone()?);
                    relay = Some(std::thread::spawn(move || {
                        for (index, event) in events {
                            if write_line(&mut writer, &Answer::Event(index - first, event)).is_err() {
                                return;
                            }
                        }
                    }));
                }
                Err(error) => {
                    write_line(&mut writer, &Answer::Failed(error.to_string()))?;
                    break Err(error);
                }
            },
            Ok(Order::Tell(command)) => {
                tell(&handles, &command);
                if matches!(command, Command::Finish) {
                    break Ok(());
                }
            }
            Ok(Order::Time | Order::Take(_)) => {}
            Err(error) => break Err(error.into()),
        }
    };
    // Also when the coordinator is gone: its clients have to go too.
    tell(&handles, &Command::Finish);
    for handle in handles {
        let _ = handle.thread.join();
    }
    drop(sender);
    if let Some(relay) = relay {
        let _ = relay.join();
    }
    result
}

fn tell(handles: &[Handle], command: &Command) {
    for handle in handles {
        // A thread that has ended needs no command.
        let _ = handle.commands.send(command.clone());
        let _ = handle.waker.wake();
    }
}

/// Starts the threads for `share`; returns the number of the first of them too, and what speaks against the share.
fn start(
    share: Share,
    options: &Options,
    clock: Clock,
    events: &Sender<(usize, Event)>,
) -> Result<(usize, Vec<Handle>, Vec<String>), BenchError> {
    let first = share.first;
    let threads = options.threads.max(1);
    let sockets = share.scenario.clients() * num::count(threads) / num::count(share.drivers.max(1));
    let (destinations, sources) = (num::count(share.brokers.len()), num::count(options.sources.len()));
    let warnings = crate::host::prepare_for(sockets, destinations, sources).map_err(BenchError::Usage)?;
    let ahead = share.ahead.checked_neg().unwrap_or(0);
    let setup = Arc::new(Setup::new(share, options, clock.shifted(ahead))?);
    let handles: Result<Vec<Handle>, BenchError> =
        (0..threads).map(|index| spawn(&setup, first + index, events.clone())).collect();
    Ok((first, handles?, warnings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_by_the_middle_of_an_exchange() {
        assert_eq!(compare_clocks(1_000, 6_050, 1_100), (50, 5_000));
        assert_eq!(compare_clocks(9_000, 50, 9_100), (50, -9_000));
        assert_eq!(compare_clocks(5, 5, 5), (0, 0));
    }

    #[test]
    fn a_clock_can_be_set_to_another() {
        let clock = Clock::new();
        let there = clock.shifted(-5_000_000_000);
        let lead = clock.now().abs_diff(there.now());
        assert!((4_000_000_000..=5_000_000_000).contains(&lead), "{lead}");
    }
}
