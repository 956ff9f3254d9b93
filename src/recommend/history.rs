//! What is remembered about one VPA: a history for each of its containers.

use std::sync::Arc;

use plimsoll_storage::Time;

use super::{
    container::ContainerHistory,
    settings::{Rules, Settings},
};
use crate::compat::Fix;

/// The histories of one VPA's containers, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    containers: Vec<(Arc<str>, ContainerHistory)>,
}

impl History {
    /// The history of a container, begun now if there is none. Call it when a live pod has the container.
    pub fn container_mut(&mut self, name: &str, now: Time, rules: &Rules) -> &mut ContainerHistory {
        let index = match self.find(name) {
            Ok(index) => index,
            Err(index) => {
                self.containers.reserve_exact(1);
                self.containers.insert(index, (name.into(), ContainerHistory::new(now, rules)));
                index
            }
        };
        let container = &mut self.containers[index].1;
        container.mark_alive(now);
        container
    }

    /// Takes in what a storage remembered, on top of what is known already.
    pub fn restore(&mut self, name: Arc<str>, remembered: ContainerHistory, rules: &Rules) {
        match self.find(&name) {
            Ok(index) => self.containers[index].1.merge(&remembered, rules),
            Err(index) => self.containers.insert(index, (name, remembered)),
        }
    }

    /// The history of a container.
    pub fn get(&self, name: &str) -> Option<&ContainerHistory> {
        self.find(name).ok().map(|index| &self.containers[index].1)
    }

    /// All containers, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &ContainerHistory)> {
        self.containers.iter().map(|(name, container)| (name, container))
    }

    /// All containers for writing, by name.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut ContainerHistory)> {
        self.containers.iter_mut().map(|(name, container)| (&*name, container))
    }

    /// Forgets the containers whose history says nothing any more. Answers their names.
    pub fn forget_expired(&mut self, now: Time, rules: &Rules) -> Vec<Arc<str>> {
        let mut gone = Vec::new();
        self.containers.retain(|(name, container)| {
            let keep = !container.is_expired(now, rules);
            if !keep {
                gone.push(Arc::clone(name));
            }
            keep
        });
        gone
    }

    /// Whether a container has left the pods of its VPA: others of them were seen alive long after it.
    /// Without any live pod nothing is stale, so that a workload scaled to zero keeps what it had.
    pub fn is_stale(&self, container: &ContainerHistory, settings: &Settings) -> bool {
        if !settings.fixes.has(Fix::StaleContainersLeave) {
            return false;
        }
        let newest = self.containers.iter().filter_map(|(_, other)| other.last_alive).max();
        match (newest, container.last_alive) {
            (Some(newest), Some(last)) => newest > last.later(settings.stale_after),
            (Some(newest), None) => newest > container.created.later(settings.stale_after),
            (None, _) => false,
        }
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.containers.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}
