//! The clocks of a node, read once a turn.
//!
//! The time of the cluster ([`Now::wall`]) is read from the system's clock once, when the process starts, and counted on by the clock of the machine
//! since its boot, which nobody sets and which counts while the machine sleeps. Other nodes may correct it; a file keeps the correction over restarts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use sedge_base::{Now, Timestamp};

use crate::identity;

/// Name of the file in the data directory.
const FILE: &str = "clock";
/// Where Linux tells this boot of the machine from others.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Reads the time for all machines of a node.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<State>);

#[derive(Debug)]
struct State {
    /// Since the boot of the machine, at the start of the process.
    start: Duration,
    /// The time of the cluster then, in milliseconds since the Unix epoch.
    wall: u64,
    /// By how many milliseconds other nodes have corrected it since.
    corrected: AtomicI64,
    file: Option<PathBuf>,
}

/// The time as a former life of the node knew it.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    boot: String,
    /// Milliseconds since that boot, and the time of the cluster then.
    since_boot: u64,
    cluster: u64,
    /// By how many milliseconds the time of the cluster was ahead of the system's clock.
    ahead: i64,
}

impl Kept {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let boot = words.next()?.to_owned();
        let (since_boot, cluster) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { boot, since_boot, cluster, ahead: words.next()?.parse().ok()? })
    }

    /// The present time by the state of a former life: within one boot by the clock that nobody sets, else by the system's clock with the
    /// correction that it needed, and never before the former life.
    fn time(&self, boot: &str, since_boot: u64, system: u64) -> u64 {
        if !boot.is_empty() && boot == self.boot {
            return self.cluster.saturating_add(since_boot.saturating_sub(self.since_boot));
        }
        system.saturating_add_signed(self.ahead).max(self.cluster)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How long ago the machine was booted, sleep included.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

impl Clock {
    /// A clock that starts now, and goes on from what the data directory says about a former life.
    pub(crate) fn start(data_dir: Option<&Path>) -> Self {
        let file = data_dir.map(|dir| dir.join(FILE));
        let (start, system) = (since_boot(), wall().as_millis());
        let kept = file.as_ref().and_then(|file| Kept::read(&fs::read_to_string(file).ok()?));
        let wall = kept.map_or(system, |kept| kept.time(&boot_id(), millis(start), system));
        Self(Arc::new(State { start, wall, corrected: AtomicI64::new(0), file }))
    }

    pub(crate) fn now(&self) -> Now {
        let passed = self.uptime();
        let nanos = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        let corrected = self.0.corrected.load(Ordering::Relaxed);
        let wall = self.0.wall.saturating_add(millis(passed)).saturating_add_signed(corrected);
        Now { instant: sedge_base::Instant::from_nanos(nanos), wall: Timestamp::from_millis(wall) }
    }

    /// Other nodes say that the time of the cluster is by so many milliseconds ahead.
    pub(crate) fn correct(&self, ahead: i64) {
        self.0.corrected.fetch_add(ahead, Ordering::Relaxed);
    }

    /// By how many milliseconds the system's clock is ahead of the time of the cluster.
    pub(crate) fn system_ahead(&self) -> i64 {
        let signed = |time: Timestamp| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        signed(wall()).saturating_sub(signed(self.now().wall))
    }

    /// Writes down what time it is, for the next life. Without a data directory, or room in it, the next life begins with the system's clock.
    pub(crate) fn keep(&self) {
        let Some(file) = &self.0.file else { return };
        let (cluster, ahead) = (self.now().wall.as_millis(), self.system_ahead().saturating_neg());
        let text = format!("{} {} {cluster} {ahead}", boot_id(), millis(since_boot()));
        if let Err(error) = identity::replace(file, &text) {
            tracing::debug!(%error, "the time of the cluster is not written down");
        }
    }

    /// Time since the start.
    pub(crate) fn uptime(&self) -> Duration {
        since_boot().saturating_sub(self.0.start)
    }
}

/// The system's clock.
pub(crate) fn wall() -> Timestamp {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_goes_on_with_the_time_that_its_former_life_had() {
        let kept = Kept::read("boot-1 1000 500000 -3600").unwrap();
        assert_eq!(kept, Kept { boot: "boot-1".to_owned(), since_boot: 1_000, cluster: 500_000, ahead: -3_600 });
        assert_eq!(kept.time("boot-1", 4_000, 9), 503_000, "within one boot, whatever the system's clock says");
        assert_eq!(kept.time("boot-2", 10, 700_000), 696_400, "after a boot as far off as before");
        assert_eq!(kept.time("boot-2", 10, 0), 500_000, "a machine without a clock of its own goes on from before");
        assert_eq!(Kept::read("boot-1 x"), None);
    }

    #[test]
    fn the_time_of_the_cluster_is_kept_and_corrected() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::start(Some(dir.path()));
        assert!(clock.system_ahead().abs() < 1_000);
        clock.correct(-3_600_000);
        assert!((clock.system_ahead() - 3_600_000).abs() < 1_000);
        clock.keep();
        let next = Clock::start(Some(dir.path()));
        assert!((next.system_ahead() - 3_600_000).abs() < 1_000);
    }
}
