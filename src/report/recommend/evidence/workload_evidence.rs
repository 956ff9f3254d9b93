//! The evidence of the containers of one workload.
//!
//! A sorted vector has room for exactly its containers. A hash map with one entry has room for four, each as large as the
//! evidence, and a large cluster has one for each of its workloads.

use std::sync::Arc;

use plimsoll_core::rightsizing::evidence::ContainerEvidence;

/// Evidence of the containers of one workload, sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadEvidence(Vec<(Arc<str>, ContainerEvidence)>);

impl WorkloadEvidence {
    pub fn get(&self, container: &str) -> Option<&ContainerEvidence> {
        self.position(container).ok().map(|index| &self.0[index].1)
    }

    /// Sets the evidence of a container.
    pub fn insert(&mut self, container: &str, evidence: ContainerEvidence) {
        *self.get_or_insert_default(container) = evidence;
    }

    /// The evidence of a container, to change it.
    pub fn get_or_insert_default(&mut self, container: &str) -> &mut ContainerEvidence {
        let index = self.position(container).unwrap_or_else(|index| {
            // Without this, the capacity doubles.
            self.0.reserve_exact(1);
            self.0.insert(index, (container.into(), ContainerEvidence::default()));
            index
        });
        &mut self.0[index].1
    }

    /// All containers, to change their evidence.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut ContainerEvidence)> {
        self.0.iter_mut().map(|(name, evidence)| (&**name, evidence))
    }

    /// The size of its entries in memory, without what they point to.
    #[cfg(test)]
    pub fn allocated_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(Arc<str>, ContainerEvidence)>()
    }

    fn position(&self, container: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| (**name).cmp(container))
    }
}

impl FromIterator<(Arc<str>, ContainerEvidence)> for WorkloadEvidence {
    fn from_iter<T: IntoIterator<Item = (Arc<str>, ContainerEvidence)>>(evidence: T) -> Self {
        let mut all = Vec::from_iter(evidence);
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.dedup_by(|(one, _), (other, _)| one == other);
        Self(all)
    }
}

#[cfg(test)]
impl std::ops::Index<&str> for WorkloadEvidence {
    type Output = ContainerEvidence;

    fn index(&self, container: &str) -> &ContainerEvidence {
        self.get(container).expect("the container has evidence")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_kills(oom_kills: u32) -> ContainerEvidence {
        ContainerEvidence { oom_kills, ..ContainerEvidence::default() }
    }

    #[test]
    fn containers_are_found_by_name_and_take_no_more_room_than_they_need() {
        let named = |name: &str, kills| (Arc::<str>::from(name), with_kills(kills));
        let mut evidence: WorkloadEvidence =
            [named("proxy", 1), named("app", 2)].into_iter().collect();
        evidence.insert("log", with_kills(3));
        evidence.insert("proxy", with_kills(4));
        let kills = ["app", "log", "proxy", "none"]
            .map(|name| evidence.get(name).map(|container| container.oom_kills));
        assert_eq!(kills, [Some(2), Some(3), Some(4), None]);
        assert_eq!(evidence.allocated_bytes(), 3 * size_of::<(Arc<str>, ContainerEvidence)>());
        for (_, container) in evidence.iter_mut() {
            container.oom_kills += 10;
        }
        assert_eq!(evidence["log"].oom_kills, 13);
    }
}
