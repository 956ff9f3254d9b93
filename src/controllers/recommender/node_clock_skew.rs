//! Nodes whose clocks are ahead of this process's: their samples are refused, and each node is named once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use plimsoll_core::types::Time;

use super::pass::MAX_NAMED;

/// The nodes whose clocks are ahead, so that each is warned of once.
#[derive(Debug, Default)]
pub(super) struct NodeClockSkew(BTreeSet<Arc<str>>);

impl NodeClockSkew {
    /// Warns of the nodes that a reading found ahead, and of no node twice before its clock was right again.
    pub(super) fn warn(&mut self, found: &BTreeMap<Arc<str>, Time>, is_complete: bool) {
        let news = self.newly_skewed(found, is_complete);
        let Some(latest) = news.iter().filter_map(|node| found.get(node)).max() else { return };
        let nodes = news.len();
        let first = news.into_iter().take(MAX_NAMED).collect::<Vec<_>>().join(", ");
        tracing::warn!(
            nodes,
            first,
            %latest,
            "refused samples from the future: the clocks of nodes are ahead of this process's clock"
        );
    }

    /// The nodes that were not known to be ahead. A reading that came in part says nothing of those that it lacks.
    fn newly_skewed(
        &mut self,
        found: &BTreeMap<Arc<str>, Time>,
        is_complete: bool,
    ) -> Vec<Arc<str>> {
        if is_complete {
            self.0.retain(|node| found.contains_key(node));
        }
        found.keys().filter(|node| self.0.insert(Arc::clone(node))).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_whose_clock_is_ahead_is_warned_of_once() {
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
        assert!(news(&["a"], true).is_empty(), "what came in part did not say that it was right");
        assert_eq!(news(&["b"], true), ["b"], "its clock was right in between");
    }
}
