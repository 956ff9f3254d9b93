//! Parses Rust source for the rules: the paths, method calls and identifiers in it, without comments and strings.

use std::iter::Peekable;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// The contents of a source file.
#[derive(Debug, Default)]
pub struct Code {
    /// All paths with two or more parts, with `use` groups expanded and `self` and `super` resolved to `crate`.
    pub paths: Vec<(usize, String)>,
    /// All method calls with their number of arguments.
    pub calls: Vec<(usize, String, usize)>,
    /// All identifiers and keywords.
    pub words: Vec<(usize, String)>,
}

/// Parses the source file of this module, such as `["recommender", "window"]`.
pub fn read(text: &str, module: &[&str]) -> Code {
    let tokens: TokenStream = text.parse().expect("source that compiles");
    let mut code = Code::default();
    let module = module.iter().map(ToString::to_string).collect();
    code.walk(tokens, &module);
    code
}

type Tokens = Peekable<proc_macro2::token_stream::IntoIter>;

fn line(ident: &Ident) -> usize {
    ident.span().start().line
}

fn next_is(tokens: &mut Tokens, wanted: char) -> bool {
    let found = matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
    if found {
        tokens.next();
    }
    found
}

impl Code {
    fn walk(&mut self, tokens: TokenStream, module: &Vec<String>) {
        let mut tokens = tokens.into_iter().peekable();
        let mut after_dot = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(ident) if after_dot => self.method(&ident, &mut tokens, module),
                TokenTree::Ident(ident) if ident == "mod" => self.module(&mut tokens, module),
                TokenTree::Ident(ident) => self.path(&ident, &mut tokens, "", module),
                TokenTree::Group(group) => self.walk(group.stream(), module),
                TokenTree::Punct(punct) => {
                    after_dot = punct.as_char() == '.';
                    continue;
                }
                TokenTree::Literal(_) => {}
            }
            after_dot = false;
        }
    }

    fn module(&mut self, tokens: &mut Tokens, module: &[String]) {
        if let Some(TokenTree::Ident(name)) = tokens.next()
            && let Some(TokenTree::Group(_)) = tokens.peek()
            && let Some(TokenTree::Group(body)) = tokens.next()
        {
            let inner = module.iter().cloned().chain([name.to_string()]).collect();
            self.walk(body.stream(), &inner);
        }
    }

    fn method(&mut self, name: &Ident, tokens: &mut Tokens, module: &Vec<String>) {
        self.words.push((line(name), name.to_string()));
        if let Some(TokenTree::Group(group)) = tokens.peek()
            && group.delimiter() == Delimiter::Parenthesis
        {
            self.calls.push((line(name), name.to_string(), arguments(group)));
        } else if next_is(tokens, ':') {
            // A turbofish: its contents are separate paths, followed by the arguments.
            let rest: TokenStream =
                tokens.by_ref().take_while(|token| !is_parenthesis(token)).collect();
            self.walk(rest, module);
        }
    }

    /// Parses a path from its first part on; `before` is the prefix of the enclosing `use` group.
    fn path(&mut self, first: &Ident, tokens: &mut Tokens, before: &str, module: &Vec<String>) {
        self.words.push((line(first), first.to_string()));
        let mut path = format!("{before}{first}");
        while let Some(TokenTree::Punct(punct)) = tokens.peek()
            && punct.as_char() == ':'
        {
            tokens.next();
            if !next_is(tokens, ':') {
                break;
            }
            match tokens.peek() {
                Some(TokenTree::Ident(_)) => {
                    if let Some(TokenTree::Ident(part)) = tokens.next() {
                        self.words.push((line(&part), part.to_string()));
                        path = format!("{path}::{part}");
                    }
                }
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    let mut inner = group.stream().into_iter().peekable();
                    while let Some(token) = inner.next() {
                        match token {
                            // The name after `as` is not a path.
                            TokenTree::Ident(part) if part == "as" => drop(inner.next()),
                            TokenTree::Ident(part) => {
                                self.path(&part, &mut inner, &format!("{path}::"), module);
                            }
                            _ => {}
                        }
                    }
                    tokens.next();
                    return;
                }
                _ => break,
            }
        }
        self.paths.push((line(first), absolute(&path, module)));
    }
}

fn is_parenthesis(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
}

fn arguments(group: &Group) -> usize {
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    let comma =
        |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
    let trailing = tokens.last().is_some_and(comma);
    match tokens.iter().filter(|&token| comma(token)).count() {
        0 => usize::from(!tokens.is_empty()),
        commas => commas + usize::from(!trailing),
    }
}

fn absolute(path: &str, module: &[String]) -> String {
    let ups = path.split("::").take_while(|part| *part == "super").count();
    let relative = ups > 0 || path.starts_with("self::");
    if !relative {
        return path.to_owned();
    }
    let depth = module.len().saturating_sub(ups);
    let rest = path.split("::").skip(ups.max(1)).map(str::to_owned);
    let parts = ["crate".to_owned()].into_iter().chain(module[..depth].iter().cloned()).chain(rest);
    parts.collect::<Vec<_>>().join("::")
}

#[test]
fn paths_are_parsed_and_resolved() {
    let text = r#"
        use kube::{Client as Kube, api::{Api, ListParams as Params}, runtime::*};
        /// use tokio::comment;
        fn f() { super::budget::left(); let s = "hyper::string"; ::reqwest::get(a, b).send::<std::fs::File>(c,); }
        mod tests { use super::*; use super::super::act::Evict; }
    "#;
    let code = read(text, &["update", "plan"]);
    let paths: Vec<&str> = code.paths.iter().map(|(_, path)| path.as_str()).collect();
    for expected in [
        "kube::Client",
        "kube::api::Api",
        "kube::api::ListParams",
        "crate::update::budget::left",
        "reqwest::get",
        "std::fs::File",
        "crate::update::act::Evict",
    ] {
        assert!(paths.contains(&expected), "{expected} in {paths:?}");
    }
    assert!(
        !paths.iter().any(|path| path.ends_with("::as") || path.ends_with("Size")),
        "{paths:?}"
    );
    assert!(
        !paths.iter().any(|path| path.contains("tokio") || path.contains("hyper")),
        "{paths:?}"
    );
    for name in ["as", "Kube", "Params"] {
        let end = format!("::{name}");
        assert!(!paths.iter().any(|path| path.ends_with(&end)), "{name} is no path: {paths:?}");
    }
    assert!(code.words.iter().all(|(_, word)| word != "string"), "strings are no code");
    assert_eq!(
        code.paths.iter().find(|(_, path)| path == "kube::Client").map(|found| found.0),
        Some(2)
    );
}
