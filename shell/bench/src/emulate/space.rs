//! Network namespaces and their devices, made with the `ip` command.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::BenchError;

/// Interface on the emulated network, in every namespace.
const SITE: &str = "site0";
/// Interface to clients on this machine, in every namespace.
const HOST: &str = "host0";
/// How long processes in a namespace may take to end when it is removed.
const END: Duration = Duration::from_secs(3);

/// Runs `ip` and gives what it prints.
fn ip(words: &[&str]) -> Result<String, BenchError> {
    let done = Command::new("ip").args(words).stdin(Stdio::null()).output();
    let done = done.map_err(|error| BenchError::Network(format!("ip (package iproute2): {error}")))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&done.stderr);
    Err(BenchError::Network(format!("ip {}: {}", words.join(" "), text.trim())))
}

/// A network namespace that is removed with this value, together with the processes that still run in it.
pub(super) struct Space {
    name: String,
}

impl Space {
    /// Makes a namespace of a name that nobody has yet.
    pub(super) fn new(name: &str) -> Result<Self, BenchError> {
        ip(&["netns", "add", name])?;
        let space = Self { name: name.to_owned() };
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        Ok(space)
    }

    /// Asks the processes in it to end, and does not wait for them.
    pub(super) fn ask_to_end(&self) {
        for pid in processes(&self.name).unwrap_or_default() {
            // One that has just ended by itself is as good.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Leads from here to the namespace, at the speed of the machine. `outer` is the device on this side.
    pub(super) fn connect(&self, outer: &str, outside: Ipv4Addr, inside: Ipv4Addr) -> Result<(), BenchError> {
        let (outside, inside) = (outside.to_string(), inside.to_string());
        let name = self.name.as_str();
        // The kernel takes its time to remove the devices of a namespace: that of an earlier network may still be there.
        if std::path::Path::new("/sys/class/net").join(outer).exists() {
            let _ = ip(&["link", "del", outer]);
        }
        ip(&["link", "add", outer, "type", "veth", "peer", "name", HOST, "netns", name])?;
        ip(&["addr", "add", &outside, "peer", &inside, "dev", outer])?;
        ip(&["link", "set", outer, "up"])?;
        ip(&["-n", name, "addr", "add", &inside, "peer", &outside, "dev", HOST])?;
        ip(&["-n", name, "link", "set", HOST, "up"])?;
        Ok(())
    }

    /// Takes the TUN device `device` from here into the namespace, with an address on the emulated network.
    pub(super) fn adopt(&self, device: &str, site: Ipv4Addr) -> Result<(), BenchError> {
        let name = self.name.as_str();
        ip(&["link", "set", device, "netns", name, "name", SITE])?;
        // Nothing but IPv4 is emulated: without an address of its own, IPv6 sends no solicitations either.
        ip(&["-n", name, "link", "set", SITE, "addrgenmode", "none"])?;
        ip(&["-n", name, "addr", "add", &format!("{site}/24"), "brd", "+", "dev", SITE])?;
        ip(&["-n", name, "link", "set", SITE, "up"])?;
        ip(&["-n", name, "route", "add", "224.0.0.0/4", "dev", SITE])?;
        Ok(())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // A namespace that cannot be removed is listed as stale by the next network.
        let _ = remove(&self.name);
    }
}

/// Ends the processes in a namespace and removes it. `ip` fails where a process of anybody ends while it looks through all of them, so it is
/// asked again as long as there is something to remove.
pub(super) fn remove(name: &str) -> Result<(), BenchError> {
    let deadline = Instant::now() + END;
    loop {
        let removed = end_processes(name).and_then(|()| ip(&["netns", "del", name]).map(drop));
        if removed.is_ok() || Instant::now() > deadline || !exists(name) {
            return removed;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes in a namespace.
fn processes(name: &str) -> Result<Vec<Pid>, BenchError> {
    let text = ip(&["netns", "pids", name])?;
    Ok(text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect())
}

/// Asks the processes in a namespace to end, and kills those that do not.
fn end_processes(name: &str) -> Result<(), BenchError> {
    let deadline = Instant::now() + END;
    let mut asked = Vec::new();
    loop {
        let running = processes(name)?;
        if running.is_empty() {
            return Ok(());
        }
        let late = Instant::now() > deadline;
        for pid in running {
            // One that has just ended by itself is as good.
            if late {
                let _ = kill_process(pid, Signal::KILL);
            } else if !asked.contains(&pid) {
                let _ = kill_process(pid, Signal::TERM);
                asked.push(pid);
            }
        }
        if Instant::now() > deadline + END {
            return Err(BenchError::Network(format!("{name}: processes do not end")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Packets that the kernel of a node dropped since nobody read them in time.
pub(super) fn unread(name: &str) -> Result<u64, BenchError> {
    let text = ip(&["-n", name, "-j", "-s", "link", "show", "dev", SITE])?;
    dropped(&text).ok_or_else(|| BenchError::Network(format!("ip -j -s link show dev {SITE}: no counters: {text}")))
}

/// Dropped packets of the first device in the JSON of `ip -s link`.
fn dropped(text: &str) -> Option<u64> {
    let devices: serde_json::Value = serde_json::from_str(text).ok()?;
    devices.pointer("/0/stats64/tx/dropped")?.as_u64()
}

/// Whether a namespace of this name is there.
pub(super) fn exists(name: &str) -> bool {
    std::path::Path::new("/run/netns").join(name).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_packets_are_found() {
        let text = r#"[{"ifname":"site0","stats64":{"rx":{"dropped":1},"tx":{"bytes":9,"dropped":7}}}]"#;
        assert_eq!(dropped(text), Some(7));
        assert_eq!(dropped("[]"), None);
        assert_eq!(dropped(""), None);
    }
}
