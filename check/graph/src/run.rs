//! Which experiments there are, and how they are run.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use crate::{assignment, bases, crash, hops, load, messages, paths, spreading, tables};

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Messages for each publication, also without subscribers (figures 3.7 and 3.8 of the source).
    Messages,
    /// Hops from publishers to subscribers (figures 3.9 to 3.11).
    Paths,
    /// Factors that forwarding depends on (figures 3.12 and 3.13).
    Load,
    /// Sizes of routing tables (figures 3.14 and 3.15).
    Tables,
    /// Split-forward broadcasting against multi-range forwarding (figures 4.5 and 4.6).
    Hops,
    /// Sequential forwarding and broadcasts against both.
    Spreading,
    /// Bases of membership vectors, and searches.
    Bases,
    /// Repair after many crashes.
    Crash,
    /// Few brokers or many for the subscribers of a topic (figure 4.9).
    Assignment,
}

impl Experiment {
    /// All of them, the longest first.
    pub const ALL: [Self; 9] = [
        Self::Tables,
        Self::Paths,
        Self::Hops,
        Self::Messages,
        Self::Load,
        Self::Spreading,
        Self::Bases,
        Self::Crash,
        Self::Assignment,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Paths => "paths",
            Self::Load => "load",
            Self::Tables => "tables",
            Self::Hops => "hops",
            Self::Spreading => "spreading",
            Self::Bases => "bases",
            Self::Crash => "crash",
            Self::Assignment => "assignment",
        }
    }

    fn run(self, options: &Options) -> String {
        match self {
            Self::Messages => messages::run(options),
            Self::Paths => paths::run(options),
            Self::Load => load::run(options),
            Self::Tables => tables::run(options),
            Self::Hops => hops::run(options),
            Self::Spreading => spreading::run(options),
            Self::Bases => bases::run(options),
            Self::Crash => crash::run(options),
            Self::Assignment => assignment::run(),
        }
    }
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed that everything is drawn from.
    pub seed: u64,
    /// A hundredth of the nodes: to see that everything works.
    pub quick: bool,
    /// Experiments to run; all if there are none.
    pub experiments: Vec<Experiment>,
    /// Experiments at a time.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, quick: false, experiments: Vec::new(), threads: 2 }
    }
}

impl Options {
    /// `full` nodes, or fewer for a quick run.
    pub(crate) const fn nodes(&self, full: usize) -> usize {
        if self.quick { full / 100 } else { full }
    }
}

/// Runs the experiments and writes a report in Markdown, each part as soon as it and those before it are there.
pub fn run(options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let wanted = if options.experiments.is_empty() { Experiment::ALL.to_vec() } else { options.experiments.clone() };
    let begin = Instant::now();
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, wanted.len()) {
            let (sender, next, wanted) = (sender.clone(), &next, &wanted);
            scope.spawn(move || {
                while let Some(experiment) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begin = Instant::now();
                    let report = experiment.run(options);
                    // Nobody listens any more if the report cannot be written.
                    let _ = sender.send((experiment.name(), report, begin.elapsed()));
                }
            });
        }
        drop(sender);
        for (name, report, time) in receiver {
            writeln!(out, "{report}\n`{name}` took {:.0} s.\n", time.as_secs_f64())?;
            out.flush()?;
        }
        writeln!(out, "Seed {}, {:.0} s in all.", options.seed, begin.elapsed().as_secs_f64())
    })
}
