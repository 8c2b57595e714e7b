//! The capacity of this machine, for overlays that choose roots by it (TR-07): idle processors and free memory, at the start of the node.

use std::fs;

use crate::config::Weights;

/// A processor that is idle all the time counts as much as this.
const PER_CPU: u64 = 100;
/// So much free memory counts 1.
const MEMORY_UNIT_KIB: u64 = 64 * 1024;

/// The configured capacity, or the measured one: idle share of the processors in percent, times their number, and free memory in units of
/// 64 MiB, each with its weight. At least 1.
pub(crate) fn capacity(configured: u32, weights: Weights) -> u32 {
    if configured > 0 {
        return configured;
    }
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    let idle = fs::read_to_string("/proc/stat").ok().and_then(|stat| idle_percent(&stat)).unwrap_or(PER_CPU);
    let free = fs::read_to_string("/proc/meminfo").ok().and_then(|info| free_kib(&info)).unwrap_or(0);
    weigh(cpus.saturating_mul(idle), free / MEMORY_UNIT_KIB, weights)
}

fn weigh(idle: u64, free: u64, weights: Weights) -> u32 {
    let (idle, free) = (idle.saturating_mul(weights.cpu.into()), free.saturating_mul(weights.memory.into()));
    u32::try_from(idle.saturating_add(free)).unwrap_or(u32::MAX).max(1)
}

/// Share of the time since the machine started in which its processors had nothing to do (`/proc/stat`, first line).
fn idle_percent(stat: &str) -> Option<u64> {
    let times = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = times.split_whitespace().map_while(|time| time.parse().ok()).collect();
    // Time of guests is counted as that of users, too.
    let total: u64 = times.iter().take(8).sum();
    let idle = times.get(3)? + times.get(4).copied().unwrap_or(0);
    (idle * PER_CPU).checked_div(total)
}

fn free_kib(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TR-07
    #[test]
    fn idle_processors_and_free_memory_count() {
        assert_eq!(idle_percent("cpu  10 0 10 60 20 0 0 0 0 0\ncpu0 1 2 3\n"), Some(80));
        assert_eq!(idle_percent("cpu  0 0 0 0\n"), None);
        assert_eq!(idle_percent("nonsense"), None);
        assert_eq!(free_kib("MemTotal: 1 kB\nMemAvailable:   4096 kB\n"), Some(4096));
        assert_eq!(free_kib("MemAvailable: much\n"), None);
        assert_eq!(capacity(7, Weights::default()), 7);
        assert!(capacity(0, Weights::default()) > 1);
    }

    /// TR-07: which of two machines is the stronger depends on the weights.
    #[test]
    fn weights_change_the_choice() {
        let (fast, large) = ((390, 16), (95, 256));
        let weigh = |(idle, free), cpu, memory| weigh(idle, free, Weights { cpu, memory, ..Weights::default() });
        assert_eq!((weigh(fast, 1, 1), weigh(large, 1, 1)), (406, 351));
        assert!(weigh(fast, 1, 10) < weigh(large, 1, 10));
        assert_eq!(weigh(fast, 0, 0), 1);
    }
}
