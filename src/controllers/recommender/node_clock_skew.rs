//! Detects nodes whose clocks are ahead of the local clock. Their samples are rejected, and each node is logged once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use plimsoll_core::types::Time;

use super::pass::MAX_NAMED;

/// Nodes that are known to be ahead.
#[derive(Debug, Default)]
pub(super) struct NodeClockSkew(BTreeSet<Arc<str>>);

impl NodeClockSkew {
    /// Logs nodes that became ahead since their clock was last right.
    pub(super) fn warn(&mut self, ahead: &BTreeMap<Arc<str>, Time>, is_complete: bool) {
        let new_nodes = self.newly_skewed(ahead, is_complete);
        let Some(latest) = new_nodes.iter().filter_map(|node| ahead.get(node)).max() else {
            return;
        };
        let nodes = new_nodes.len();
        let first = new_nodes.into_iter().take(MAX_NAMED).collect::<Vec<_>>().join(", ");
        tracing::warn!(
            nodes,
            first,
            %latest,
            "rejected samples with future timestamps: clocks of nodes are ahead of the local clock"
        );
    }

    /// The nodes that were not known to be ahead. An incomplete reading says nothing about the nodes that it lacks.
    fn newly_skewed(
        &mut self,
        ahead: &BTreeMap<Arc<str>, Time>,
        is_complete: bool,
    ) -> Vec<Arc<str>> {
        if is_complete {
            self.0.retain(|node| ahead.contains_key(node));
        }
        ahead.keys().filter(|node| self.0.insert(Arc::clone(node))).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_with_a_fast_clock_is_reported_once() {
        let found = |nodes: &[&str]| -> BTreeMap<Arc<str>, Time> {
            nodes.iter().map(|node| (Arc::from(*node), Time::EPOCH)).collect()
        };
        let mut clocks = NodeClockSkew::default();
        let mut news = |nodes: &[&str], is_complete| {
            clocks
                .newly_skewed(&found(nodes), is_complete)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(news(&["a", "b"], true), ["a", "b"]);
        assert!(news(&["a", "b"], true).is_empty());
        assert_eq!(news(&["c"], false), ["c"]);
        assert!(news(&["a"], true).is_empty(), "an incomplete reading does not clear a node");
        assert_eq!(news(&["b"], true), ["b"], "its clock was right in between");
    }
}
