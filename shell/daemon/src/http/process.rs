//! Figures of the operating system about this process.

/// Resident memory in bytes; `None` where it cannot be found out.
pub(super) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// User and system time in seconds; `None` where it cannot be found out.
pub(super) fn cpu_seconds() -> Option<f64> {
    Some(f64::from(cpu_ticks()?) / 100.0)
}

/// The same in milliseconds.
pub(super) fn cpu_millis() -> Option<u64> {
    Some(u64::from(cpu_ticks()?) * 10)
}

/// `USER_HZ` is 100 on every Linux.
fn cpu_ticks() -> Option<u32> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program may hold anything but ends with the last parenthesis.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    fields.next()?.parse::<u32>().ok()?.checked_add(fields.next()?.parse::<u32>().ok()?)
}

/// Bytes that are free for this user where the directory is.
pub(super) fn free_bytes(dir: &std::path::Path) -> Option<u64> {
    let found = rustix::fs::statvfs(dir).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
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
