//! Looks up values in a document; refuses what is shared, repeated or may come from elsewhere.

use super::{
    problem::{Refusal, Refused},
    tree::{Document, Entry, Node},
};

const MERGE_KEY: &str = "<<";

/// A file with its tree, while it is searched.
#[derive(Clone, Copy)]
pub(super) struct Source<'t> {
    pub text: &'t str,
    pub document: &'t Document,
    pub comments: &'t [std::ops::Range<usize>],
}

impl<'t> Source<'t> {
    /// The entry of a mapping; `None` if the mapping does not have it, or is null.
    pub fn entry(self, mapping: &'t Node, key: &str) -> Result<Option<&'t Entry>, Refused> {
        self.check_own(mapping)?;
        if mapping.is_null() {
            return Ok(None);
        }
        if !mapping.is_mapping() || self.is_template(mapping) {
            return Err(self.unexpected(mapping, Refusal::NotMapping));
        }
        let mut found = mapping.entries().iter().filter(|entry| entry.key.text() == Some(key));
        match (found.next(), found.next()) {
            (Some(entry), None) => {
                self.check_own(&entry.value)?;
                Ok(Some(entry))
            }
            (Some(_), Some(second)) => {
                Err(refused(&second.key, Refusal::DuplicateKey(key.to_owned())))
            }
            (None, _) => {
                let merge = mapping.entries().iter().find(|e| e.key.text() == Some(MERGE_KEY));
                merge.map_or(Ok(None), |merge| Err(refused(&merge.key, Refusal::MergeKey)))
            }
        }
    }

    /// The value at a path of keys.
    pub fn value(self, from: &'t Node, path: &[&str]) -> Result<Option<&'t Node>, Refused> {
        let mut node = from;
        for key in path {
            let Some(entry) = self.entry(node, key)? else { return Ok(None) };
            node = &entry.value;
        }
        Ok(Some(node))
    }

    /// The items of a sequence; empty if it is null.
    pub fn items(self, sequence: &'t Node) -> Result<&'t [Node], Refused> {
        self.check_own(sequence)?;
        match &sequence.value {
            super::tree::Value::Sequence { items, .. } => Ok(items),
            _ if sequence.is_null() => Ok(&[]),
            _ => Err(self.unexpected(sequence, Refusal::NotList)),
        }
    }

    /// Checks that a node is no alias, and that no alias uses it.
    pub fn check_own(self, node: &Node) -> Result<(), Refused> {
        if matches!(node.value, super::tree::Value::Alias) {
            return Err(refused(node, Refusal::Alias));
        }
        if node.anchor != 0 && self.document.aliased.contains(&node.anchor) {
            return Err(refused(node, Refusal::Anchor));
        }
        Ok(())
    }

    /// A refusal of a node of another type than expected.
    pub fn unexpected(self, node: &Node, reason: fn(String) -> Refusal) -> Refused {
        if self.is_template(node) {
            return refused(node, Refusal::Template);
        }
        refused(node, reason(self.excerpt(node)))
    }

    /// Whether a node is written as `{{ ... }}`, which is a mapping to YAML, or contains it.
    pub fn is_template(self, node: &Node) -> bool {
        let written = self.text.get(node.range.clone()).unwrap_or_default();
        match node.text() {
            Some(text) => text.contains("{{"),
            None => node.is_flow() && written.starts_with("{{"),
        }
    }

    /// The beginning of the text of a node.
    fn excerpt(self, node: &Node) -> String {
        let written = if node.range.is_empty() {
            &self.text[node.range.start..]
        } else {
            &self.text[node.range.clone()]
        };
        written.lines().next().unwrap_or_default().chars().take(40).collect()
    }
}

pub(super) fn refused(node: &Node, reason: Refusal) -> Refused {
    Refused { line: node.line, reason }
}
