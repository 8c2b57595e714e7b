//! Commands that need no controller in this process.

use std::fs;
use std::time::Duration;

use sedge_scale::{Present, Step, removal};

use crate::controller::relieve;
use crate::driver::{World, driver};
use crate::error::ScaleError;
use crate::haproxy::Haproxy;
use crate::process::{Proof, wait_until};
use crate::report::Report;
use crate::site_file::SiteFile;
use crate::state::{Home, State};

/// How long a controller may take to end.
const CONTROLLER: Duration = Duration::from_secs(10);

fn present(state: &State) -> Present {
    let nodes = state
        .nodes
        .iter()
        .filter(|(_, node)| node.served)
        .map(|(name, node)| (name.clone(), node.group.clone()))
        .collect();
    let running =
        state.balancers.iter().filter(|(_, balancer)| balancer.process.as_ref().is_none_or(Proof::is_running));
    let resources = running.map(|(name, _)| name.clone()).chain(state.provided.iter().cloned()).collect();
    Present { nodes, resources }
}

/// Steps that a run would do, in order.
///
/// # Errors
/// The state that was kept of the site cannot be read.
pub fn plan(file: &SiteFile) -> Result<Vec<Step>, ScaleError> {
    let state = Home::of(&file.path).load()?.unwrap_or_default();
    Ok(sedge_scale::plan(&file.site, &present(&state)))
}

/// The state of the site with this folder.
///
/// # Errors
/// Nothing is known of the site.
pub fn status(home: &Home) -> Result<Report, ScaleError> {
    let path = home.report();
    let text = fs::read_to_string(&path).map_err(|error| ScaleError::file("cannot read", &path, error))?;
    let mut report: Report = serde_json::from_str(&text)
        .map_err(|error| ScaleError::other(format!("{} is of another version: {error}", path.display())))?;
    let controller = home.load()?.and_then(|state| state.controller);
    report.running = report.running && controller.is_some_and(|controller| controller.is_running());
    Ok(report)
}

/// Ends everything of a site: controller, load balancers, nodes, files. Returns the steps that were done.
///
/// # Errors
/// Some part of the site could not be ended; the next call tries the rest again.
pub fn delete(file: &SiteFile) -> Result<Vec<Step>, ScaleError> {
    let home = Home::of(&file.path);
    let Some(state) = home.load()? else {
        home.remove()?;
        return Ok(Vec::new());
    };
    if let Some(controller) = &state.controller
        && controller.pid != std::process::id()
        && !controller.end(CONTROLLER)
    {
        return Err(ScaleError::other(format!("the controller (pid {}) does not end", controller.pid)));
    }
    let lock = home.lock()?;
    // The controller may have begun something after the first look.
    let state = home.load()?.unwrap_or_default();
    let mut there = present(&state);
    there.nodes.extend(state.nodes.iter().map(|(name, node)| (name.clone(), node.group.clone())));
    let steps = removal(&file.site, &there);
    let world = World::new(home.clone(), state.clone());
    let driver = driver(&file.site, &world)?;
    for step in &steps {
        let ended = if let Some(balancer) = state.balancers.get(&step.name) {
            balancer.process.as_ref().map_or(Ok(()), |process| Haproxy::new(&home, &step.name).end(process))
        } else if state.nodes.contains_key(&step.name) {
            driver.destroy(&step.name)
        } else {
            driver.release(&step.name)
        };
        ended.map_err(ScaleError::Other)?;
    }
    home.remove()?;
    drop(lock);
    Ok(steps)
}

/// Turns the kill switch of a site on or off.
///
/// # Errors
/// The state that was kept of the site cannot be read or written, or its controller does not answer.
pub fn pause(home: &Home, paused: bool) -> Result<(), ScaleError> {
    let Some(mut state) = home.load()? else { return Err(ScaleError::other("nothing of this site runs")) };
    if state.controller.as_ref().is_some_and(Proof::is_running)
        && let Some(api) = &state.api
    {
        let verb = if paused { "pause" } else { "resume" };
        let nodes = crate::network::Nodes::new(&state.token, Duration::from_secs(5));
        nodes.post(api, &format!("/api/v1/scale/{verb}")).map_err(ScaleError::Other)?;
        let heard = || home.load().ok().flatten().is_some_and(|state| state.paused == paused);
        if !wait_until(Duration::from_secs(5), heard) {
            return Err(ScaleError::other("the controller has not heard it within 5 s"));
        }
        return Ok(());
    }
    state.paused = paused;
    home.save(&state)
}

/// Moves clients of a site's fuller nodes to emptier ones. Says how many of which node; with `dry_run` how many it would be.
///
/// # Errors
/// Nothing of the site runs, or a node does not answer.
pub fn rebalance(home: &Home, dry_run: bool) -> Result<Vec<(String, usize)>, ScaleError> {
    let Some(state) = home.load()? else { return Err(ScaleError::other("nothing of this site runs")) };
    let mut groups: Vec<String> = state.nodes.values().map(|node| node.group.clone()).collect();
    groups.sort();
    groups.dedup();
    let file = SiteFile::load(&state.site)?;
    let world = World::new(home.clone(), state);
    let mut moved = Vec::new();
    for group in groups {
        moved.extend(relieve(&world, &file.site, &group, None, dry_run).map_err(ScaleError::Other)?);
    }
    Ok(moved)
}
