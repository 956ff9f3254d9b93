//! Edits of mappings in flow style (`{cpu: 1, memory: 1Gi}`), which JSON is too.

use std::ops::Range;

use super::{
    lookup::{Source, refused},
    problem::{Refusal, Refused},
    text_edit::{TextEdit, line_start, newline},
    tree::{Entry, Node},
};

/// A value to insert.
#[derive(Clone, Debug)]
pub(super) enum NewValue {
    Text(String),
    Mapping(Vec<(&'static str, NewValue)>),
}

/// Whether keys are written as in JSON. A mapping without keys is like the key that it belongs to.
pub(super) fn is_json(mapping: &Node, owner: &Node) -> bool {
    let key = mapping.entries().first().map_or(owner, |entry| &entry.key);
    mapping.is_flow() && key.is_double_quoted()
}

/// Entries in flow style, without the braces around them.
pub(super) fn render(entries: &[(&'static str, NewValue)], json: bool) -> String {
    let rendered = entries.iter().map(|(key, value)| {
        let value = match value {
            NewValue::Text(text) => scalar_text(text, json),
            NewValue::Mapping(entries) => format!("{{{}}}", render(entries, json)),
        };
        if json { format!("\"{key}\": {value}") } else { format!("{key}: {value}") }
    });
    rendered.collect::<Vec<_>>().join(", ")
}

/// A scalar in flow style. JSON has quotes around everything but numbers.
pub(super) fn scalar_text(text: &str, json: bool) -> String {
    if json && !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("\"{text}\"");
    }
    text.to_owned()
}

/// Inserts entries after the last entry of a mapping that has some.
pub(super) fn insert(
    source: Source<'_>,
    mapping: &Node,
    new: &[(&'static str, NewValue)],
) -> Result<TextEdit, Refused> {
    let (Some(first), Some(last)) = (mapping.entries().first(), mapping.entries().last()) else {
        return Err(refused(mapping, Refusal::Layout));
    };
    let rendered = render(new, is_json(mapping, &first.key));
    let start = line_start(source.text, last.key.range.start);
    let before = &source.text[start..last.key.range.start];
    // One entry a line, as JSON is usually written.
    let separator = if before.trim_matches([' ', '\t']).is_empty() && start > mapping.range.start {
        format!(",{}{before}", newline(source.text, start))
    } else {
        ", ".to_owned()
    };
    let end = entry_end(source, last)?;
    // A comment on the last entry would follow the new one.
    let line_end = source.text[end..].find('\n').map_or(source.text.len(), |length| end + length);
    let within = end..line_end.min(mapping.range.end);
    if source.comments.iter().any(|comment| within.contains(&comment.start)) {
        return Err(refused(mapping, Refusal::Comment));
    }
    Ok(TextEdit::insert(end, format!("{separator}{rendered}")))
}

/// Fills a mapping without entries.
pub(super) fn fill(
    source: Source<'_>,
    mapping: &Node,
    owner: &Node,
    new: &[(&'static str, NewValue)],
) -> Result<TextEdit, Refused> {
    let inner = mapping.range.start + 1..mapping.range.end - 1;
    if !source.text[inner.clone()].trim().is_empty() {
        return Err(refused(mapping, Refusal::Layout));
    }
    Ok(TextEdit { range: inner, text: render(new, is_json(mapping, owner)) })
}

/// Removes entries of a mapping, with the commas that separate them from the others.
pub(super) fn remove(
    source: Source<'_>,
    mapping: &Node,
    is_removed: impl Fn(&Entry) -> bool,
) -> Result<Vec<TextEdit>, Refused> {
    let entries = mapping.entries();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let Some(first_kept) = entries.iter().position(|entry| !is_removed(entry)) else {
        let inner = mapping.range.start + 1..mapping.range.end - 1;
        return Ok(vec![removal(source, mapping, inner)?]);
    };
    for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| is_removed(entry)) {
        ranges.push(if index < first_kept {
            entry.key.range.start..entries[index + 1].key.range.start
        } else {
            entry_end(source, &entries[index - 1])?..entry_end(source, entry)?
        });
    }
    ranges.into_iter().map(|range| removal(source, mapping, range)).collect()
}

fn removal(source: Source<'_>, node: &Node, range: Range<usize>) -> Result<TextEdit, Refused> {
    let has_comment = source
        .comments
        .iter()
        .any(|comment| comment.start < range.end && range.start < comment.end);
    if has_comment {
        return Err(refused(node, Refusal::Comment));
    }
    Ok(TextEdit::remove(range))
}

/// Where an entry ends: after its value, or after the colon if it has none.
pub(super) fn entry_end(source: Source<'_>, entry: &Entry) -> Result<usize, Refused> {
    if entry.value.range.is_empty() { colon_end(source, entry) } else { Ok(entry.value.range.end) }
}

/// Where the colon after a key ends.
pub(super) fn colon_end(source: Source<'_>, entry: &Entry) -> Result<usize, Refused> {
    let after = &source.text[entry.key.range.end..];
    let blanks = after.len() - after.trim_start_matches([' ', '\t']).len();
    if after[blanks..].starts_with(':') {
        Ok(entry.key.range.end + blanks + 1)
    } else {
        Err(refused(&entry.key, Refusal::Layout))
    }
}
