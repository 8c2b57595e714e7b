//! Making the world what the site says: resources in the order of their needs, groups at their size, load balancers in step.

use sedge_base::Duration;

use super::Scaler;
use crate::api::{ActionKind, ScaleOutput};
use crate::group::{GroupState, Member, free_name};
use crate::site::Kind;
use crate::status::MemberState;

/// Whether a resource is made by an action of its own.
pub(super) const fn is_provided(kind: &Kind) -> bool {
    matches!(kind, Kind::Plain(_) | Kind::LoadBalancer(_))
}

impl Scaler {
    /// Begins whatever is missing and can begin.
    pub(super) fn reconcile(&mut self) {
        if self.paused {
            return;
        }
        let mut wanted = Vec::new();
        for (name, resource) in &self.site.resources {
            if is_provided(&resource.kind) && !self.provided.contains(name) && self.are_met(&resource.needs) {
                let kind = ActionKind::Provide { resource: name.clone() };
                if !self.pending.values().any(|pending| pending.action.kind == kind) {
                    wanted.push(kind);
                }
            }
        }
        for kind in wanted {
            self.begin(kind, Duration::ZERO);
        }
        let groups: Vec<(String, Vec<String>)> = self
            .site
            .resources
            .iter()
            .filter(|(_, resource)| matches!(resource.kind, Kind::Group(_)))
            .map(|(name, resource)| (name.clone(), resource.needs.clone()))
            .collect();
        for (name, needs) in groups {
            if self.are_met(&needs) {
                self.resize(&name);
            }
        }
        self.balance();
    }

    /// Whether all these resources are there.
    fn are_met(&self, needs: &[String]) -> bool {
        needs.iter().all(|need| match self.site.resources.get(need).map(|resource| &resource.kind) {
            Some(Kind::Group(spec)) => self
                .groups
                .get(need)
                .is_some_and(|group| group.serving().len() >= usize::try_from(spec.min).unwrap_or(0)),
            Some(Kind::LoadBalancer(_) | Kind::Plain(_)) => self.provided.contains(need),
            Some(Kind::Alarm(_) | Kind::Policy(_)) | None => true,
        })
    }

    /// Makes the nodes that a group lacks, or gives up one that it has too many.
    fn resize(&mut self, name: &str) {
        let now = self.now.instant;
        let Some(group) = self.groups.get_mut(name) else { return };
        let mut made = Vec::new();
        while group.staying() < group.target {
            let node = free_name(name, |node| group.members.contains_key(node));
            group.members.insert(node.clone(), Member::new(MemberState::Starting, now));
            made.push(node);
        }
        let too_many = group.staying() > group.target;
        let serve = group.members.values().all(|member| member.state == MemberState::Serving);
        let last = self.site.driver.removes_last();
        let pick = |group: &GroupState| if last { group.last() } else { group.cheapest(&self.alarming.store) };
        let given_up = if too_many && serve { pick(group) } else { None };
        for node in made {
            self.create(name, node, Duration::ZERO);
        }
        if let Some(node) = given_up {
            self.give_up(name, &node);
        }
    }

    /// Takes a node out of the load balancers, then has it emptied.
    fn give_up(&mut self, name: &str, node: &str) {
        let now = self.now.instant;
        let Some(group) = self.groups.get_mut(name) else { return };
        if let Some(member) = group.members.get_mut(node) {
            member.enter(MemberState::Leaving, now);
        }
        group.settled = now;
        self.balance();
        self.begin(ActionKind::Remove { group: name.to_owned(), node: node.to_owned() }, Duration::ZERO);
    }

    /// Tells each load balancer that is there which nodes serve, if that has changed.
    pub(super) fn balance(&mut self) {
        let mut told = Vec::new();
        for (name, balancer) in self.site.balancers().filter(|(name, _)| self.provided.contains(*name)) {
            let nodes = self.groups.get(&balancer.backend).map(GroupState::serving).unwrap_or_default();
            if self.balanced.get(name) != Some(&nodes) {
                told.push((name.to_owned(), nodes));
            }
        }
        for (balancer, nodes) in told {
            self.balanced.insert(balancer.clone(), nodes.clone());
            self.outputs.push_back(ScaleOutput::Balance { balancer, nodes });
        }
    }
}
