//! YAML as a tree with the places of its nodes.

use std::{collections::BTreeSet, ops::Range};

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle, options};

use super::problem::{Refusal, Refused};

/// The depth of nested collections, for blocks and for flow style.
const MAX_DEPTH: usize = 64;
/// The number of nodes in a file.
const MAX_NODES: usize = 400_000;

/// The documents of a file.
#[derive(Debug)]
pub(super) struct Tree {
    pub documents: Vec<Document>,
    /// The byte ranges of comments, in order.
    pub comments: Vec<Range<usize>>,
}

/// A document.
#[derive(Debug)]
pub(super) struct Document {
    pub root: Node,
    /// The anchors that aliases of the document use.
    pub aliased: BTreeSet<usize>,
}

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    /// The byte range. That of a block collection is not meaningful.
    pub range: Range<usize>,
    /// The line, from 1.
    pub line: usize,
    /// The anchor; 0 if there is none.
    pub anchor: usize,
    pub tag: TagKind,
    pub value: Value,
}

/// A tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagKind {
    None,
    /// `!!str`, which all quantities may have.
    Text,
    Other,
}

/// The value of a node.
#[derive(Debug)]
pub(super) enum Value {
    Scalar { text: Box<str>, style: ScalarStyle },
    Sequence { is_flow: bool, items: Vec<Node> },
    Mapping { is_flow: bool, entries: Vec<Entry> },
    Alias,
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: Node,
    pub value: Node,
}

impl Node {
    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The entries of a mapping; empty for everything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Mapping { entries, .. } => entries,
            _ => &[],
        }
    }

    /// The items of a sequence; empty for everything else.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::Sequence { items, .. } => items,
            _ => &[],
        }
    }

    pub fn is_mapping(&self) -> bool {
        matches!(self.value, Value::Mapping { .. })
    }

    pub fn is_flow(&self) -> bool {
        match self.value {
            Value::Mapping { is_flow, .. } | Value::Sequence { is_flow, .. } => is_flow,
            _ => false,
        }
    }

    /// Whether it is null: written as such, or nothing at all.
    pub fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar { text, style: ScalarStyle::Plain } => {
                matches!(&**text, "" | "~" | "null" | "Null" | "NULL")
            }
            _ => false,
        }
    }

    /// Whether it is null or a mapping without entries.
    pub fn is_empty(&self) -> bool {
        self.is_null() || (self.is_mapping() && self.entries().is_empty())
    }

    /// Whether it is written in double quotes.
    pub fn is_double_quoted(&self) -> bool {
        matches!(self.value, Value::Scalar { style: ScalarStyle::DoubleQuoted, .. })
    }

    fn new(span: Span, anchor: usize, tag: TagKind, value: Value) -> Self {
        Self {
            // Spans of texts always have byte offsets.
            range: span.byte_range().unwrap_or_default(),
            line: span.start.line(),
            anchor,
            tag,
            value,
        }
    }
}

/// A collection that is not complete yet.
struct Open {
    node: Node,
    key: Option<Node>,
}

impl Open {
    fn push(&mut self, child: Node) {
        match &mut self.node.value {
            Value::Sequence { items, .. } => items.push(child),
            Value::Mapping { entries, .. } => match self.key.take() {
                Some(key) => entries.push(Entry { key, value: child }),
                None => self.key = Some(child),
            },
            _ => {}
        }
    }
}

#[derive(Default)]
struct Builder {
    documents: Vec<Document>,
    comments: Vec<Range<usize>>,
    open: Vec<Open>,
    aliased: BTreeSet<usize>,
    nodes: usize,
}

impl Builder {
    fn node(&mut self, node: Node) -> Result<(), Refused> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Refused { line: node.line, reason: Refusal::TooManyNodes(MAX_NODES) });
        }
        match node.value {
            Value::Sequence { .. } | Value::Mapping { .. } => {
                self.open.push(Open { node, key: None });
            }
            _ => self.complete(node),
        }
        Ok(())
    }

    fn complete(&mut self, node: Node) {
        match self.open.last_mut() {
            Some(parent) => parent.push(node),
            None => self
                .documents
                .push(Document { root: node, aliased: std::mem::take(&mut self.aliased) }),
        }
    }

    fn end(&mut self, span: Span) {
        if let Some(Open { mut node, .. }) = self.open.pop() {
            node.range.end = span.byte_range().unwrap_or_default().end;
            self.complete(node);
        }
    }
}

/// Parses a file.
pub(super) fn parse(text: &str) -> Result<Tree, Refused> {
    let options = options! {
        block_nesting_limit: MAX_DEPTH,
        flow_nesting_limit: MAX_DEPTH,
        // Files may begin with long comments; the size of files is limited anyway.
        max_buffered_comment_events: usize::MAX,
    };
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| Refused {
            line: error.marker().line(),
            reason: Refusal::Syntax(error.info()),
        })?;
        let tag_kind = |tag: Option<&str>| match tag {
            None => TagKind::None,
            Some("str") => TagKind::Text,
            Some(_) => TagKind::Other,
        };
        let known = |tag: &Option<std::borrow::Cow<'_, granit_parser::Tag>>| {
            tag_kind(tag.as_ref().map(|tag| tag.core_suffix().unwrap_or_default()))
        };
        match event {
            Event::Comment(..) => builder.comments.extend(span.byte_range()),
            Event::Scalar(text, style, anchor, tag) => {
                let value = Value::Scalar { text: text.into(), style };
                builder.node(Node::new(span, anchor, known(&tag), value))?;
            }
            Event::Alias(anchor) => {
                builder.aliased.insert(anchor);
                builder.node(Node::new(span, 0, TagKind::None, Value::Alias))?;
            }
            Event::SequenceStart(style, anchor, tag) => {
                let value = Value::Sequence { is_flow: is_flow(style), items: Vec::new() };
                builder.node(Node::new(span, anchor, known(&tag), value))?;
            }
            Event::MappingStart(style, anchor, tag) => {
                let value = Value::Mapping { is_flow: is_flow(style), entries: Vec::new() };
                builder.node(Node::new(span, anchor, known(&tag), value))?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.end(span),
            _ => {}
        }
    }
    Ok(Tree { documents: builder.documents, comments: builder.comments })
}

fn is_flow(style: StructureStyle) -> bool {
    style == StructureStyle::Flow
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_bytes_of_their_text() {
        let text = "\u{feff}# é\r\na: &x 5Mi # c\r\nb: [*x, \"q\"]\r\n---\r\n{c: }\r\n";
        let tree = parse(text).expect("YAML");
        let slice = |node: &Node| &text[node.range.clone()];
        let [first, second] = &tree.documents[..] else { panic!("{tree:?}") };
        assert_eq!(slice(&first.root.entries()[0].value), "5Mi");
        assert_eq!(first.root.entries()[0].value.line, 2);
        assert!(first.aliased.contains(&first.root.entries()[0].value.anchor));
        assert_eq!(slice(&first.root.entries()[1].value), "[*x, \"q\"]");
        assert_eq!(slice(&first.root.entries()[1].value.items()[0]), "*x");
        assert_eq!(slice(&second.root), "{c: }");
        assert!(second.root.entries()[0].value.is_null());
        let comments: Vec<_> = tree.comments.iter().map(|range| &text[range.clone()]).collect();
        assert_eq!(comments, ["# é", "# c"]);
    }

    #[test]
    fn depth_size_and_syntax_are_limited() {
        let reason = |text: &str| parse(text).expect_err("refused").reason;
        assert!(matches!(reason(&"[".repeat(100)), Refusal::Syntax(_)));
        assert!(matches!(reason(&"- ".repeat(100)), Refusal::Syntax(_)));
        assert!(matches!(reason("a: [\n"), Refusal::Syntax(_)));
        let many = format!("[{}]", "1,".repeat(MAX_NODES));
        assert_eq!(reason(&many), Refusal::TooManyNodes(MAX_NODES));
        let comments = "# x\n".repeat(5000);
        assert!(parse(&format!("{comments}a:\n{comments}  b: 1\n")).is_ok());
    }
}
