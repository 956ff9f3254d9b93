//! Edits of mappings in block style, which have one entry a line.

use super::{
    flow_edit::{self, NewValue, colon_end, entry_end},
    lookup::{Source, refused},
    problem::{Refusal, Refused},
    text_edit::{TextEdit, ends_line, indentation, line_end, line_start, newline, starts_line},
    tree::{Entry, Node, TagKind, Value},
};

/// Lines of new entries, each with the line break before it.
fn render(
    entries: &[(&'static str, NewValue)],
    indent: usize,
    step: usize,
    newline: &str,
) -> String {
    let mut text = String::new();
    for (key, value) in entries {
        text.push_str(newline);
        text.push_str(&" ".repeat(indent));
        text.push_str(key);
        match value {
            NewValue::Text(value) => text.extend([": ", value]),
            NewValue::Mapping(entries) => {
                text.push(':');
                text.push_str(&render(entries, indent + step, step, newline));
            }
        }
    }
    text
}

/// Inserts entries into a block mapping after one of its entries, as lines of their own.
pub(super) fn insert_after(
    source: Source<'_>,
    mapping: &Node,
    after: &Entry,
    new: &[(&'static str, NewValue)],
    step: usize,
) -> Result<TextEdit, Refused> {
    let end = last_line(source, after).ok_or_else(|| refused(&after.key, Refusal::Layout))?;
    insert_at(source, mapping, end, new, step)
}

/// Inserts entries into a block mapping before all of its entries, after the line with the key that it
/// belongs to.
pub(super) fn insert_first(
    source: Source<'_>,
    owner: &Entry,
    new: &[(&'static str, NewValue)],
    step: usize,
) -> Result<TextEdit, Refused> {
    let end = line_end(source.text, colon_end(source, owner)?);
    insert_at(source, &owner.value, end, new, step)
}

fn insert_at(
    source: Source<'_>,
    mapping: &Node,
    at: usize,
    new: &[(&'static str, NewValue)],
    step: usize,
) -> Result<TextEdit, Refused> {
    let layout = || refused(mapping, Refusal::Layout);
    let first = mapping.entries().first().ok_or_else(layout)?;
    let indent = indentation(source.text, first.key.range.start).ok_or_else(layout)?;
    let text = render(new, indent, step, newline(source.text, at));
    Ok(TextEdit::insert(at, text))
}

/// Gives entries to a key whose value is null or `{}`, as lines below it.
pub(super) fn fill(
    source: Source<'_>,
    owner: &Entry,
    new: &[(&'static str, NewValue)],
    step: usize,
) -> Result<Vec<TextEdit>, Refused> {
    let layout = || refused(&owner.key, Refusal::Layout);
    let text = source.text;
    let indent = indentation(text, owner.key.range.start).ok_or_else(layout)?;
    let colon = colon_end(source, owner)?;
    let end = entry_end(source, owner)?;
    let value = &text[colon..end];
    let is_plain =
        matches!(value.trim_start_matches(' '), "" | "~" | "null" | "Null" | "NULL" | "{}" | "{ }");
    if !is_plain || !ends_line(text, end) {
        return Err(layout());
    }
    let at = line_end(text, end);
    let mut edits = vec![TextEdit::insert(at, render(new, indent + step, step, newline(text, at)))];
    if colon < end {
        edits.push(TextEdit::remove(colon..end));
    }
    Ok(edits)
}

/// Removes the lines of an entry with a value on the same line.
pub(super) fn remove_line(source: Source<'_>, entry: &Entry) -> Result<TextEdit, Refused> {
    let end = entry_end(source, entry)?;
    remove_lines(source, entry, end)
}

/// Removes the line of a key whose entries are removed too.
pub(super) fn remove_key_line(source: Source<'_>, entry: &Entry) -> Result<TextEdit, Refused> {
    let colon = colon_end(source, entry)?;
    remove_lines(source, entry, colon)
}

fn remove_lines(source: Source<'_>, entry: &Entry, end: usize) -> Result<TextEdit, Refused> {
    let text = source.text;
    let start = entry.key.range.start;
    let line = line_start(text, start);
    if line == 0
        || !starts_line(text, start)
        || !ends_line(text, end)
        || text[start..end].contains('\n')
    {
        return Err(refused(&entry.key, Refusal::Layout));
    }
    // The line break before the line goes, not that after it: a text without a final one stays without.
    let previous = line_end(text, line_start(text, line - 1));
    Ok(TextEdit::remove(previous..line_end(text, end)))
}

/// Gives a key an empty mapping on its line, in place of entries that are removed.
pub(super) fn leave_empty(source: Source<'_>, owner: &Entry) -> Result<TextEdit, Refused> {
    let colon = colon_end(source, owner)?;
    if ends_line(source.text, colon) {
        Ok(TextEdit::insert(colon, " {}".to_owned()))
    } else {
        Err(refused(&owner.key, Refusal::Layout))
    }
}

/// Where the last line of an entry ends, if nothing but a comment follows the value.
pub(super) fn last_line(source: Source<'_>, entry: &Entry) -> Option<usize> {
    let end = match &entry.value.value {
        Value::Scalar { style, .. } if is_block(*style) => return None,
        Value::Mapping { is_flow: false, entries } => return last_line(source, entries.last()?),
        Value::Sequence { is_flow: false, .. } => return None,
        _ => entry_end(source, entry).ok()?,
    };
    ends_line(source.text, end).then(|| line_end(source.text, end))
}

fn is_block(style: granit_parser::ScalarStyle) -> bool {
    matches!(style, granit_parser::ScalarStyle::Literal | granit_parser::ScalarStyle::Folded)
}

/// Replaces a scalar; keeps its quotes.
pub(super) fn replace_scalar(
    source: Source<'_>,
    mapping: &Node,
    entry: &Entry,
    new: &str,
) -> Result<TextEdit, Refused> {
    let value = &entry.value;
    source.check_own(value)?;
    let Value::Scalar { style, .. } = &value.value else {
        return Err(source.unexpected(value, Refusal::NotScalar));
    };
    if value.tag == TagKind::Other {
        return Err(refused(value, Refusal::Tag));
    }
    let range = value.range.clone();
    if is_block(*style) || source.text[range.clone()].contains('\n') {
        return Err(source.unexpected(value, Refusal::NotScalar));
    }
    if range.is_empty() {
        return Ok(TextEdit::insert(colon_end(source, entry)?, format!(" {new}")));
    }
    Ok(match style {
        granit_parser::ScalarStyle::Plain => {
            let json = flow_edit::is_json(mapping, &entry.key);
            TextEdit { range, text: flow_edit::scalar_text(new, json) }
        }
        _ => TextEdit { range: range.start + 1..range.end - 1, text: new.to_owned() },
    })
}
