//! Figures of the operating system: processor time and memory of brokers, limits, counters of the network.

use std::collections::BTreeSet;
use std::fs;

use crate::num;

/// Processor time and memory of some processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Processor time since their start in seconds.
    pub(crate) cpu_s: f64,
    /// Resident memory in KiB.
    pub(crate) rss_kib: u64,
}

impl Usage {
    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { cpu_s: self.cpu_s + other.cpu_s, rss_kib: self.rss_kib + other.rss_kib }
    }
}

/// Processor time and memory of the processes `pids` and their descendants together; none if none of them lives.
pub(crate) fn usage(pids: &[u32]) -> Option<Usage> {
    let mut all = BTreeSet::new();
    for pid in pids {
        family(*pid, &mut all);
    }
    let mut sum: Option<Usage> = None;
    for pid in all {
        if let Some(one) = usage_of(pid) {
            sum = Some(sum.unwrap_or_default().and(one));
        }
    }
    sum
}

/// Adds `pid` and its descendants.
fn family(pid: u32, all: &mut BTreeSet<u32>) {
    if !all.insert(pid) {
        return;
    }
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for task in tasks.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            family(child, all);
        }
    }
}

fn usage_of(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = cpu_ticks(&stat)?;
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    let page = num::count(rustix::param::page_size());
    let cpu_s = num::real(ticks) / num::real(rustix::param::clock_ticks_per_second());
    Some(Usage { cpu_s, rss_kib: pages * page / 1_024 })
}

/// User and system time in clock ticks from the text of `/proc/PID/stat`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name of the program is in brackets and may hold anything, brackets included.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Counters of the whole machine's TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpCounters {
    /// Segments sent.
    pub(crate) sent: u64,
    /// Segments sent again.
    pub(crate) resent: u64,
}

/// Counters of the whole machine's TCP, all 0 where the system does not tell.
pub(crate) fn tcp_counters() -> TcpCounters {
    let text = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let value = |name| counter(&text, "Tcp:", name).unwrap_or(0);
    TcpCounters { sent: value("OutSegs"), resent: value("RetransSegs") }
}

/// The counter `name` from a table whose lines begin with `table`: one line of names, one of values.
fn counter(text: &str, table: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(table));
    let names = lines.next()?.split_whitespace();
    let values = lines.next()?.split_whitespace();
    names.zip(values).find(|(known, _)| *known == name)?.1.parse().ok()
}

/// Raises the limit of open files as far as allowed, and says what speaks against `sockets` connections from this process.
pub(crate) fn prepare_for(sockets: u64, destinations: u64, sources: u64) -> Result<Vec<String>, String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // If it is refused the check below says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = sockets + 64;
    if needed > most {
        return Err(format!(
            "{sockets} connections need {needed} file descriptors, and a process may have {most} here: \
             use several processes (`sedge bench drive`)"
        ));
    }
    let mut warnings = Vec::new();
    if needed * 10 > most * 9 {
        warnings.push(format!("{needed} file descriptors of {most} are needed"));
    }
    let ports = port_range().map_or(28_232, |(low, high)| u64::from(high.saturating_sub(low)) + 1);
    let available = ports * destinations.max(1) * sources.max(1);
    if sockets > available {
        return Err(format!(
            "{sockets} connections need as many ports, and there are {available}: add addresses with --source"
        ));
    }
    if sockets * 10 > available * 9 {
        warnings.push(format!("{sockets} ports of {available} are needed"));
    }
    Ok(warnings)
}

fn port_range() -> Option<(u16, u16)> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// One line about this machine: processor, cores, memory, system.
pub(crate) fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let name = name.trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{name}, {cores} cores, {} GiB, Linux {}", kib >> 20, kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        let stat = "7 (a) b ( c) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 9 9 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(175));
        assert_eq!(cpu_ticks("nonsense"), None);
    }

    #[test]
    fn counters_are_found_by_name() {
        let text = "Ip: A B\nIp: 1 2\nTcp: OutSegs RetransSegs\nTcp: 30 4\n";
        assert_eq!(counter(text, "Tcp:", "RetransSegs"), Some(4));
        assert_eq!(counter(text, "Tcp:", "Other"), None);
    }

    #[test]
    fn this_process_uses_something() {
        let own = usage(&[std::process::id()]).expect("this process lives");
        assert!(own.rss_kib > 0);
        assert_eq!(usage(&[]), None);
    }

    #[test]
    fn too_many_connections_are_refused_with_advice() {
        assert!(prepare_for(10, 1, 1).expect("few").is_empty());
        let text = prepare_for(u64::MAX / 100, 1, 1).expect_err("too many");
        assert!(text.contains("several processes") || text.contains("--source"), "{text}");
    }
}
