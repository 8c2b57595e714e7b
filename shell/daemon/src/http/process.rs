//! What the operating system says about this process.

/// Resident memory in bytes; `None` where it cannot be found out.
pub(super) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// User and system time in seconds; `None` where it cannot be found out.
pub(super) fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program may hold anything but ends with the last parenthesis.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u32>().ok()?.checked_add(fields.next()?.parse::<u32>().ok()?)?;
    // USER_HZ is 100 on every Linux.
    Some(f64::from(ticks) / 100.0)
}

/// Open file descriptors; `None` where it cannot be found out.
pub(super) fn open_descriptors() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_time_and_files() {
        assert!(resident_bytes().unwrap() > 100_000);
        assert!(cpu_seconds().is_some());
        assert!(open_descriptors().unwrap() > 2);
    }
}
