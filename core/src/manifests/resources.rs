//! Edits of the resources of one container.

use crate::{
    rightsizing::{report::ResourceReport, survey::Resource},
    types::Quantity,
};

use super::{
    amount, block_edit,
    flow_edit::{self, NewValue},
    lookup::{Source, refused},
    problem::{Refusal, Refused},
    text_edit::TextEdit,
    tree::{Entry, Node},
};

const RESOURCES: &str = "resources";

/// `requests` or `limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Requests,
    Limits,
}

const SECTIONS: [Section; 2] = [Section::Requests, Section::Limits];

impl Section {
    fn key(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

fn resource_key(resource: Resource) -> &'static str {
    resource.into()
}

/// A value of a container that has to change.
#[derive(Clone, Debug)]
pub(super) struct ValueChange<'t> {
    section: Section,
    resource: Resource,
    /// `None` if it is removed.
    new: Option<String>,
    existing: Option<&'t Entry>,
}

/// A container within a file.
#[derive(Clone, Copy)]
pub(super) struct ContainerNode<'t> {
    pub source: Source<'t>,
    pub node: &'t Node,
    /// The columns of a level of blocks.
    pub step: usize,
}

impl<'t> ContainerNode<'t> {
    /// What has to change for one resource; nothing if the file has the wanted values already.
    pub fn changes(self, wanted: &ResourceReport) -> Result<Vec<ValueChange<'t>>, Refused> {
        let resource = wanted.resource;
        let request = self.existing(Section::Requests, resource)?;
        let limit = self.existing(Section::Limits, resource)?;
        let has_limit = limit.is_some_and(|entry| !entry.value.is_null());
        let changes_limit = wanted.change.limit.is_some() || wanted.change.remove_limit;
        // A container without a request has its limit as request, so a request has to be added to keep it.
        let kept_request =
            wanted.request.filter(|_| request.is_none() && changes_limit && has_limit);
        let new_request = wanted.change.request.or(kept_request);
        let new_limit = wanted.change.limit.filter(|_| !wanted.change.remove_limit);

        let mut request_text = new_request.map(|amount| amount::amount_text(resource, amount));
        let kept_limit = limit.filter(|_| !wanted.change.remove_limit);
        let limit_after = match (new_limit, kept_limit) {
            (Some(amount), _) => {
                Some(amount::quantity(resource, amount::rounded(resource, amount)))
            }
            (None, Some(entry)) => quantity_of(entry),
            (None, None) => None,
        };
        let kept = request.filter(|_| new_request.is_none() && new_limit.is_some());
        if let (Some(entry), Some(limit_after)) = (kept, limit_after.as_ref())
            && let Some(kept) = quantity_of(entry)
            && kept > *limit_after
        {
            return Err(Refused {
                line: entry.key.line,
                reason: Refusal::RequestAboveLimit {
                    request: kept.to_string(),
                    limit: limit_after.to_string(),
                },
            });
        }
        if let (Some(amount), Some(limit_after)) = (new_request, limit_after) {
            if amount::quantity(resource, amount) > limit_after {
                return Err(Refused {
                    line: limit.or(request).map_or(self.node.line, |entry| entry.key.line),
                    reason: Refusal::RequestAboveLimit {
                        request: amount::amount_text(resource, amount),
                        limit: limit_after.to_string(),
                    },
                });
            }
            if amount::quantity(resource, amount::rounded(resource, amount)) > limit_after {
                request_text = Some(amount::exact_text(resource, amount));
            }
        }
        let mut changes = Vec::new();
        if let Some(text) = request_text {
            changes.extend(self.value_change(Section::Requests, resource, request, text)?);
        }
        if let Some(amount) = new_limit {
            let text = amount::amount_text(resource, amount);
            changes.extend(self.value_change(Section::Limits, resource, limit, text)?);
        }
        // In a patch, null removes the limit already.
        if wanted.change.remove_limit && has_limit {
            changes.push(ValueChange {
                section: Section::Limits,
                resource,
                new: None,
                existing: limit,
            });
        }
        Ok(changes)
    }

    fn value_change(
        self,
        section: Section,
        resource: Resource,
        existing: Option<&'t Entry>,
        text: String,
    ) -> Result<Option<ValueChange<'t>>, Refused> {
        if let Some(entry) = existing.filter(|entry| !entry.value.is_null()) {
            let Some(written) = entry.value.text() else {
                return Err(self.source.unexpected(&entry.value, Refusal::NotScalar));
            };
            let Ok(quantity) = written.trim().parse::<Quantity>() else {
                return Err(self.source.unexpected(&entry.value, Refusal::NotQuantity));
            };
            if text.parse() == Ok(quantity) {
                return Ok(None);
            }
        }
        Ok(Some(ValueChange { section, resource, new: Some(text), existing }))
    }

    /// The entry of a request or limit.
    pub fn existing(
        self,
        section: Section,
        resource: Resource,
    ) -> Result<Option<&'t Entry>, Refused> {
        let Some(resources) = self.source.value(self.node, &[RESOURCES, section.key()])? else {
            return Ok(None);
        };
        self.source.entry(resources, resource_key(resource))
    }

    /// The line that shows a resource: that of the request, of the limit, of `resources` or of the container.
    pub fn line(self, resource: Resource) -> usize {
        let entry = |section| self.existing(section, resource).ok().flatten();
        let resources = || self.source.entry(self.node, RESOURCES).ok().flatten();
        entry(Section::Requests)
            .or_else(|| entry(Section::Limits))
            .or_else(resources)
            .map_or(self.node.line, |entry| entry.key.line)
    }

    /// Edits that apply changes as far as they do not get in each other's way. The others follow once the
    /// edited text has been parsed again.
    pub fn edits(self, changes: &[ValueChange<'t>]) -> Result<Vec<TextEdit>, Refused> {
        let mut edits = Vec::new();
        for change in changes {
            if let (Some(new), Some(entry)) = (&change.new, change.existing) {
                let section = self.source.value(self.node, &[RESOURCES, change.section.key()])?;
                let Some(mapping) = section else { continue };
                edits.push(block_edit::replace_scalar(self.source, mapping, entry, new)?);
            }
        }
        let missing: Vec<_> = changes
            .iter()
            .filter(|change| change.new.is_some() && change.existing.is_none())
            .collect();
        let inserted = self.insertions(&missing)?;
        if inserted.is_empty() {
            edits.extend(self.removals(changes)?);
        } else {
            edits.extend(inserted);
        }
        Ok(edits)
    }

    fn insertions(self, missing: &[&ValueChange<'t>]) -> Result<Vec<TextEdit>, Refused> {
        let entries = |section: Section| -> Vec<(&'static str, NewValue)> {
            let wanted = missing.iter().filter(|change| change.section == section);
            let values = wanted.filter_map(|change| {
                Some((resource_key(change.resource), NewValue::Text(change.new.clone()?)))
            });
            values.collect()
        };
        let sections: Vec<_> = SECTIONS
            .into_iter()
            .map(|section| (section, entries(section)))
            .filter(|(_, entries)| !entries.is_empty())
            .collect();
        if sections.is_empty() {
            return Ok(Vec::new());
        }
        let as_mappings = |sections: &[(Section, Vec<(&'static str, NewValue)>)]| -> Vec<_> {
            let mapping = |(section, entries): &(Section, Vec<_>)| {
                (section.key(), NewValue::Mapping(entries.clone()))
            };
            sections.iter().map(mapping).collect()
        };
        let Some(resources) = self.source.entry(self.node, RESOURCES)? else {
            let new = [(RESOURCES, NewValue::Mapping(as_mappings(&sections)))];
            return Ok(vec![self.insert_resources(&new)?]);
        };
        if resources.value.is_empty() {
            return self.fill(self.node, resources, &as_mappings(&sections));
        }
        let mut edits = Vec::new();
        let mut absent = Vec::new();
        for (section, new) in sections {
            match self.source.entry(&resources.value, section.key())? {
                None => absent.push((section, new)),
                Some(owner) if owner.value.is_empty() => {
                    edits.extend(self.fill(&resources.value, owner, &new)?);
                }
                Some(owner) => edits.push(self.insert(owner, &new)?),
            }
        }
        if !absent.is_empty() {
            edits.push(self.insert(resources, &as_mappings(&absent))?);
        }
        Ok(edits)
    }

    /// Inserts `resources` after the image, or after the name.
    fn insert_resources(self, new: &[(&'static str, NewValue)]) -> Result<TextEdit, Refused> {
        if self.node.is_flow() {
            return flow_edit::insert(self.source, self.node, new);
        }
        let entry = |key| self.source.entry(self.node, key).ok().flatten();
        let after = ["image", "name"]
            .into_iter()
            .filter_map(entry)
            .find(|entry| block_edit::last_line(self.source, entry).is_some())
            .ok_or_else(|| refused(self.node, Refusal::Layout))?;
        block_edit::insert_after(self.source, self.node, after, new, self.step)
    }

    /// Inserts entries into a mapping that has some.
    fn insert(
        self,
        owner: &'t Entry,
        new: &[(&'static str, NewValue)],
    ) -> Result<TextEdit, Refused> {
        let mapping = &owner.value;
        if mapping.is_flow() {
            return flow_edit::insert(self.source, mapping, new);
        }
        match mapping.entries().last() {
            Some(last) if block_edit::last_line(self.source, last).is_some() => {
                block_edit::insert_after(self.source, mapping, last, new, self.step)
            }
            _ => block_edit::insert_first(self.source, owner, new, self.step),
        }
    }

    /// Gives entries to a key whose value is null or an empty mapping.
    fn fill(
        self,
        parent: &Node,
        owner: &'t Entry,
        new: &[(&'static str, NewValue)],
    ) -> Result<Vec<TextEdit>, Refused> {
        if owner.value.tag != super::tree::TagKind::None || owner.value.anchor != 0 {
            return Err(refused(&owner.value, Refusal::Layout));
        }
        if !parent.is_flow() {
            return block_edit::fill(self.source, owner, new, self.step);
        }
        if owner.value.is_mapping() {
            return Ok(vec![flow_edit::fill(self.source, &owner.value, &owner.key, new)?]);
        }
        let json = flow_edit::is_json(parent, &owner.key);
        let text = format!("{{{}}}", flow_edit::render(new, json));
        Ok(vec![if owner.value.range.is_empty() {
            TextEdit::insert(flow_edit::colon_end(self.source, owner)?, format!(" {text}"))
        } else {
            TextEdit { range: owner.value.range.clone(), text }
        }])
    }

    /// Removes limits, and `limits` itself if none is left.
    fn removals(self, changes: &[ValueChange<'t>]) -> Result<Vec<TextEdit>, Refused> {
        let removed: Vec<&Entry> = changes
            .iter()
            .filter(|change| change.new.is_none())
            .filter_map(|change| change.existing)
            .collect();
        if removed.is_empty() {
            return Ok(Vec::new());
        }
        let Some(resources) = self.source.entry(self.node, RESOURCES)? else {
            return Ok(Vec::new());
        };
        let limits = self.source.entry(&resources.value, Section::Limits.key())?;
        let Some(limits) = limits else { return Ok(Vec::new()) };
        let is_removed =
            |entry: &Entry| removed.iter().any(|removed| std::ptr::eq(*removed, entry));
        let all = limits.value.entries().iter().all(is_removed);
        let others = resources.value.entries().len() > 1;
        let (inside_flow, is_flow) = (resources.value.is_flow(), limits.value.is_flow());
        match (all && others, is_flow) {
            (true, _) if inside_flow => flow_edit::remove(self.source, &resources.value, |entry| {
                std::ptr::eq(entry, limits)
            }),
            (true, true) => Ok(vec![block_edit::remove_line(self.source, limits)?]),
            (false, true) => flow_edit::remove(self.source, &limits.value, is_removed),
            (_, false) => {
                let owner = if !all {
                    None
                } else if others {
                    Some(block_edit::remove_key_line(self.source, limits)?)
                } else {
                    Some(block_edit::leave_empty(self.source, limits)?)
                };
                let lines = removed.iter().map(|entry| block_edit::remove_line(self.source, entry));
                owner.into_iter().map(Ok).chain(lines).collect()
            }
        }
    }
}

fn quantity_of(entry: &Entry) -> Option<Quantity> {
    entry.value.text()?.trim().parse().ok()
}
