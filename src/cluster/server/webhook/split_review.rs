//! Splits a review into its envelope and its objects. Objects are most of the body, and their reviewer parses them
//! anyway: here they are skipped by matching brackets.

/// A review without its objects, and the raw objects.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SplitReview<'a> {
    /// The review, with null in place of each object.
    pub envelope: Vec<u8>,
    /// The new object.
    pub object: Option<&'a str>,
    /// The existing object.
    pub old_object: Option<&'a str>,
}

/// Splits a review. `None` if it is not in the form that API servers write: a full parser must handle it.
pub(super) fn split_review(body: &[u8]) -> Option<SplitReview<'_>> {
    let mut scan = JsonScanner { text: body, position: 0 };
    let (mut cuts, mut object, mut old_object) = ([(0, 0); 2], None, None);
    let mut count = 0;
    scan.open(b'{')?;
    while let Key::Named(key) = scan.key()? {
        if key != b"request" {
            scan.skip()?;
            continue;
        }
        scan.open(b'{')?;
        while let Key::Named(key) = scan.key()? {
            let begin = scan.position;
            scan.skip()?;
            let found = match key {
                b"object" => &mut object,
                b"oldObject" => &mut old_object,
                _ => continue,
            };
            // Leave duplicate fields in place: the parser rejects them.
            if body[begin] != b'{' || found.is_some() {
                continue;
            }
            *found = Some(std::str::from_utf8(&body[begin..scan.position]).ok()?);
            *cuts.get_mut(count)? = (begin, scan.position);
            count += 1;
        }
    }
    let mut envelope = Vec::with_capacity(2 << 10);
    let mut from = 0;
    for (begin, end) in &cuts[..count] {
        envelope.extend_from_slice(&body[from..*begin]);
        envelope.extend_from_slice(b"null");
        from = *end;
    }
    envelope.extend_from_slice(&body[from..]);
    Some(SplitReview { envelope, object, old_object })
}

/// The next key of an object, or its end.
enum Key<'a> {
    Named(&'a [u8]),
    End,
}

struct JsonScanner<'a> {
    text: &'a [u8],
    position: usize,
}

impl<'a> JsonScanner<'a> {
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.position) {
            if !byte.is_ascii_whitespace() {
                return Some(*byte);
            }
            self.position += 1;
        }
        None
    }

    fn open(&mut self, bracket: u8) -> Option<()> {
        (self.peek()? == bracket).then(|| self.position += 1)
    }

    /// Reads the next key of an object, and moves to its value.
    fn key(&mut self) -> Option<Key<'a>> {
        let mut next = self.peek()?;
        if next == b',' {
            self.position += 1;
            next = self.peek()?;
        }
        if next == b'}' {
            self.position += 1;
            return Some(Key::End);
        }
        let begin = self.position + 1;
        self.string()?;
        let key = &self.text[begin..self.position - 1];
        self.open(b':')?;
        self.peek()?;
        Some(Key::Named(key))
    }

    /// Skips a string.
    fn string(&mut self) -> Option<()> {
        self.open(b'"')?;
        loop {
            match self.text.get(self.position)? {
                b'"' => {
                    self.position += 1;
                    return Some(());
                }
                b'\\' => self.position += 2,
                _ => self.position += 1,
            }
        }
    }

    /// Skips a value.
    fn skip(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string(),
            b'{' | b'[' => self.brackets(),
            _ => {
                let rest = &self.text[self.position..];
                self.position += rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']'))?;
                Some(())
            }
        }
    }

    fn brackets(&mut self) -> Option<()> {
        let (mut depth, mut at) = (0_usize, self.position);
        loop {
            let byte = *self.text.get(at)?;
            at += 1;
            match byte {
                b'"' => loop {
                    let byte = *self.text.get(at)?;
                    at += 1;
                    match byte {
                        b'"' => break,
                        b'\\' => at += 1,
                        _ => {}
                    }
                },
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        self.position = at;
                        return Some(());
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn objects_are_split_from_a_review_unchanged() {
        let body = br#" {"kind": "AdmissionReview", "request": { "uid":"a\"}b", "object" : {"a": "}\\\"", "b": [{}, 1]} ,
            "oldObject": null, "options":{"x":[]}}, "z": -1.5e3}"#;
        let parts = split_review(body).expect("a review");
        assert_eq!(parts.object, Some(r#"{"a": "}\\\"", "b": [{}, 1]}"#));
        assert_eq!(parts.old_object, None);
        let rest: Value = serde_json::from_slice(&parts.envelope).expect("JSON");
        let expected = json!({
            "kind": "AdmissionReview", "z": -1500.0,
            "request": {"uid": "a\"}b", "object": null, "oldObject": null, "options": {"x": []}},
        });
        assert_eq!(rest, expected);
    }

    #[test]
    fn a_body_that_is_no_review_is_not_split() {
        for body in
            ["", "[]", "{", r#"{"request": 1}"#, r#"{"request": {"object": {"a": 1}"#, "\"\\"]
        {
            assert_eq!(split_review(body.as_bytes()), None, "{body}");
        }
        // A field of this name elsewhere is not the reviewed object.
        let other = br#"{"object": {"a": 1}, "request": {"deep": {"object": {}}}}"#;
        let parts = split_review(other).expect("a review");
        assert_eq!((parts.object, &parts.envelope[..]), (None, &other[..]));
    }

    proptest! {
        #[test]
        fn split_review_never_panics(body in prop::collection::vec(prop::sample::select(&b"{}[]\",:\\a1 \xff"[..]), 0..60)) {
            let _ = split_review(&body);
            let nested = [&br#"{"request":{"object":"#[..], &body, b"}}"].concat();
            if let Some(SplitReview { envelope, object, .. }) = split_review(&nested) {
                let (taken, put) = object.map_or((0, 0), |object| (object.len(), "null".len()));
                prop_assert_eq!(envelope.len() + taken, nested.len() + put);
            }
        }
    }
}
