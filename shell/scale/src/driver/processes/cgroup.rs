//! Limits of processor and memory for a process, by control groups of the kernel (version 2, or the cpu and memory controllers of 1).

use std::fs;
use std::path::{Path, PathBuf};

use sedge_scale::site::MemberSpec;

use crate::state::Home;

const ROOT: &str = "/sys/fs/cgroup";
/// Length of the period in which a share of processor time is counted, in microseconds.
const PERIOD: f64 = 100_000.0;

/// Name of the control group of a node.
fn name(home: &Home, node: &str) -> String {
    let site = home.dir().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    format!("sedge-{site}-{node}")
}

fn folders(home: &Home, node: &str) -> Vec<PathBuf> {
    let name = name(home, node);
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return vec![root.join(name)];
    }
    ["cpu", "memory"].map(|controller| root.join(controller).join(&name)).to_vec()
}

/// Holds a process to the limits of its spec.
pub(super) fn hold(home: &Home, node: &str, pid: u32, spec: &MemberSpec) -> Result<(), String> {
    let failed = |path: &Path, error: std::io::Error| {
        let path = path.display();
        format!(
            "cpu and memory of {node} cannot be limited ({path}: {error}); start the controller as root, or remove these fields"
        )
    };
    for folder in folders(home, node) {
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        for (file, value) in settings(&folder, spec) {
            let path = folder.join(file);
            fs::write(&path, value).map_err(|error| failed(&path, error))?;
        }
        let path = folder.join("cgroup.procs");
        fs::write(&path, pid.to_string()).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// The files to write, for the version that the folder is of.
fn settings(folder: &Path, spec: &MemberSpec) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    let quota = spec.cpu.map(|cpu| (cpu * PERIOD).round());
    let memory = spec.memory.map(|bytes| bytes.to_string());
    if folder.join("cgroup.controllers").exists() {
        settings.extend(quota.map(|quota| ("cpu.max", format!("{quota} {PERIOD}"))));
        settings.extend(memory.map(|bytes| ("memory.max", bytes)));
    } else if folder.join("cpu.cfs_quota_us").exists() {
        settings.extend(quota.map(|quota| ("cpu.cfs_quota_us", quota.to_string())));
    } else {
        settings.extend(memory.map(|bytes| ("memory.limit_in_bytes", bytes)));
    }
    settings
}

/// Removes the control group of a node that has ended.
pub(super) fn release(home: &Home, node: &str) {
    for folder in folders(home, node) {
        let _ = fs::remove_dir(folder);
    }
}
