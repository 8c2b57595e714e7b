//! How much memory this process may have.

use std::path::Path;

/// Least that is held for clients, however small the machine.
const BUFFERED_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// Where control groups are shown.
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes that may be held for all clients together: the configured number, or half of the memory that the process may have.
pub(crate) fn buffered_max(configured: usize) -> usize {
    if configured > 0 {
        return configured;
    }
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let available = machine().min(group_limit(Path::new(GROUPS), &groups).unwrap_or(u64::MAX));
    usize::try_from((available / 2).max(BUFFERED_BYTES_MIN)).unwrap_or(usize::MAX)
}

/// Memory of the machine; as much as can be where nobody says.
fn machine() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

/// The least limit of the control group that `groups` (`/proc/self/cgroup`) names and those around it; `None`: there is none.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    // In a container its own group often is the root of what it sees.
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = root.join(own);
    let around = own.ancestors().take_while(|path| path.starts_with(root));
    let limit = |path: &Path| std::fs::read_to_string(path.join("memory.max")).ok()?.trim().parse::<u64>().ok();
    around.filter_map(limit).min()
}

/// Gives back the memory of code that only the start has called: a third of what an idle node takes otherwise. The code comes again from
/// the program's file, page by page, where it is called.
#[expect(
    unsafe_code,
    reason = "no safe call gives pages back; an idle node has 14.7 to 16.5 MiB without, 9 to 12.6 MiB with it"
)]
pub(crate) fn release_code() {
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, length) in maps.lines().filter_map(|line| code_of(line, &program)) {
        let address = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the pages are code of the program, mapped from its file and not writable: a dropped page is read from there again.
        let released = unsafe { rustix::mm::madvise(address, length, rustix::mm::Advice::LinuxDontNeed) };
        if let Err(error) = released {
            tracing::debug!(%error, "the memory of code is not given back");
        }
    }
}

/// Address and length of a mapping, if it is code of the program that nobody can have written to.
fn code_of(line: &str, program: &Path) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    let path = fields.nth(3)?;
    if rights != "r-xp" || Path::new(path) != program {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("site/sedge");
        std::fs::create_dir_all(&inner).unwrap();
        assert_eq!(group_limit(root.path(), "0::/site/sedge\n"), None);
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(group_limit(root.path(), "0::/site/sedge\n"), None);
        std::fs::write(root.path().join("site/memory.max"), "1000\n").unwrap();
        assert_eq!(group_limit(root.path(), "0::/site/sedge\n"), Some(1000));
        std::fs::write(inner.join("memory.max"), "500\n").unwrap();
        assert_eq!(group_limit(root.path(), "1:cpu:/x\n0::/site/sedge\n"), Some(500));
        assert_eq!(group_limit(root.path(), ""), None);
    }

    #[test]
    fn only_code_of_the_program_is_given_back() {
        let program = Path::new("/usr/bin/sedge");
        let line =
            |rights: &str, path: &str| format!("7f0000001000-7f0000003000 {rights} 00002000 fe:00 1234    {path}");
        assert_eq!(code_of(&line("r-xp", "/usr/bin/sedge"), program), Some((0x7f00_0000_1000, 0x2000)));
        for (rights, path) in
            [("r--p", "/usr/bin/sedge"), ("rwxp", "/usr/bin/sedge"), ("r-xp", "/usr/lib/libc.so.6"), ("r-xp", "")]
        {
            assert_eq!(code_of(&line(rights, path), program), None);
        }
        release_code();
        assert_eq!(buffered_max(7), 7, "the program goes on");
    }

    #[test]
    fn what_is_configured_counts() {
        assert_eq!(buffered_max(1 << 20), 1 << 20);
        assert!(buffered_max(0) >= 16 << 20);
        assert!(machine() > 64 << 20);
    }
}
