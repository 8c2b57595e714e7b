//! Messages of the orchestrator to modules elsewhere, and from them (EL-21).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sedge_scale::{AlarmState, Notice, ScaleInput};

use super::{Controller, measured};
use crate::bus::{GroupNews, Module, News, NodeNews};
use crate::clock::wall;

/// How often the list of nodes is said again, for modules that began later or missed one.
const AGAIN: Duration = Duration::from_secs(5);

impl Controller {
    /// Takes in a message of a module elsewhere. Messages of a kind of module that runs here are left out.
    pub(super) fn learn(&mut self, news: News) {
        match news {
            News::Connected => {
                self.told = None;
                let status = self.scaler.status();
                for alarm in status.alarms.iter().filter(|_| self.here.contains(&Module::Alarming)) {
                    self.say_alarm(&alarm.name, alarm.state, alarm.value);
                }
            }
            News::Sample((node, metric, value)) if !self.here.contains(&Module::Metering) => {
                self.give(ScaleInput::Sample { node, metric, value });
            }
            News::Alarm(alarm, state, value) if !self.here.contains(&Module::Alarming) => {
                self.give(ScaleInput::Alarm { alarm, state, value });
            }
            News::Modules(modules, runs) => self.note_modules(modules, runs),
            News::Sample(_) | News::Alarm(..) | News::Groups(_) => {}
        }
    }

    fn note_modules(&mut self, modules: Vec<Module>, runs: bool) {
        self.elsewhere.insert(modules, runs);
        if !self.here.contains(&Module::Alarming) && !self.runs_elsewhere(Module::Alarming) {
            // The last states that the alarming module elsewhere has said may no longer hold.
            for alarm in self.scaler.status().alarms {
                self.give(ScaleInput::Alarm { alarm: alarm.name, state: AlarmState::InsufficientData, value: None });
            }
        }
    }

    fn runs_elsewhere(&self, module: Module) -> bool {
        self.elsewhere.iter().any(|(modules, runs)| *runs && modules.contains(&module))
    }

    /// The modules of the site and where they run.
    pub(super) fn modules(&self) -> BTreeMap<String, String> {
        let place = |module: Module| {
            if self.here.contains(&module) {
                "here"
            } else if self.runs_elsewhere(module) {
                "elsewhere"
            } else {
                "missing"
            }
        };
        Module::ALL.into_iter().map(|module| (module.name().to_owned(), place(module).to_owned())).collect()
    }

    pub(super) fn tell_alarm(&self, notice: &Notice) {
        tracing::info!(?notice, "an alarm has changed its state");
        if self.here.contains(&Module::Alarming) {
            self.say_alarm(&notice.alarm, notice.to, notice.value);
        }
    }

    fn say_alarm(&self, name: &str, state: AlarmState, value: Option<f64>) {
        if let Some(bus) = &self.bus {
            bus.tell_alarm(name, state, value, wall().as_millis());
        }
    }

    /// Says which nodes serve, when that changes and now and then.
    pub(super) fn tell_groups(&mut self) {
        let Some(bus) = &self.bus else { return };
        let nodes: BTreeMap<String, NodeNews> = measured(&self.world, &self.site.site)
            .into_iter()
            .map(|node| (node.node, NodeNews { http: node.http, cpus: node.cpus }))
            .collect();
        let groups = self.scaler.serving(self.clock.now()).map(|(group, serving, settled)| {
            let nodes = serving.into_iter().map(|node| (node.clone(), nodes.get(&node).cloned().unwrap_or_default()));
            let settled_ms = u64::try_from(settled.as_millis()).unwrap_or(u64::MAX);
            (group.to_owned(), GroupNews { settled_ms, nodes: nodes.collect() })
        });
        let groups: BTreeMap<String, GroupNews> = groups.collect();
        let known = self.told.as_ref().filter(|(_, at)| at.elapsed() < AGAIN);
        let same = |(before, _): &(BTreeMap<String, GroupNews>, Instant)| {
            before.len() == groups.len()
                && before.iter().all(|(name, group)| {
                    // A group that has settled anew has had other nodes in between.
                    groups.get(name).is_some_and(|now| now.nodes == group.nodes && now.settled_ms >= group.settled_ms)
                })
        };
        if !known.is_some_and(same) {
            bus.tell_groups(&groups);
            self.told = Some((groups, Instant::now()));
        }
    }
}
